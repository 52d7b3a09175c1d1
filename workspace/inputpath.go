package workspace

import (
	"errors"
	"strings"

	"secbox/pathadapter"
	"secbox/workspace/tree"
)

// ownInputs is the directory in inputs/ for skills. Requests may not name it.
const ownInputs = ".skill"

// CleanInputPath is tree.CleanPath for a path below inputs/, where .skill is reserved.
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
