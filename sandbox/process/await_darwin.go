package process

import (
	"errors"

	"golang.org/x/sys/unix"
)

// awaitExit waits until a child has ended and leaves it to be reaped. waitid would do for that, but here it also returns when a process
// is stopped.
func awaitExit(pid int) {
	kq, err := unix.Kqueue()
	if err != nil {
		return // then the command is waited for while it is reaped, and its group is killed after that
	}
	defer unix.Close(kq)
	change := []unix.Kevent_t{{Ident: uint64(pid), Filter: unix.EVFILT_PROC, Flags: unix.EV_ADD | unix.EV_ONESHOT, Fflags: unix.NOTE_EXIT}}
	events := make([]unix.Kevent_t, 1)
	for {
		if _, err := unix.Kevent(kq, change, events, nil); !errors.Is(err, unix.EINTR) {
			return // it has ended, now or before
		}
	}
}
