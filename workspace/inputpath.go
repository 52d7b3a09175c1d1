package workspace

import (
	"errors"
	"strings"

	"secbox/pathadapter"
	"secbox/tree"
)

// ownInputs is the directory in inputs/ that skills are put into: ours, so no request may name it.
const ownInputs = ".skill"

// CleanInputPath gives the path below inputs/ that s means, with slashes, or an error whose text says what is wrong with it, as a
// reason that follows the field's name. Empty and "." components are dropped first. Refused: absolute paths, any "..", a backslash,
// a colon and the other characters that Windows cannot have, control characters (newline included), reserved names, components that
// end in a dot or a space, invalid UTF-8, more than 4096 bytes, a component of more than 255, more than 64 components, and .skill.
func CleanInputPath(s string) (string, error) {
	clean, err := tree.CleanPath(s, "inputs/")
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(clean, "/")
	if pathadapter.FoldName(first) == ownInputs {
		return "", errors.New(".skill is reserved")
	}
	return clean, nil
}
