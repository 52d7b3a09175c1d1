package sandbox

import (
	"io/fs"
	"path"
	"strings"

	"secbox/pathadapter"
)

// Bounds of a path and of one name in it, in bytes: what Linux takes.
const (
	MaxPathBytes = 4095
	MaxNameBytes = 255
)

// Clean says where below root a path leads, with slashes; "." is root itself. root is Root, or a read-only root. It looks at the text only:
// links are for whoever opens it.
//
// A path that is relative, empty, too long or holds a NUL is fs.ErrInvalid. One outside root, or with a component "..", wherever it would
// lead, is fs.ErrPermission.
func Clean(op, name, root string) (string, error) {
	switch {
	case name == "" || strings.IndexByte(name, 0) >= 0 || len(name) > MaxPathBytes || !strings.HasPrefix(name, "/"):
		return "", Invalid(op, name)
	case strings.Contains(name, "/../") || strings.HasSuffix(name, "/.."):
		return "", Refused(op, name)
	}
	clean := path.Clean(name)
	for part := range strings.SplitSeq(clean, "/") {
		if len(part) > MaxNameBytes {
			return "", Invalid(op, name)
		}
	}
	if clean == root {
		return ".", nil
	}
	below, ok := strings.CutPrefix(clean, root+"/")
	if !ok {
		return "", Refused(op, name)
	}
	return below, nil
}

// CleanWindows is Clean for a machine on which names like CON, a:b or "x." mean something else than themselves: those are fs.ErrInvalid.
func CleanWindows(op, name, root string) (string, error) {
	below, err := Clean(op, name, root)
	if err != nil || below == "." {
		return below, err
	}
	for part := range strings.SplitSeq(below, "/") {
		if pathadapter.NameFault(part) != "" {
			return "", Invalid(op, name)
		}
	}
	return below, nil
}

// Invalid is the error of a path that is none, or of something that cannot be done to what lies there.
func Invalid(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid} }

// Refused is the error of a path that leads, or would change something, where it must not.
func Refused(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: fs.ErrPermission} }
