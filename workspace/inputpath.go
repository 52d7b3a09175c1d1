package workspace

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"secbox/pathadapter"
)

// What an input's path may be at most. 4096 is Linux's PATH_MAX; the depth is what Collect walks, so that what can be put in can
// also come out.
const (
	maxInputPathBytes = 4096
	maxInputDepth     = maxDepth
)

// ownInputs is the directory in inputs/ that skills are put into: ours, so no request may name it.
const ownInputs = ".skill"

// CleanInputPath gives the path below inputs/ that s means, with slashes, or an error whose text says what is wrong with it, as a
// reason that follows the field's name. Empty and "." components are dropped first. Refused: absolute paths, any "..", a backslash,
// a colon and the other characters that Windows cannot have, control characters (newline included), reserved names, components that
// end in a dot or a space, invalid UTF-8, more than 4096 bytes, a component of more than 255, more than 64 components, and .skill.
func CleanInputPath(s string) (string, error) {
	clean, err := CleanPath(s, "inputs/")
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(clean, "/")
	if pathadapter.FoldName(first) == ownInputs {
		return "", errors.New(".skill is reserved")
	}
	return clean, nil
}

// CleanPath does the same for a path below another directory, which messages call top; .skill is a name like any other there.
func CleanPath(s, top string) (string, error) {
	switch {
	case s == "":
		return "", errors.New("is empty")
	case len(s) > maxInputPathBytes:
		return "", fmt.Errorf("is longer than %d bytes", maxInputPathBytes)
	case !utf8.ValidString(s):
		return "", errors.New("is not valid UTF-8")
	case s[0] == '/':
		return "", fmt.Errorf("is absolute: give a path relative to %s", top)
	case strings.Contains(s, `\`):
		return "", errors.New("holds a backslash: separate directories with /")
	case strings.Contains(s, ":"):
		return "", errors.New("holds a colon, which Windows takes for a drive or a stream")
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
	case len(parts) > maxInputDepth:
		return "", fmt.Errorf("is more than %d directories deep", maxInputDepth)
	}
	return strings.Join(parts, "/"), nil
}
