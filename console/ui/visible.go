package ui

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible makes characters visible that a reader cannot see and that change how text is shown:
// control characters, marks of direction, characters without width or ink, unusual spaces. Line
// breaks and tabs stay. The frame applies it to each whole page, so that no page can forget it.
func Visible(s string) string {
	i := strings.IndexFunc(s, odd)
	if i < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	before := rune(0)
	for _, r := range s {
		if r == emojiStyle && symbol(before) {
			b.WriteRune(r)
		} else {
			writeVisible(&b, r)
		}
		before = r
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
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < 0x300:
		return !unicode.IsPrint(r)
	}
	return !unicode.IsPrint(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) ||
		slices.Contains(blank, r)
}

// blank are characters that count as printable and leave no ink: of Braille without dots, of music,
// and of the Khitan small script.
var blank = []rune{0x2800, 0x1D159, 0x16FE4}

// emojiStyle is the variation selector that follows many emoji. It stays after a symbol, once;
// elsewhere it could make two texts look the same.
const emojiStyle = 0xFE0F

// symbol reports whether a character may be an emoji.
func symbol(r rune) bool { return r >= 0x2100 && unicode.In(r, unicode.So, unicode.Sm) && !odd(r) }

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
