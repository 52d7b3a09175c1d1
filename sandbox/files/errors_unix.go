//go:build unix

package files

import (
	"errors"

	"golang.org/x/sys/unix"
)

// openSafely keeps an open from waiting, at a FIFO, and from making a terminal ours.
const openSafely = unix.O_NONBLOCK | unix.O_NOCTTY

func isNoSpace(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// isIrregular: a directory, a socket, a device without a driver, a FIFO that nobody reads.
func isIrregular(err error) bool { return errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENXIO) }

func isNotDir(err error) bool { return errors.Is(err, unix.ENOTDIR) }

func isReadOnly(err error) bool { return errors.Is(err, unix.EROFS) || errors.Is(err, unix.EBUSY) }

// isNoPath: too long, or links that lead in circles.
func isNoPath(err error) bool {
	return errors.Is(err, unix.ENAMETOOLONG) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EILSEQ) || errors.Is(err, unix.EINVAL)
}
