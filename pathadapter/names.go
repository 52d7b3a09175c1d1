package pathadapter

import (
	"strings"
	"unicode/utf8"
)

// MaxNameBytes is the longest single name that Linux, macOS and Windows file systems all take.
const MaxNameBytes = 255

// NameFault returns why a single name (one component, no separators) is not accepted by every
// system, as the rest of a sentence that begins with the name; "" when it is fine. Most rules come
// from Windows. It drops trailing dots and spaces, so ".. " climbs, and it opens a device for CON
// in any directory.
func NameFault(name string) string {
	switch {
	case name == "":
		return "is empty"
	case name == "." || name == "..":
		return `must not be "." or ".."`
	case len(name) > MaxNameBytes:
		return "is longer than 255 bytes"
	case !utf8.ValidString(name):
		return "is not valid UTF-8"
	}
	for _, r := range name {
		switch {
		case r == 0:
			return "holds a NUL"
		case r < 0x20 || r == 0x7f:
			return "holds a control character"
		case strings.ContainsRune(`/\`, r):
			return "holds a path separator"
		case strings.ContainsRune(`<>:"|?*`, r):
			return "holds one of < > : \" | ? *, which Windows does not allow"
		}
	}
	if last := name[len(name)-1]; last == '.' || last == ' ' {
		return "ends in a dot or a space, which Windows would drop"
	}
	if ReservedName(name) {
		return "is a device name that Windows reserves"
	}
	return ""
}

// ReservedName reports whether Windows treats name as a device, with any extension: CON, con.txt,
// COM1, "nul .log".
func ReservedName(name string) bool {
	base, _, _ := strings.Cut(name, ".")
	base = strings.ToUpper(strings.TrimRight(base, " "))
	switch base {
	case "CON", "PRN", "AUX", "NUL", "CLOCK$", "CONIN$", "CONOUT$":
		return true
	}
	// COM1 to COM9 and LPT1 to LPT9; Windows counts 0 and the superscripts ¹ ² ³ as digits here.
	for _, prefix := range []string{"COM", "LPT"} {
		digit, ok := strings.CutPrefix(base, prefix)
		if !ok {
			continue
		}
		switch digit {
		case "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "¹", "²", "³":
			return true
		}
	}
	return false
}
