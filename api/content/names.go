package content

import (
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// Attachment returns a Content-Disposition that saves under name (RFC 6266), with an ASCII fallback
// for old clients. A job may have chosen name: separators and control characters are replaced.
func Attachment(name string) string {
	var plain, safe strings.Builder
	for _, r := range strings.ToValidUTF8(name, "_") {
		switch {
		case r < ' ' || r == 0x7f || strings.ContainsRune(`/\:*?"<>|`, r):
			r = '_'
		case r >= 0x80 && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x200e, r == 0x200f:
			r = '_' // C1 controls and marks that change the direction of text
		}
		safe.WriteRune(r)
		if r > '~' || r == '%' || r == ';' {
			r = '_'
		}
		plain.WriteRune(r)
	}
	trim := func(s string) string {
		if s = strings.TrimLeft(s, "."); strings.Trim(s, "_ .") == "" {
			return "artifact"
		}
		return s
	}
	return `attachment; filename="` + trim(plain.String()) + `"; filename*=UTF-8''` +
		strings.ReplaceAll(url.QueryEscape(trim(safe.String())), "+", "%20")
}

// ZipName returns a name for an archive's entry that every unpacker keeps inside its directory:
// relative, valid UTF-8, without "." and "..", and without separators, drives and devices of other
// systems. Unsafe bytes are percent-encoded, and so is "%": different paths have different names.
func ZipName(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		var b strings.Builder
		for j, r := range part {
			size := max(1, utf8.RuneLen(r))
			if r == utf8.RuneError {
				_, size = utf8.DecodeRuneInString(part[j:])
			}
			unsafe := r < ' ' || r == 0x7f || strings.ContainsRune(`\:*?"<>|%`, r) || r == utf8.RuneError && size == 1 ||
				(r == '.' || r == ' ') && j+1 == len(part) // Windows drops a trailing dot or blank; this covers "." and ".."
			for k := range size {
				if unsafe {
					fmt.Fprintf(&b, "%%%02X", part[j+k])
				} else {
					b.WriteByte(part[j+k])
				}
			}
		}
		if parts[i] = b.String(); part == "" {
			parts[i] = "%" // an empty part: "%" alone encodes nothing else
		}
	}
	return strings.Join(parts, "/")
}
