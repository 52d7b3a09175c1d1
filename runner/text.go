package runner

import (
	"strings"
	"unicode/utf8"

	"secbox/internal/whole"
)

// text returns b, cut at InlineBytes, as valid UTF-8; a character that the cut splits is left out.
func text(b []byte) []byte {
	if len(b) >= InlineBytes {
		b = whole.End(b[:InlineBytes])
	}
	if utf8.Valid(b) {
		return b
	}
	return []byte(strings.ToValidUTF8(string(b), "\uFFFD"))
}
