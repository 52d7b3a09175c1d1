package tools

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"secbox/internal/names"
	"secbox/sandbox"
)

// cutLine returns a line that is safe to show, at most maxLineBytes of it. size is its whole length
// in bytes.
func cutLine(line []byte, size int) string {
	kept := line[:min(len(line), maxLineBytes)]
	if len(kept) < len(line) { // do not cut within a character
		for n := 1; n < utf8.UTFMax && n < len(kept); n++ {
			if start := len(kept) - n; utf8.RuneStart(line[start]) {
				if _, wide := utf8.DecodeRune(line[start:]); start+wide > len(kept) {
					kept = kept[:start]
				}
				break
			}
		}
	}
	text := visible(string(kept))
	if size > len(kept) {
		text += fmt.Sprintf(" … (%d more bytes in this line)", size-len(kept))
	}
	return text
}

// visible writes control characters and bytes that are not UTF-8 as \x1b, so that they neither hide
// nor forge anything. Tabs stay.
func visible(text string) string {
	if plain(text) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && n == 1, r < 0x20 && r != '\t', r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case r >= 0x80 && r < 0xa0:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(text[i : i+n])
		}
		i += n
	}
	return b.String()
}

// visibleLines makes each line of a text visible, and drops the \r of \r\n.
func visibleLines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line, ends := strings.CutSuffix(line, "\n")
		if ends {
			line = strings.TrimSuffix(line, "\r")
		}
		b.WriteString(visible(line))
		if ends {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// plain reports whether a text needs no escapes.
func plain(text string) bool {
	for _, r := range text {
		if r == utf8.RuneError || r < 0x20 && r != '\t' || r >= 0x7f && r < 0xa0 {
			return false
		}
	}
	return true
}

// quote returns a path as it is, or as a Go string if it has characters that could forge a result,
// such as characters that reverse what follows. It shows only the beginning of what is too long for
// a path, because a model reads errors, too.
func quote(name string) string {
	name = names.Shown(name)
	if len(name) > sandbox.MaxPathBytes {
		return fmt.Sprintf("%q… (%d bytes)", name[:100], len(name))
	}
	reverses := func(r rune) bool { return unicode.Is(unicode.Bidi_Control, r) }
	if plain(name) && !strings.ContainsAny(name, "	\"") && !strings.ContainsFunc(name, reverses) && strings.TrimSpace(name) == name &&
		name != "" {
		return name
	}
	return strconv.Quote(name)
}
