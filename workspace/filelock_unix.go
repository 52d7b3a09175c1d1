//go:build unix

package workspace

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock takes a lock that ends with the process, or says errHeld. Who has one already changes its kind.
func tryLock(f *os.File, exclusive bool) error {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return errHeld
		}
		return os.NewSyscallError("flock", err)
	}
}

func freeFile(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }
