package sandbox

import (
	"io/fs"
	"path"
	"strings"

	"secbox/pathadapter"
)

// Bounds of a path and of one name in it, in bytes, as on Linux.
const (
	MaxPathBytes = 4095
	MaxNameBytes = 255
)

// Clean returns a path relative to root, with slashes; "." is root itself. root is Root, or a
// read-only root. Clean only reads the text: links are resolved when the path is opened.
//
// A path that is relative, empty, too long or contains a NUL is fs.ErrInvalid. One outside root, or
// with a component "..", is fs.ErrPermission.
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

// CleanWindows is Clean for Windows, where names like CON, a:b or "x." have another meaning: they
// are fs.ErrInvalid.
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

// Invalid returns the error for a path that is not valid, or for a file of the wrong kind.
func Invalid(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid} }

// Refused returns the error for a path that must not be reached or changed.
func Refused(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: fs.ErrPermission} }
