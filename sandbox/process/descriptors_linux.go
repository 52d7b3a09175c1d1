package process

import (
	"math"

	"golang.org/x/sys/unix"
)

// closeOnExec keeps inherited file descriptors from commands.
func closeOnExec() {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) != nil { // kernels before 5.11
		closeListedOnExec("/proc/self/fd")
	}
}
