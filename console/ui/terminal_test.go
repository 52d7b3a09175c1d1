package ui

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// htmlOf returns the HTML of a whole output.
func htmlOf(text []byte) string {
	out, _ := new(Terminal).HTML(text, true)
	return out
}

// inPieces returns the HTML of an output that arrives in pieces which end at the cuts.
func inPieces(t *testing.T, text []byte, cuts ...int) string {
	t.Helper()
	var now Terminal
	var b strings.Builder
	from := 0
	for i, to := range append(cuts, len(text)) {
		skipped := now
		out, used := now.HTML(text[from:to], i == len(cuts))
		if n := skipped.Skip(text[from:to], i == len(cuts)); n != used || skipped != now {
			t.Fatalf("%q: Skip uses %d and becomes %+v, HTML uses %d and becomes %+v", text[from:to], n, skipped, used, now)
		}
		b.WriteString(out)
		from += used
	}
	if from != len(text) {
		t.Fatalf("%q, cut at %v: %d bytes are missing", text, cuts, len(text)-from)
	}
	return b.String()
}

var tag = regexp.MustCompile(`<span class="([^"]*)">|</span>|[^<]`)

// styled returns each character of some HTML with its classes, without regard to where elements
// begin.
func styled(html string) string {
	var b strings.Builder
	var open []string
	for _, m := range tag.FindAllStringSubmatch(html, -1) {
		switch {
		case m[0] == "</span>":
			open = open[:len(open)-1]
		case m[1] != "":
			open = append(open, m[1])
		default:
			b.WriteString(m[0] + "{" + strings.Join(slices.Clone(open), " ") + "}")
		}
	}
	return b.String()
}

var cutOutputs = []string{
	"plain \x1b[31mred\x1b[0m ü € 🙂 \x1b[1;38;5;196mbold\x1b[m",
	"\x1b[38;2;0;200;0mgreen\x1b[39m\r\nnext\rover\r",
	"\x1b[2J\x1b]0;title\x07\x1b\x1b[31mx\x1b[",
	"\xff\xf0\x9f\x99 \u202e\u200b\x00<b>&amp;</b>\xe2\x82",
	"\x1b[" + strings.Repeat("1;", 40) + "mlong",
	"☀\ufe0f\ufe0fx\ufe0f🌶\ufe0f é\ufe0f☀",
	"\x1b[31" + strings.Repeat("\x1b[", 5) + "32mx",
}

// TestCutOutput: sequences, characters and line ends that are cut anywhere look as if they were
// not.
func TestCutOutput(t *testing.T) {
	t.Parallel()
	for _, text := range cutOutputs {
		want := styled(htmlOf([]byte(text)))
		for i := range len(text) + 1 {
			if got := styled(inPieces(t, []byte(text), i)); got != want {
				t.Errorf("%q, cut at %d:\n%s\nwant\n%s", text, i, got, want)
			}
			for j := i; j <= len(text); j++ {
				if got := styled(inPieces(t, []byte(text), i, j)); got != want {
					t.Fatalf("%q, cut at %d and %d:\n%s\nwant\n%s", text, i, j, got, want)
				}
			}
		}
	}
}

// FuzzCutOutput is TestCutOutput for any output and two cuts.
func FuzzCutOutput(f *testing.F) {
	for i, seed := range cutOutputs {
		f.Add([]byte(seed), 3*i, 7*i)
	}
	f.Fuzz(func(t *testing.T, text []byte, i, j int) {
		if i < 0 || j < i || j > len(text) {
			t.Skip()
		}
		if got, want := styled(inPieces(t, text, i, j)), styled(htmlOf(text)); got != want {
			t.Fatalf("%q, cut at %d and %d:\n%s\nwant\n%s", text, i, j, got, want)
		}
	})
}
