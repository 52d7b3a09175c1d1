//go:build unix

package files

import (
	"errors"

	"golang.org/x/sys/unix"
)

// openSafely keeps an open from blocking at a FIFO, and from making a terminal the controlling one.
const openSafely = unix.O_NONBLOCK | unix.O_NOCTTY

// isIrregular reports errors of a directory, a socket, a device without a driver, or a FIFO without
// a reader.
func isIrregular(err error) bool { return errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENXIO) }

func isNotDir(err error) bool { return errors.Is(err, unix.ENOTDIR) }

func isReadOnly(err error) bool { return errors.Is(err, unix.EROFS) || errors.Is(err, unix.EBUSY) }

// isNoPath reports paths that are too long or have a loop of links.
func isNoPath(err error) bool {
	return errors.Is(err, unix.ENAMETOOLONG) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EILSEQ) || errors.Is(err, unix.EINVAL)
}
