package catalog

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxNameBytes is the length of the longest name of a skill or an agent.
const MaxNameBytes = 200

// NameFault says why a name in a user's workspace cannot name a skill or an agent. It returns an
// empty string if the name can.
func NameFault(name string) string {
	switch {
	case name == "" || name == "." || name == "..":
		return "is empty or a dot"
	case len(name) > MaxNameBytes:
		return fmt.Sprintf("is longer than %d bytes", MaxNameBytes)
	case !utf8.ValidString(name):
		return "is no UTF-8"
	case strings.ContainsAny(name, `/\`):
		return "contains a slash or backslash"
	}
	for _, r := range name {
		if !unicode.IsGraphic(r) {
			return "contains a character that does not show"
		}
	}
	return ""
}
