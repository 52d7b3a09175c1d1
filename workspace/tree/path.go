package tree

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"secbox/pathadapter"
)

// Bounds of a path. 4096 is Linux's PATH_MAX.
const (
	maxPathBytes = 4096
	maxShown     = 512 // bytes of a path in a message
)

// CleanPath returns the path below a directory that s means, with slashes. The error completes a
// sentence that begins with the field's name; top is the directory's name in it. Empty and "."
// components are dropped. Refused are absolute paths, "..", backslashes, colons and other
// characters that Windows cannot have, control characters, reserved names, components that end in a
// dot or a space, invalid UTF-8, more than 4096 bytes, components of more than 255, and more than
// 64 components.
func CleanPath(s, top string) (string, error) {
	switch {
	case s == "":
		return "", errors.New("is empty")
	case len(s) > maxPathBytes:
		return "", fmt.Errorf("is longer than %d bytes", maxPathBytes)
	case !utf8.ValidString(s):
		return "", errors.New("is not valid UTF-8")
	case s[0] == '/':
		return "", fmt.Errorf("is absolute: give a path relative to %s", top)
	case strings.Contains(s, `\`):
		return "", errors.New("holds a backslash: separate directories with /")
	case strings.Contains(s, ":"):
		return "", errors.New("holds a colon, which Windows takes for a drive or a stream; use another character")
	}
	var parts []string
	for name := range strings.SplitSeq(s, "/") {
		if name == "" || name == "." {
			continue
		}
		if name == ".." {
			return "", fmt.Errorf(`holds "..": give a path below %s`, top)
		}
		if reason := pathadapter.NameFault(name); reason != "" {
			return "", fmt.Errorf("the name %q %s", name, reason)
		}
		parts = append(parts, name)
	}
	switch {
	case len(parts) == 0:
		return "", fmt.Errorf("names %s itself: give a file below it", top)
	case len(parts) > MaxDepth:
		return "", fmt.Errorf("is more than %d directories deep", MaxDepth)
	}
	return strings.Join(parts, "/"), nil
}

// SplitPath splits a path into the directory, "." for the top, and the name in it.
func SplitPath(path string) (dir, name string) {
	if at := strings.LastIndexByte(path, '/'); at >= 0 {
		return path[:at], path[at+1:]
	}
	return ".", path
}

// Parents returns the directories above a path, outermost first.
func Parents(file string) (above []string) {
	for i, c := range file {
		if c == '/' {
			above = append(above, file[:i])
		}
	}
	return above
}

// CutName shortens a name for a message.
func CutName(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// IsDigest reports whether s is a SHA-256 in lower-case hexadecimal.
func IsDigest(s string) bool {
	raw, err := hex.DecodeString(s)
	return err == nil && len(raw) == sha256.Size && hex.EncodeToString(raw) == s
}
