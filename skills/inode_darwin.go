package skills

import (
	"io/fs"
	"syscall"
)

// inode returns the inode number and the change time, which detect a replaced file and a modification time that was set back.
func inode(fi fs.FileInfo) (number uint64, changedNS int64) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}
	return st.Ino, st.Ctimespec.Nano()
}
