package session

import (
	"bytes"
	"strings"
	"testing"
)

// TestMarked cuts what an interpreter writes at every place.
func TestMarked(t *testing.T) {
	const mark = "\x00NONCE 7\x00"
	for name, all := range map[string]struct{ text, output, later string }{
		"plain":                 {"out" + mark + "later", "out", "later"},
		"nothing":               {mark, "", ""},
		"parts of marks":        {"\x00\x00NON\x00NONCE\x00" + mark, "\x00\x00NON\x00NONCE\x00", ""},
		"another's mark":        {"\x00OTHER 0\x00" + mark, "\x00OTHER 0\x00", ""},
		"a mark without an end": {"a\x00NONCE 7", "a", ""},
	} {
		for cut := range len(all.text) + 1 {
			var m marked
			var output bytes.Buffer
			code := -1
			m.begin("NONCE", &output, func(c int) { code = c })
			for _, part := range []string{all.text[:cut], all.text[cut:]} {
				if n, err := m.Write([]byte(part)); n != len(part) || err != nil {
					t.Fatal(n, err)
				}
			}
			want := 7
			if strings.HasSuffix(all.text, "7") {
				want = -1
			}
			if code != want || want == 7 && (output.String() != all.output || string(m.held) != all.later) {
				t.Errorf("%s, cut at %d: code %d, output %q, later %q", name, cut, code, output.String(), m.held)
			}
			var next bytes.Buffer
			m.end()
			m.begin("NEXT", &next, func(int) {})
			if want == 7 && next.String() != all.later {
				t.Errorf("%s: the next cell got %q", name, next.String())
			}
		}
	}
}

// TestMarkedIsBounded: a mark with an odd code ends the cell, and what comes between cells is
// bounded.
func TestMarkedIsBounded(t *testing.T) {
	for text, want := range map[string]int{"\x00N 999\x00": 255, "\x00N x\x00": 255, "\x00N 12345678": 255, "\x00N -1\x00": 255, "\x00N 0\x00": 0} {
		var m marked
		code := -1
		m.begin("N", &bytes.Buffer{}, func(c int) { code = c })
		_, _ = m.Write([]byte(text))
		if code != want {
			t.Errorf("%q: %d, want %d", text, code, want)
		}
		for range 3 {
			_, _ = m.Write(make([]byte, 40<<10))
		}
		if len(m.held) > mostBetween {
			t.Errorf("%d bytes are held", len(m.held))
		}
	}
}
