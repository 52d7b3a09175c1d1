//go:build unix

package tree

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// OpenSafely keeps an open from blocking on a FIFO and from following a link.
const OpenSafely = unix.O_NONBLOCK | unix.O_NOFOLLOW

// FileID identifies a file that may have several names.
type FileID struct{ dev, ino uint64 }

// OnDisk returns the bytes that a file takes on the disk and, when it has more than one name, its
// identity.
func OnDisk(fi fs.FileInfo) (bytes int64, id FileID, linked bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return fi.Size(), FileID{}, false
	}
	return int64(st.Blocks) * 512, FileID{dev: uint64(st.Dev), ino: uint64(st.Ino)}, st.Nlink > 1 && !fi.IsDir()
}

// BelongsTo reports whether a user owns the file; true if that is not known.
func BelongsTo(fi fs.FileInfo, uid int) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return !ok || int(st.Uid) == uid
}

// RenameInto renames from one directory to another by their handles, so that no path can be
// exchanged meanwhile.
func RenameInto(from *os.Root, old string, to *os.Root, name string) error {
	return betweenHandles(from, to, old, name, func(oldDir, newDir int) error { return unix.Renameat(oldDir, old, newDir, name) })
}

func betweenHandles(from, to *os.Root, old, name string, rename func(oldDir, newDir int) error) error {
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
	if err := rename(int(oldDir.Fd()), int(newDir.Fd())); err != nil {
		return &os.LinkError{Op: "rename", Old: old, New: name, Err: err}
	}
	return nil
}

// changedNS returns the time of the last inode change, which no user can set, and the inode number.
func changedNS(fi fs.FileInfo) (ns int64, inode uint64) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}
	return changeTime(st), uint64(st.Ino)
}

// otherDevice reports whether the entry name of dir is on another device.
func otherDevice(dir *os.Root, name string) (bool, error) {
	var device [2]uint64
	for i, path := range []string{".", name} {
		fi, err := dir.Lstat(path)
		if err != nil {
			return false, err
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			device[i] = uint64(st.Dev)
		}
	}
	return device[0] != device[1], nil
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir *os.Root) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

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
