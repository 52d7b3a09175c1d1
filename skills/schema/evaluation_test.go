package schema

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// FuzzEvaluation compares verdicts with the verdicts of the library, for schemas and values made
// from the fuzzer's numbers.
func FuzzEvaluation(f *testing.F) {
	for n := range uint64(100) {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		m := maker{rand.New(rand.NewPCG(seed, 1))}
		schema := map[string]any{"$defs": map[string]any{"a": m.schema(2), "b": m.schema(2)}}
		for keyword, value := range m.schema(3).(map[string]any) {
			schema[keyword] = value
		}
		raw, err := json.Marshal(schema)
		must(t, err)
		values := make([]string, 10)
		for n := range values {
			text, err := json.Marshal(m.value(3))
			must(t, err)
			values[n] = string(text)
		}
		asTheLibrary(t, string(raw), values...)
	})
}

// asTheLibrary compares the verdicts.
func asTheLibrary(t *testing.T, schema string, values ...string) {
	t.Helper()
	compiler := jsonschema.NewCompiler()
	compiler.Draft = jsonschema.Draft2020
	must(t, compiler.AddResource(schemaURL, strings.NewReader(schema)))
	theirs, err := compiler.Compile(schemaURL)
	ours, bad := Compile([]byte(schema))
	if (err == nil) != (bad == nil) {
		t.Fatalf("%s: %v, %+v", schema, err, bad)
	}
	if err != nil {
		return
	}
	for _, text := range values {
		value, unread := Parse([]byte(text))
		if unread != nil {
			t.Fatal(unread)
		}
		found, err := ours.Validate(t.Context(), value)
		must(t, err)
		if theirs := theirs.Validate(value); (len(found) == 0) != (theirs == nil) {
			t.Errorf("%s by %s: %+v, the library says %v", text, schema, found, theirs)
		}
		for _, one := range found {
			if strings.Contains(one.Reason, "too much work") {
				t.Errorf("%s by %s: %+v", text, schema, one)
			}
		}
	}
}

// TestUnevaluated compares verdicts that depend on the parts of a value that other schemas have
// evaluated.
func TestUnevaluated(t *testing.T) {
	t.Parallel()
	const a, b = `{"properties":{"a":true}}`, `{"properties":{"b":true}}`
	for _, with := range []string{
		`"allOf":[` + a + `,` + b + `]`,
		`"anyOf":[` + a + `,{"required":["b"],"properties":{"b":true}}]`,
		`"oneOf":[{"required":["a"],"properties":{"a":true}},{"required":["b"],"properties":{"b":true}}]`,
		`"not":{"not":` + a + `}`,
		`"if":{"required":["a"],"properties":{"a":true}},"then":` + b + `,"else":{"properties":{"c":true}}`,
		`"dependentSchemas":{"a":` + a + `}`,
		`"$ref":"#/$defs/a"`,
		`"$dynamicRef":"#a"`,
		`"patternProperties":{"^a":true}`,
		`"allOf":[` + a + `,{"unevaluatedProperties":{"type":"integer"}}]`,
		`"allOf":[` + a + `,{"unevaluatedProperties":false}]`,
		`"allOf":[{"additionalProperties":{"type":"integer"}}]`,
		`"properties":{"a":{"unevaluatedProperties":false},"b":true}`,
	} {
		asTheLibrary(t, `{"$defs":{"a":{"$dynamicAnchor":"a","properties":{"a":true}}},`+with+`,"unevaluatedProperties":false}`,
			`{}`, `{"a":1}`, `{"b":1}`, `{"c":1}`, `{"a":1,"b":1}`, `{"a":1,"c":1}`, `{"b":1,"c":1}`, `{"a":"x"}`, `{"a":{"x":1}}`, `[1]`)
	}
	for _, with := range []string{
		`"prefixItems":[true]`,
		`"allOf":[{"prefixItems":[true]},{"prefixItems":[true,{"type":"integer"}]}]`,
		`"anyOf":[{"prefixItems":[true,true]},{"prefixItems":[{"type":"integer"}]}]`,
		`"contains":{"type":"integer"}`,
		`"allOf":[{"items":{"type":"integer"}}]`,
		`"allOf":[{"prefixItems":[true]},{"unevaluatedItems":{"type":"integer"}}]`,
		`"if":{"contains":{"const":1}},"then":{"prefixItems":[true]},"else":{"prefixItems":[true,true]}`,
	} {
		asTheLibrary(t, `{`+with+`,"unevaluatedItems":false}`, `[]`, `[1]`, `["x"]`, `[1,1]`, `[1,"x"]`, `["x",1]`, `["x","x"]`, `[2,1,"x"]`, `{"a":1}`)
	}
}

