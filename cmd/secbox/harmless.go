package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"
)

// commands reports whether a terminal obeys a character, or shows the text around it in another
// order.
func commands(r rune) bool {
	return r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || unicode.Is(unicode.Bidi_Control, r)
}

// plain returns text of others on one line, without characters that a terminal would obey.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case commands(r):
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// harmless writes text of others without characters that a terminal would obey. Each Write must
// have whole characters.
type harmless struct {
	to   io.Writer
	json bool // escapes the characters, which JSON has only in strings
}

func (h harmless) Write(p []byte) (int, error) {
	var out strings.Builder
	for _, r := range string(p) {
		switch {
		case !commands(r):
			out.WriteRune(r)
		case h.json:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			out.WriteRune(unicode.ReplacementChar)
		}
	}
	_, err := io.WriteString(h.to, out.String())
	return len(p), err
}

// table returns a writer of cells that a server has sent. The caller must flush it.
func table(cmd *cobra.Command) *tabwriter.Writer {
	return tabwriter.NewWriter(harmless{to: cmd.OutOrStdout()}, 0, 0, 2, ' ', 0)
}
