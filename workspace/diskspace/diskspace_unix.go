//go:build unix

package diskspace

import (
	"errors"
	"math"

	"golang.org/x/sys/unix"
)

// Free returns the space that an ordinary user may still take on the file system of a path. Inodes
// are math.MaxUint64 where that does not count them.
func Free(path string) (Space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Space{}, err
	}
	free := Space{Bytes: uint64(st.Bavail) * uint64(st.Bsize), Inodes: uint64(st.Ffree)}
	if st.Files == 0 { // btrfs and most network file systems have no fixed number
		free.Inodes = math.MaxUint64
	}
	return free, nil
}

// IsFull reports whether an error says that a disk has no room, in bytes, inodes or quota.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
