//go:build unix

package tree

import (
	"io/fs"
	"os"
	"syscall"
)

// OwnerOf returns the user and group of a file.
func OwnerOf(fi fs.FileInfo) (uid, gid int) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return os.Geteuid(), os.Getegid()
	}
	return int(st.Uid), int(st.Gid)
}

// sameMode compares kind and permissions.
func sameMode(a, b fs.FileMode) bool { return a == b }
