package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// sentence explains why a keyword refuses a value. said is the keyword's value, parent the schema
// that holds it.
func sentence(keyword string, said any, parent map[string]any, value any) string {
	switch keyword {
	case "type":
		return "must be " + typeWords(said) + ", not " + kindOf(value, said)
	case "const":
		return "must be " + brief(said)
	case "enum":
		list, _ := said.([]any)
		const most = 20
		var words []string
		for _, one := range list[:min(len(list), most)] {
			words = append(words, brief(one))
		}
		if len(list) > most {
			words = append(words, "…")
		}
		return "must be one of " + strings.Join(words, ", ")
	case "pattern":
		return "must match the pattern " + Clip(fmt.Sprint(said)) + hint(parent)
	case "minLength":
		return atLeast(said, "character")
	case "maxLength":
		return "must have at most " + counted(said, "character")
	case "minItems":
		return atLeast(said, "item")
	case "maxItems":
		return "must have at most " + counted(said, "item")
	case "minProperties":
		return "must have at least " + counted(said, "property")
	case "maxProperties":
		return "must have at most " + counted(said, "property")
	case "uniqueItems":
		return "must not hold the same item twice"
	case "minimum":
		return "must be at least " + Clip(fmt.Sprint(said))
	case "maximum":
		return "must be at most " + Clip(fmt.Sprint(said))
	case "exclusiveMinimum":
		return "must be greater than " + Clip(fmt.Sprint(said))
	case "exclusiveMaximum":
		return "must be less than " + Clip(fmt.Sprint(said))
	case "multipleOf":
		return "must be a multiple of " + Clip(fmt.Sprint(said))
	case "not":
		return "has a form that the schema excludes (not)" + hint(parent)
	case "oneOf":
		return "fits more than one of the forms it can have; it must fit exactly one"
	case "minContains":
		if said == nil {
			said = "1"
		}
		return "must hold at least " + counted(said, "item") + " of the form that the schema describes under contains"
	case "maxContains":
		return "must hold at most " + counted(said, "item") + " of the form that the schema describes under contains"
	}
	return "does not fit the schema (" + Clip(keyword) + ")"
}

func atLeast(said any, noun string) string {
	if n, ok := said.(json.Number); ok && n == "1" {
		return "must not be empty"
	}
	return "must have at least " + counted(said, noun)
}

// hint is the schema's own description: its author explains a pattern best.
func hint(schema map[string]any) string {
	d, _ := schema["description"].(string)
	if d == "" {
		return ""
	}
	const most = 300
	if len(d) > most {
		d = strings.ToValidUTF8(d[:most], "") + "…"
	}
	return ": " + d
}

func counted(n any, noun string) string {
	text := Clip(fmt.Sprint(n))
	switch {
	case text == "1":
		return "1 " + noun
	case strings.HasSuffix(noun, "y"):
		return text + " " + strings.TrimSuffix(noun, "y") + "ies"
	}
	return text + " " + noun + "s"
}

// brief returns a value of a schema as JSON, cut. Its cost does not grow with the value.
func brief(v any) string {
	room := 100
	b, err := json.Marshal(abridged(v, &room))
	if err != nil {
		return "something else"
	}
	return Clip(string(b))
}

// abridged drops most of the text that Clip would cut: it keeps at most room values, and the
// beginnings of texts.
func abridged(v any, room *int) any {
	const most = 200
	switch v := v.(type) {
	case string:
		return v[:min(len(v), most)]
	case []any:
		list := []any{}
		for _, one := range v {
			if *room--; *room < 0 {
				break
			}
			list = append(list, abridged(one, room))
		}
		return list
	case map[string]any:
		object := map[string]any{}
		if len(v) > *room {
			return object // a random subset would differ each time
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			*room--
			object[name[:min(len(name), most)]] = abridged(v[name], room)
		}
		return object
	}
	return v
}

var typeNames = map[string]string{
	"string": "a string", "number": "a number", "integer": "a whole number", "boolean": "true or false",
	"object": "an object", "array": "a list", "null": "null",
}

func typeWords(said any) string {
	list, ok := said.([]any)
	if !ok {
		list = []any{said}
	}
	words := make([]string, 0, len(list))
	for _, one := range list {
		name, _ := one.(string)
		words = append(words, typeNames[name])
	}
	return strings.Join(words, " or ")
}

// KindOf names the type of a value: "a list".
func KindOf(value any) string { return kindOf(value, nil) }

func kindOf(value, wanted any) string {
	switch v := value.(type) {
	case bool:
		return "a boolean"
	case json.Number:
		if wanted == "integer" && !IsInteger(v) {
			return "one with a fraction"
		}
	}
	return typeNames[typeOf(value)]
}

func listed(names []string) string {
	quoted := make([]string, len(names))
	for n, name := range names {
		quoted[n] = Clip(name)
	}
	if len(quoted) == 1 {
		return "only " + quoted[0]
	}
	return strings.Join(quoted[:len(quoted)-1], ", ") + " and " + quoted[len(quoted)-1]
}

var plainName = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$-]*$`)

// FieldName writes a path into a value as a person would: inputs.list[3].x.
func FieldName(root string, value any, path []string) string {
	var b strings.Builder
	b.WriteString(root)
	for _, token := range path {
		_, isList := value.([]any)
		if _, err := strconv.ParseUint(token, 10, 32); value == nil && err == nil {
			isList = true // the text could not be parsed, so there is no value to look into
		}
		switch {
		case isList:
			b.WriteString("[" + token + "]")
		case plainName.MatchString(token) && len(token) <= 120:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(token)
		default:
			b.WriteString("[" + strconv.Quote(Clip(token)) + "]")
		}
		value, _ = At(value, []string{token})
	}
	return b.String()
}
