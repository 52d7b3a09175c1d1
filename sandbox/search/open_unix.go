//go:build unix

package search

import "syscall"

// openSafely keeps the open of a FIFO, which may have taken a file's place, from waiting.
const openSafely = syscall.O_NONBLOCK
