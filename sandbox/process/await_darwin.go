package process

import (
	"errors"

	"golang.org/x/sys/unix"
)

// awaitExit waits until a child has exited, without reaping it. waitid does not serve: here it also
// returns for a stopped process.
func awaitExit(pid int) {
	kq, err := unix.Kqueue()
	if err != nil {
		return // the command is reaped first then, and its group killed afterwards
	}
	defer unix.Close(kq)
	change := []unix.Kevent_t{{Ident: uint64(pid), Filter: unix.EVFILT_PROC, Flags: unix.EV_ADD | unix.EV_ONESHOT, Fflags: unix.NOTE_EXIT}}
	events := make([]unix.Kevent_t, 1)
	for {
		if _, err := unix.Kevent(kq, change, events, nil); !errors.Is(err, unix.EINTR) {
			return // exited, now or before
		}
	}
}
