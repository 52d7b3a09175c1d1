//go:build unix

package transfer

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openSafely keeps an open from blocking on a FIFO and from following a link.
const openSafely = unix.O_NONBLOCK | unix.O_NOFOLLOW

// rename renames from one directory to another by their handles.
func rename(from *os.Root, old string, to *os.Root, name string) error {
	oldDir, err := from.Open(".")
	if err != nil {
		return err
	}
	defer oldDir.Close()
	newDir, err := to.Open(".")
	if err != nil {
		return err
	}
	defer newDir.Close()
	return os.NewSyscallError("renameat", unix.Renameat(int(oldDir.Fd()), old, int(newDir.Fd()), name))
}

// isNoName reports whether the file system cannot have such a name.
func isNoName(err error) bool {
	return errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.EILSEQ)
}

// nextData returns where the next data of a file are, at or after an offset, and false if there is
// only a hole.
func nextData(f *os.File, at int64) (int64, bool) {
	next, err := unix.Seek(int(f.Fd()), at, seekData)
	if errors.Is(err, unix.ENXIO) {
		return at, false
	}
	if err != nil || next < at { // the file system does not know
		return at, true
	}
	return next, true
}

func changeOf(fi fs.FileInfo) (ns int64, inode uint64) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}
	return changeTime(st), uint64(st.Ino)
}
