package tree

import "io/fs"

// OwnerOf is not known on Windows.
func OwnerOf(fs.FileInfo) (uid, gid int) { return 0, 0 }

// sameMode compares the kind only: the only permission here is read-only.
func sameMode(a, b fs.FileMode) bool {
	return a.IsDir() == b.IsDir() && a.Type() == b.Type() && b.Perm()&0o200 != 0
}
