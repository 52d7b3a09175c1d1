package ui

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible makes characters visible that a reader cannot see and that change how text is shown: control characters, marks of direction,
// characters without width, unusual spaces. Line breaks and tabs stay. The frame applies it to each whole page, so that no page can forget it.
func Visible(s string) string {
	i := strings.IndexFunc(s, odd)
	if i < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		writeVisible(&b, r)
	}
	return b.String()
}

// Line is Visible for text that must stay on one line: line breaks and tabs become visible, too.
func Line(s string) string {
	s = strings.NewReplacer("\r\n", "␍␊", "\n", "␊", "\r", "␍", "\t", "␉").Replace(s)
	return Visible(s)
}

// Cut is Line of the first runes of a text, with an ellipsis if there are more.
func Cut(s string, runes int) string {
	n := 0
	for i := range s {
		if n == runes {
			return Line(s[:i]) + "…"
		}
		n++
	}
	return Line(s)
}

// odd reports whether a character is not shown as itself.
func odd(r rune) bool {
	return r != '\n' && r != '\t' && !unicode.IsPrint(r)
}

func writeVisible(b *strings.Builder, r rune) {
	switch {
	case !odd(r):
		b.WriteRune(r)
	case r < 0x20:
		b.WriteRune(0x2400 + r) // the Unicode block Control Pictures
	case r == 0x7f:
		b.WriteRune(0x2421)
	default:
		fmt.Fprintf(b, "⟨U+%04X⟩", r)
	}
}
