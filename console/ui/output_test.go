package ui

import (
	"regexp"
	"strings"
	"testing"
	"unicode"
)

func TestOutput(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain <b> & \"q\"":           "plain &lt;b&gt; &amp; &#34;q&#34;",
		"\x1b[31mred\x1b[0m end":      `<span class="t-f1">red</span> end`,
		"\x1b[1;38;5;196mx":           `<span class="t-bold t-f1">x</span>`,
		"\x1b[38;2;0;200;0mx\x1b[39m": `<span class="t-f2">x</span>`,
		"\x1b[7;32mx\x1b[27my":        `<span class="t-bg2">x</span><span class="t-f2">y</span>`,
		"\x1b[m\x1b[;mx":              "x",
		"a\r\nb\rc":                   "a\nb<span class=\"odd\">␍</span>\nc",
		"\x1b[2Jx":                    `<span class="odd">␛</span>[2Jx`,
		"\x1b[31":                     `<span class="odd">␛</span>[31`,
		"\u202eabc\x00":               `<span class="odd">⟨U+202E⟩</span>abc<span class="odd">␀</span>`,
		"\xff":                        "\uFFFD",
		"a\ufe0f☀\ufe0f\ufe0f":        `a<span class="odd">⟨U+FE0F⟩</span>☀` + "\ufe0f" + `<span class="odd">⟨U+FE0F⟩</span>`,
		"\u2800":                      `<span class="odd">⟨U+2800⟩</span>`,
	} {
		if got := htmlOf([]byte(in)); got != want {
			t.Errorf("%q: %s", in, got)
		}
	}
}

var element = regexp.MustCompile(`<span class="[a-z0-9 -]+">|</span>`)

// FuzzOutput checks that output becomes text and balanced spans, without any invisible character.
func FuzzOutput(f *testing.F) {
	for _, seed := range []string{"", "\x1b[31m<\x1b[0m", "\x1b[38;5m\x1b[48;2;1mx", "\r\x1b[\x1b[m", "\u202e\x9b31m", "\x1b[99999999999999999999m"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		out := htmlOf(in)
		depth := 0
		for _, tag := range element.FindAllString(out, -1) {
			if depth++; tag == "</span>" {
				depth -= 2
			}
			if depth < 0 || depth > 2 {
				t.Fatalf("depth %d in %q", depth, out)
			}
		}
		text := element.ReplaceAllString(out, "")
		if depth != 0 || strings.ContainsAny(text, "<>") {
			t.Fatalf("not balanced, or with another element: %q", out)
		}
		if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }); i >= 0 {
			t.Fatalf("an invisible character at %d of %q", i, text)
		}
	})
}

// TestVisible: characters without ink are marked; emoji stay.
func TestVisible(t *testing.T) {
	t.Parallel()
	for _, r := range []rune{
		0, 0x1b, 0x7f, 0xa0, 0xad, 0x34f, 0x61c, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x180b, 0x180e, 0x180f, 0x200b, 0x2028, 0x202e, 0x2065, 0x2800, 0x3000, 0x3164,
		0xfe00, 0xfe0f, 0xfeff, 0xffa0, 0xfff0, 0x16fe4, 0x1d159, 0xe0000, 0xe0041, 0xe0100, 0xe01ef, 0xe0fff,
	} {
		text := "a" + string(r) + "b"
		if got := Visible(text); got == text || got[0] != 'a' || got[len(got)-1] != 'b' || strings.ContainsRune(got, r) {
			t.Errorf("%U is shown as %q", r, got)
		}
	}
	for in, want := range map[string]string{
		"é ü 漢字 \u0301 ❤\ufe0f 🌶\ufe0f\n\t": "é ü 漢字 \u0301 ❤\ufe0f 🌶\ufe0f\n\t", "❤\ufe0f\ufe0f": "❤\ufe0f⟨U+FE0F⟩", "1\ufe0f": "1⟨U+FE0F⟩",
		"\ufe0f": "⟨U+FE0F⟩",
	} {
		if got := Visible(in); got != want {
			t.Errorf("%q is shown as %q", in, got)
		}
	}
}

func TestLink(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		address Address
		want    string
		parses  bool
	}{
		{Link(), "/console", true},
		{Link("execs", "a/../b?c#d"), "/console/execs/a%2F..%2Fb%3Fc%23d", false},
		{Link("execs", "a?b;c#d%2f"), "/console/execs/a%3Fb%3Bc%23d%252f", true},
		{Link("execs", "..", "."), "/console/execs/%252E%252E/%252E", true},
		{Link("history").With("a", "x&y=1").With("b", "").With("a", "2"), "/console/history?a=2", true},
	} {
		if got := c.address.String(); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
		if back, ok := Parse(c.want); ok != c.parses || ok && back.String() != c.want {
			t.Errorf("%s is parsed as %s, %v", c.want, back, ok)
		}
	}
	if clean, ok := Parse("/console//history///?a=1&a=2"); !ok || clean.String() != "/console/history?a=1" {
		t.Errorf("%s, %v", clean, ok)
	}
}

func TestFormats(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		Bytes(0): "0 B", Bytes(1023): "1023 B", Bytes(1536): "1.5 KiB", Bytes(1 << 20): "1 MiB", Bytes(1<<63 - 1): "8 EiB",
		Duration(850): "850 ms", Duration(12_440): "12.4 s", Duration(187_000): "3 min 07 s", Duration(7_500_000): "2 h 05 min",
		Count(999): "999", Count(-1234567): "-1,234,567", Cut("äöü", 2): "äö…", Line("a\r\nb\t"): "a␍␊b␉",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