// maker makes schemas and values of few words, so that they often match.
type maker struct{ *rand.Rand }

func (m maker) name() string { return []string{"a", "b", "ab", "c/~%"}[m.IntN(4)] }

func (m maker) value(depth int) any {
	switch n := m.IntN(9); {
	case n == 0:
		return nil
	case n == 1:
		return m.IntN(2) == 0
	case n == 2 || n < 6 && depth == 0:
		return json.Number([]string{"0", "1", "1.0", "2", "1e1", "-0", "0.5"}[m.IntN(7)])
	case n == 3 || depth == 0:
		return m.name()
	case n < 6:
		list := []any{}
		for range m.IntN(4) {
			list = append(list, m.value(depth-1))
		}
		return list
	}
	object := map[string]any{}
	for range m.IntN(4) {
		object[m.name()] = m.value(depth - 1)
	}
	return object
}

func (m maker) schema(depth int) any {
	schema := map[string]any{}
	if depth > 0 && m.IntN(4) == 0 {
		schema["if"], schema["then"], schema["else"] = m.schema(depth-1), m.schema(depth-1), m.schema(depth-1)
	}
	for range 1 + m.IntN(3) {
		keyword, value := m.keyword(depth, m.IntN(18))
		schema[keyword] = value
	}
	if m.IntN(3) == 0 { // the hardest keywords
		schema[[]string{"unevaluatedProperties", "unevaluatedItems"}[m.IntN(2)]] = false
		keyword, value := m.keyword(depth, inPlace)
		schema[keyword] = value
	}
	return schema
}

const inPlace = 8

func (m maker) keyword(depth, kind int) (string, any) {
	sub := func() any {
		if depth == 0 || m.IntN(8) == 0 {
			return m.IntN(2) == 0
		}
		return m.schema(depth - 1)
	}
	list := func() any { return []any{sub(), sub()} }
	named := func() any { return map[string]any{m.name(): sub(), m.name(): sub()} }
	pick := func(from ...string) string { return from[m.IntN(len(from))] }
	switch kind {
	case 0:
		return "type", pick("null", "boolean", "number", "integer", "string", "array", "object")
	case 1:
		return "type", []string{"object", pick("array", "string", "integer")}
	case 2:
		return pick("const", "const", "default"), m.value(2)
	case 3:
		return "enum", []any{m.value(1), m.value(1), m.value(0)}
	case 4:
		return pick("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"), m.IntN(3)
	case 5:
		return pick("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), m.IntN(3)
	case 6:
		return "multipleOf", json.Number(pick("1", "0.5", "2"))
	case 7:
		return pick("not", "items", "contains", "propertyNames", "additionalProperties"), sub()
	case inPlace:
		return pick("allOf", "anyOf", "oneOf", "prefixItems"), list()
	case 9, 16:
		return pick("properties", "properties", "dependentSchemas"), named()
	case 10:
		return "patternProperties", map[string]any{pick("a", "^b$", "."): sub()}
	case 11:
		return pick("unevaluatedProperties", "unevaluatedItems"), sub()
	case 12:
		return "required", []string{m.name()}
	case 13:
		return "dependentRequired", map[string]any{m.name(): []string{m.name()}}
	case 14:
		return "uniqueItems", true
	case 15:
		return "pattern", pick("a", "^b$", "/")
	}
	return "$ref", fmt.Sprintf("#/$defs/%s", pick("a", "b"))
}
