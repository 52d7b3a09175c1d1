package row

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// storable reports whether PostgreSQL would take the text.
func storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

func FuzzText(f *testing.F) {
	for _, s := range []string{"", "a\x00b", "\xff", "ü漢😀", "\xed\xa0\x80", "␀"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Text(s)
		if !storable(got) {
			t.Errorf("%q became %q", s, got)
		}
		if storable(s) && got != s {
			t.Errorf("%q needed no change and became %q", s, got)
		}
		if Text(got) != got {
			t.Errorf("%q is changed again", got)
		}
	})
}

func FuzzCleanJSON(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"a": "\u0000"}`, `"\ud800"`, `{"\u0000": [1e400, "\udfff\ud800"]}`, "\"\xff\"", `[1,2.50,9007199254740993]`, `"\\u0000"`, `nul`, ``,
		`{"a":1,"a":2,"\u0061":3}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := cleanJSON(raw)
		if err != nil {
			if json.Valid(raw) {
				t.Fatalf("%q is JSON, and refused: %v", raw, err)
			}
			return
		}
		if len(got) == 0 {
			return
		}
		var v any
		if err := json.Unmarshal(got, &v); err != nil && json.Valid(raw) {
			if tooLarge := (*json.UnmarshalTypeError)(nil); errors.As(err, &tooLarge) { // 1e400 is JSON, and no float64
				return
			}
			t.Fatalf("%q became %q: %v", raw, got, err)
		}
		if !storable(string(got)) {
			t.Fatalf("%q became %q", raw, got)
		}
		walk(v, func(s string) {
			if !storable(s) {
				t.Fatalf("%q became %q, which holds %q", raw, got, s)
			}
		})
		again, err := cleanJSON(got)
		if err != nil || string(again) != string(got) {
			t.Fatalf("%q is changed again: %q, %v", got, again, err)
		}
	})
}

func walk(v any, see func(string)) {
	switch v := v.(type) {
	case string:
		see(v)
	case []any:
		for _, e := range v {
			walk(e, see)
		}
	case map[string]any:
		for name, e := range v {
			see(name)
			walk(e, see)
		}
	}
}
