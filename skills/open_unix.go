//go:build unix

package skills

import "golang.org/x/sys/unix"

// openSafely keeps an open from blocking at a FIFO and from following a link.
const openSafely = unix.O_NONBLOCK | unix.O_NOFOLLOW
