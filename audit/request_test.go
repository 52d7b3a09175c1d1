package audit_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"secbox/audit"
)

// TestRequestText: short arguments stay as they are, long ones stay JSON with what fits.
func TestRequestText(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10<<20)
	quoted := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for name, c := range map[string]struct{ arguments, begins, ends string }{
		"short":              {` { "b": 1, "a":"\u0061" } `, ` { "b": 1, "a":"\u0061" } `, ""},
		"a long script":      {`{"script":"` + long + `"}`, `{"script":"xxx`, `… [cut: 10485760 bytes]"}`},
		"the short ones too": {`{"stdin":"` + long + `","code":"print(1)","n":7}`, `{"stdin":"xxx`, `… [cut: 10485760 bytes]","code":"print(1)","n":7}`},
		"nested":             {`{"a":[{"b":{"c":"` + long + `"}},2]}`, `{"a":[{"b":{"c":"xxx`, `… [cut: 10485760 bytes]"}},2]}`},
		"many":               {`{"a":[` + strings.Repeat("1,", 10<<10) + `1],"b":2}`, `{"a":[1,1,1,`, `,1,1]}`},
		"many names":         {`{"0":0` + strings.Repeat(`,"name":null`, 10<<10) + `}`, `{"0":0,"name":null`, `"name":null}`},
		"a long name":        {`{"a":1,"` + strings.Repeat("n", 9000) + `":2}`, `{"a":1,"nnn`, ""},
		"a long number":      {`{"a":1,"b":` + strings.Repeat("9", 9000) + `}`, `{"a":1,"b":null}`, ""},
		"deep":               {`{"a":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`, `{"a":[[[`, `]]]}`},
		"control characters": {quoted(map[string]string{"code": strings.Repeat("\x00\x1b", 9000)}), `{"code":"\u0000\u001b`, `… [cut: 18000 bytes]"}`},
		"wide characters":    {quoted(map[string]string{"code": strings.Repeat("漢", 9000)}), `{"code":"漢漢`, `漢… [cut: 27000 bytes]"}`},
		"a text":             {quoted(long), `"xxx`, `… [cut: 10485760 bytes]"`},
	} {
		got := audit.RequestText([]byte(c.arguments), audit.MostRequest)
		if !json.Valid([]byte(got)) || len(got) > audit.MostRequest || !strings.HasPrefix(got, c.begins) || !strings.HasSuffix(got, c.ends) {
			t.Errorf("%s: %d bytes, %.60q … %.60q", name, len(got), got, got[max(0, len(got)-60):])
		}
		if again := audit.RequestText([]byte(got), audit.MostRequest); again != got {
			t.Errorf("%s: cut again", name)
		}
	}
}

// FuzzRequestText: of anything, at most so many bytes are kept, and of JSON, JSON.
func FuzzRequestText(f *testing.F) {
	f.Add(`{"script":"echo \u202e hi","args":["a",1,null,true,{"b":[]}]}`, 40)
	f.Add(`[[[["`+strings.Repeat("漢", 50)+`"]]],"\u0000"]`, 60)
	f.Add(`{"a":1e999,"b":{"c":"`+strings.Repeat(`\n`, 100)+`"}}`, 100)
	f.Fuzz(func(t *testing.T, arguments string, most int) {
		most = 40 + max(0, most)%200
		got := audit.RequestText([]byte(arguments), most)
		isJSON := json.Valid([]byte(arguments)) && utf8.ValidString(arguments)
		if len(got) > most || isJSON && got != "" && !json.Valid([]byte(got)) {
			t.Errorf("%d bytes: %q", len(got), got)
		}
	})
}
