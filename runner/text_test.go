package runner

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTextIsValidUTF8(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"plain":                  {"abc", "abc"},
		"broken":                 {"a\xffb", "a\uFFFDb"},
		"empty":                  {"", ""},
		"NUL":                    {"a\x00b", "a\x00b"},
		"cut within a character": {strings.Repeat("x", InlineBytes-1) + "é", strings.Repeat("x", InlineBytes-1)},
		"not cut":                {strings.Repeat("x", InlineBytes-2) + "é", strings.Repeat("x", InlineBytes-2) + "é"},
		"broken at the end":      {"abc\xc3", "abc\uFFFD"},
	} {
		if got := string(text([]byte(c.in))); got != c.want {
			t.Errorf("%s: %q", name, got[max(0, len(got)-20):])
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte("abc"), 3)
	f.Add([]byte("é\xff"), InlineBytes)
	f.Fuzz(func(t *testing.T, tail []byte, pad int) {
		in := append(bytes.Repeat([]byte("x"), min(max(pad, 0), 2*InlineBytes)), tail...)
		got := text(in)
		if !utf8.Valid(got) || len(got) > 3*InlineBytes {
			t.Fatalf("%d bytes, valid %v", len(got), utf8.Valid(got))
		}
		if utf8.Valid(in) && len(in) <= InlineBytes && len(in) < InlineBytes && !bytes.Equal(got, in) {
			t.Fatal("valid text was changed")
		}
	})
}
