package view

import (
	"encoding/json"
	"testing"
)

// FuzzParameters: any schema is explained within bounds, and its example is JSON.
func FuzzParameters(f *testing.F) {
	const nested = `{"type": "object", "properties": {"args": {"type": "array", "items": {"type": "string"}, "maxItems": 10}, "mode": {"enum": ["a", 1]}}, "required": ["args"]}`
	for _, seed := range []string{
		"", "true", "false", "{}", nested, `{"properties": []}`,
		`{"items": {"items": {"items": {"items": {"items": {"items": {"properties": {"a": 1}}}}}}}}`, `{"type": "string", "const": "😀` + "\u202e" + `"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		schema := json.RawMessage(text)
		if p := NewParameters(schema); len(p.List) > maxParameters {
			t.Fatalf("%d parameters", len(p.List))
		}
		if example := Example(schema); !json.Valid([]byte(example)) {
			t.Fatalf("the example is no JSON: %q", example)
		}
	})
}
