//go:build unix

package migrations

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock takes the lock if nobody has it. Closing the file gives it back.
func tryLock(f *os.File) (bool, error) {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		default:
			return false, err
		}
	}
}
