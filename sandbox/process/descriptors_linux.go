package process

import (
	"math"

	"golang.org/x/sys/unix"
)

// closeOnExec keeps from commands what this program was given by whoever started it.
func closeOnExec() {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) != nil { // a kernel before 5.11
		closeListedOnExec("/proc/self/fd")
	}
}
