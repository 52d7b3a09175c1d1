//go:build unix

package health

import (
	"errors"
	"math"

	"golang.org/x/sys/unix"
)

// freeSpace is the room for an ordinary user; inodes are math.MaxUint64 where the file system does not count them.
func freeSpace(dir string) (bytes, inodes uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	inodes = uint64(st.Ffree)
	if st.Files == 0 {
		inodes = math.MaxUint64
	}
	return uint64(st.Bavail) * uint64(st.Bsize), inodes, nil
}

func isNoSpace(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
