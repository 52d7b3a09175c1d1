// Package whole cuts UTF-8 texts between characters, also to show them in errors. It must not know
// where the texts come from: they may be binary.
package whole

import (
	"strings"
	"unicode/utf8"
)

// End drops the beginning of a character from the end of a text that was cut there.
func End(text []byte) []byte {
	for i := len(text) - 1; i >= max(0, len(text)-utf8.UTFMax+1); i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRune(text[i:]) {
				return text[:i]
			}
			break
		}
	}
	return text
}

// Begin drops the rest of a character from the beginning of a text that was cut there.
func Begin(text []byte) []byte {
	for i := range utf8.UTFMax {
		if i == len(text) || utf8.RuneStart(text[i]) {
			return text[i:]
		}
	}
	return text
}

// Shorten cuts a text from outside to 80 bytes, so that it cannot fill an error, and then ends it
// with "…".
func Shorten(s string) string {
	const most = 80
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
