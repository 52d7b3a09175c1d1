package schema

import (
	"encoding/json"
	"math/big"
	"slices"
)

// MeantRule tells in a schema's description what Meant does.
const MeantRule = `An optional argument may be null, which leaves it out. Where something else than text is wanted, text is taken as its JSON: "5" as 5. ` +
	`An additional argument "description" is ignored; others are as additionalProperties says.`

// Meant changes arguments from Parse to what models mean by them, and reports whether it changed
// any. It looks at properties, items and type in a schema's document, and never at lists of types
// or references:
//
//   - null for an optional property whose type is not null leaves it out;
//   - text whose JSON has the wanted type, which is not string, is that value;
//   - an integer written as 5.0 or 5e0 becomes 5, which more programs read;
//   - an additional property "description" of the arguments, which the schema does not allow, is
//     left out.
func Meant(arguments, doc any) (any, bool) {
	value, changed := meant(arguments, doc)
	object, isObject := value.(map[string]any)
	s, _ := doc.(map[string]any)
	if properties, _ := s["properties"].(map[string]any); isObject && s["additionalProperties"] == false {
		_, known := properties["description"]
		if _, given := object["description"]; given && !known {
			delete(object, "description")
			changed = true
		}
	}
	return value, changed
}

func meant(value, doc any) (_ any, changed bool) {
	s, _ := doc.(map[string]any)
	wanted, _ := s["type"].(string)
	if text, ok := value.(string); ok && wanted != "" && wanted != "string" {
		if read, wrong := Parse([]byte(text)); wrong == nil && isOf(read, wanted) {
			value, changed = read, true
		}
	}
	switch v := value.(type) {
	case json.Number:
		if whole := wholeNumber(v); wanted == "integer" && whole != v {
			return whole, true
		}
	case map[string]any:
		properties, _ := s["properties"].(map[string]any)
		required, _ := s["required"].([]any)
		for name, property := range properties {
			given, ok := v[name]
			if !ok {
				continue
			}
			p, _ := property.(map[string]any)
			if typ, _ := p["type"].(string); given == nil && typ != "" && typ != "null" && !slices.Contains(required, any(name)) {
				delete(v, name)
				changed = true
			} else if as, other := meant(given, property); other {
				v[name], changed = as, true
			}
		}
	case []any:
		for n := range v {
			if as, other := meant(v[n], s["items"]); other {
				v[n], changed = as, true
			}
		}
	}
	return value, changed
}

func isOf(value any, wanted string) bool {
	if n, ok := value.(json.Number); ok && wanted == "integer" {
		return IsInteger(n)
	}
	return typeOf(value) == wanted
}

// wholeNumber returns an integer of up to 64 bits without a fraction or exponent, and other numbers
// unchanged.
func wholeNumber(n json.Number) json.Number {
	if r, ok := new(big.Rat).SetString(n.String()); ok && r.IsInt() && r.Num().IsInt64() {
		return json.Number(r.Num().String())
	}
	return n
}
