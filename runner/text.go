package runner

import (
	"strings"
	"unicode/utf8"
)

// text returns b, cut at InlineBytes, as valid UTF-8; a character that the cut splits is left out.
func text(b []byte) []byte {
	if len(b) > InlineBytes {
		b = b[:InlineBytes]
	}
	for cut := len(b) - 1; cut >= 0 && cut > len(b)-utf8.UTFMax && len(b) == InlineBytes; cut-- {
		if utf8.RuneStart(b[cut]) {
			if !utf8.FullRune(b[cut:]) {
				b = b[:cut]
			}
			break
		}
	}
	if utf8.Valid(b) {
		return b
	}
	return []byte(strings.ToValidUTF8(string(b), "\uFFFD"))
}
