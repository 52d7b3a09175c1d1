package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"secbox/console/ui"
)

// Bounds of what is shown of a schema.
const (
	maxParameters  = 200       // rows of a table
	maxSchemaDepth = 5         // of nested objects and lists
	maxSchemaBytes = 256 << 10 // of a schema that is explained
	maxRule        = 300       // characters of one rule
)

// Parameter is a value that a JSON Schema describes, also one in an object or a list.
type Parameter struct {
	Path     string // such as matches[].line
	Kind     string // such as "string or null"
	Required bool
	About    string
	Rules    []string // such as "at most 200 characters"
}

// Parameters are the parameters of a schema, as far as they are shown.
type Parameters struct {
	List    []Parameter
	Partial bool
	Closed  bool   // no others are accepted
	Schema  string // indented
}

// NewParameters explains the schema of an object. Keywords that it does not know are shown as they
// are.
func NewParameters(schema json.RawMessage) Parameters {
	if len(schema) > maxSchemaBytes {
		return Parameters{Partial: true, Schema: string(schema[:maxSchemaBytes])}
	}
	var p Parameters
	var pretty bytes.Buffer
	if json.Indent(&pretty, schema, "", "  ") == nil {
		p.Schema = pretty.String()
	}
	p.Closed = string(keyword(schema, "additionalProperties")) == "false"
	p.object(schema, "", 0)
	return p
}

// object adds the properties of an object.
func (p *Parameters) object(schema json.RawMessage, above string, depth int) {
	required := texts(keyword(schema, "required"))
	for _, property := range members(keyword(schema, "properties")) {
		path := property.name
		if above != "" {
			path = above + "." + path
		}
		if p.add(path, property.value, slices.Contains(required, property.name)); p.Partial {
			return
		}
		p.inside(property.value, path, depth+1)
	}
}

// inside adds what is in an object or a list.
func (p *Parameters) inside(schema json.RawMessage, path string, depth int) {
	if depth > maxSchemaDepth {
		p.Partial = p.Partial || len(members(schema)) > 0
		return
	}
	p.object(schema, path, depth)
	if items := keyword(schema, "items"); len(members(items)) > 0 {
		p.inside(items, path+"[]", depth+1)
	}
}

func (p *Parameters) add(path string, schema json.RawMessage, required bool) {
	if len(p.List) == maxParameters {
		p.Partial = true
		return
	}
	p.List = append(p.List, Parameter{
		Path: path, Kind: kindOf(schema), Required: required, About: text(keyword(schema, "description")),
		Rules: rulesOf(schema),
	})
}

// kindOf returns the type of a value in words.
func kindOf(schema json.RawMessage) string {
	kinds := texts(keyword(schema, "type"))
	switch {
	case string(schema) == "false":
		return "nothing"
	case len(kinds) == 0 && keyword(schema, "properties") != nil:
		kinds = []string{"object"}
	case len(kinds) == 0:
		return "any"
	}
	for i, kind := range kinds {
		if items := keyword(schema, "items"); kind == "array" && items != nil {
			kinds[i] = "list of " + kindOf(items)
		} else if kind == "array" {
			kinds[i] = "list"
		}
	}
	return strings.Join(kinds, " or ")
}

// shownApart are the keywords that are no rules, or are shown elsewhere.
var shownApart = []string{
	"type", "description", "title", "properties", "required", "additionalProperties", "items", "$schema", "$comment",
	"$defs", "definitions",
}

// units are the keywords of bounds, and what they count.
var units = map[string]string{
	"minLength": "at least %s characters", "maxLength": "at most %s characters", "minimum": "at least %s", "maximum": "at most %s",
	"exclusiveMinimum": "more than %s",
	"exclusiveMaximum": "less than %s", "multipleOf": "a multiple of %s", "minItems": "at least %s items", "maxItems": "at most %s items",
	"minProperties": "at least %s fields", "maxProperties": "at most %s fields", "pattern": "matches %s", "format": "format %s",
	"const": "always %s", "default": "default %s",
}

