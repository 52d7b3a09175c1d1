package process

import (
	"errors"

	"golang.org/x/sys/unix"
)

// awaitExit waits until a child has exited, without reaping it.
func awaitExit(pid int) {
	for {
		var info unix.Siginfo
		if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func killDescendants(int) {}
