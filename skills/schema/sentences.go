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

// sentence says what a value must be like that a keyword has refused. said is what the keyword says, parent the schema that holds it.
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
		if isNumber(said, "1") {
			return "must not be empty"
		}
		return "must have at least " + counted1(said, "character")
	case "maxLength":
		return "must have at most " + counted1(said, "character")
	case "minItems":
		if isNumber(said, "1") {
			return "must not be empty"
		}
		return "must have at least " + counted1(said, "item")
	case "maxItems":
		return "must have at most " + counted1(said, "item")
	case "minProperties":
		return "must have at least " + counted1(said, "property")
	case "maxProperties":
		return "must have at most " + counted1(said, "property")
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
		return "must hold at least " + counted1(said, "item") + " of the form that the schema describes under contains"
	case "maxContains":
		return "must hold at most " + counted1(said, "item") + " of the form that the schema describes under contains"
	}
	return "does not fit the schema (" + Clip(keyword) + ")"
}

// hint is the schema's own description: what a pattern means, a person says best.
func hint(schema map[string]any) string {
	if d, _ := schema["description"].(string); d != "" {
		const most = 300
		if len(d) > most {
			d = strings.ToValidUTF8(d[:most], "") + "…"
		}
		return ": " + d
	}
	return ""
}

func isNumber(said any, text string) bool {
	n, ok := said.(json.Number)
	return ok && n.String() == text
}

func counted1(n any, noun string) string {
	text := Clip(fmt.Sprint(n))
	switch {
	case text == "1":
		return "1 " + noun
	case strings.HasSuffix(noun, "y"):
		return text + " " + strings.TrimSuffix(noun, "y") + "ies"
	}
	return text + " " + noun + "s"
}

// brief is a value of a schema as JSON, cut. Its price does not depend on how large the value is.
func brief(v any) string {
	room := 100
	b, err := json.Marshal(abridged(v, &room))
	if err != nil {
		return "something else"
	}
	return Clip(string(b))
}

// abridged is a value without most of what clip would cut: at most room values, and of texts their beginnings.
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
			return object // some of many names would be others each time
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

// KindOf names the JSON type of a value: "a list".
func KindOf(value any) string { return kindOf(value, nil) }

func kindOf(value, wanted any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case []any:
		return "a list"
	case json.Number:
		if wanted == "integer" && !IsInteger(v) {
			return "one with a fraction"
		}
		return "a number"
	}
	return "an object"
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

// FieldName writes a place in a value the way a person does: inputs.list[3].x.
func FieldName(root string, value any, path []string) string {
	var b strings.Builder
	b.WriteString(root)
	for _, token := range path {
		_, isList := value.([]any)
		if _, err := strconv.ParseUint(token, 10, 32); value == nil && err == nil {
			isList = true // the text could not be read to the end, so there is nothing to look into
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