// rulesOf returns what else a schema says of a value, in its order.
func rulesOf(schema json.RawMessage) []string {
	var rules []string
	for _, m := range members(schema) {
		value := text(m.value)
		switch format, known := units[m.name]; {
		case slices.Contains(shownApart, m.name):
			continue
		case known:
			rule := fmt.Sprintf(format, value)
			if value == "1" {
				rule = strings.TrimSuffix(rule, "s")
			}
			rules = append(rules, rule)
		case m.name == "enum":
			rules = append(rules, "one of "+strings.Join(texts(m.value), ", "))
		case m.name == "examples":
			rules = append(rules, "for example "+strings.Join(texts(m.value), ", "))
		case m.name == "uniqueItems" && value == "true":
			rules = append(rules, "no item twice")
		default:
			rules = append(rules, m.name+": "+value)
		}
	}
	for i := range rules {
		rules[i] = ui.Cut(rules[i], maxRule)
	}
	return rules
}

// member is a name and a value of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// members returns what is in a JSON object, in its order; nil for any other value.
func members(object json.RawMessage) []member {
	d := json.NewDecoder(bytes.NewReader(object))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil
	}
	var out []member
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil
		}
		m := member{}
		m.name, _ = name.(string)
		if d.Decode(&m.value) != nil {
			return nil
		}
		out = append(out, m)
	}
	return out
}

// keyword returns the value of a name in a JSON object; nil if it is not there.
func keyword(object json.RawMessage, name string) json.RawMessage {
	for _, m := range members(object) {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// text returns a JSON value for a reader: a string as it is, anything else as compact JSON.
func text(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) == nil {
		return s
	}
	var compact bytes.Buffer
	if json.Compact(&compact, value) != nil {
		return ""
	}
	return compact.String()
}

// texts returns the texts of a list, or of a single value.
func texts(value json.RawMessage) []string {
	var list []json.RawMessage
	if json.Unmarshal(value, &list) != nil {
		if list = nil; len(value) > 0 {
			list = []json.RawMessage{value}
		}
	}
	out := make([]string, len(list))
	for i, item := range list {
		out[i] = text(item)
	}
	return out
}

// Example returns a JSON text of the form that a schema describes, with what must be there. Values
// that it cannot know are placeholders.
func Example(schema json.RawMessage) string {
	var b strings.Builder
	writeExample(&b, schema, 0)
	return b.String()
}

func writeExample(b *strings.Builder, schema json.RawMessage, depth int) {
	if depth > maxSchemaDepth || len(schema) > maxSchemaBytes {
		b.WriteString("null")
		return
	}
	for _, name := range []string{"const", "default"} {
		if value := keyword(schema, name); value != nil {
			b.WriteString(ascii(value))
			return
		}
	}
	for _, name := range []string{"examples", "enum"} {
		var list []json.RawMessage
		if json.Unmarshal(keyword(schema, name), &list) == nil && len(list) > 0 {
			b.WriteString(ascii(list[0]))
			return
		}
	}
	kinds := append(texts(keyword(schema, "type")), "")
	switch kinds[0] {
	case "string":
		b.WriteString(`"…"`)
	case "integer", "number":
		least := keyword(schema, "minimum")
		if least == nil {
			least = json.RawMessage("1")
		}
		b.WriteString(ascii(least))
	case "boolean":
		b.WriteString("true")
	case "array":
		b.WriteByte('[')
		if items := keyword(schema, "items"); items != nil {
			writeExample(b, items, depth+1)
		}
		b.WriteByte(']')
	case "object":
		required := texts(keyword(schema, "required"))
		b.WriteByte('{')
		first := true
		for _, m := range members(keyword(schema, "properties")) {
			if !slices.Contains(required, m.name) {
				continue
			}
			if !first {
				b.WriteString(", ")
			}
			first = false
			b.WriteString(JSONString(m.name) + ": ")
			writeExample(b, m.value, depth+1)
		}
		b.WriteByte('}')
	default:
		b.WriteString("null")
	}
}

// JSONString returns a string as JSON of visible characters, so that what is read is what is
// copied.
func JSONString(s string) string {
	quoted, _ := json.Marshal(s) // a string
	return ascii(quoted)
}

// ascii returns a JSON text with characters that are not printable as escapes. They can only be in
// strings.
func ascii(value json.RawMessage) string {
	var compact bytes.Buffer
	if json.Compact(&compact, value) != nil {
		return "null"
	}
	var b strings.Builder
	for _, r := range compact.String() {
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
