// Package names shows paths that are not UTF-8 as text, and finds the files that such texts mean.
// It must not know where the files are.
package names

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Shown returns a path as text: in names that are not UTF-8, each byte that is not, and each %, is
// % and two digits: caf%E9.txt.
func Shown(path string) string {
	if utf8.ValidString(path) {
		return path
	}
	parts := strings.Split(path, "/")
	for i, name := range parts {
		parts[i] = escaped(name)
	}
	return strings.Join(parts, "/")
}

func escaped(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	var b strings.Builder
	for len(name) > 0 {
		r, n := utf8.DecodeRuneInString(name)
		if r == '%' || r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, "%%%02X", name[0])
		} else {
			b.WriteString(name[:n])
		}
		name = name[n:]
	}
	return b.String()
}

// Meant returns the path of the file that a path from Shown means. Each name stays as it is, unless
// there is no file of this name and one of a name that Shown shows so.
func Meant(path string, exists func(path string) bool) string {
	if !strings.Contains(path, "%") {
		return path
	}
	parts := strings.Split(path, "/")
	for i, part := range parts {
		raw := unescaped(part)
		if raw == part {
			continue
		}
		meant := slices.Clone(parts[:i+1])
		meant[i] = raw
		if !exists(strings.Join(parts[:i+1], "/")) && exists(strings.Join(meant, "/")) {
			parts[i] = raw
		}
	}
	return strings.Join(parts, "/")
}

// unescaped returns the name that Shown shows like this; the same name if there is none.
func unescaped(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if i+2 < len(name) && name[i] == '%' {
			const digits = "0123456789ABCDEF"
			high, low := strings.IndexByte(digits, name[i+1]), strings.IndexByte(digits, name[i+2])
			if high >= 0 && low >= 0 {
				b.WriteByte(byte(high<<4 | low))
				i += 2
				continue
			}
		}
		b.WriteByte(name[i])
	}
	if raw := b.String(); escaped(raw) == name {
		return raw
	}
	return name
}
