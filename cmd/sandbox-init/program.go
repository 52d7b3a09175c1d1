//go:build linux

package main

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// workerProgram is what workers are started from: this program, in a copy in memory that its user may run and not read. The kernel makes a
// process of such a program undumpable as it starts. Any other is dumpable after its execve until it says otherwise, and a command of the same
// user that waits for that moment would have the worker's memory and its line to us: it could report in the worker's name, and live on in it.
// Where the kernel has no such copies, or lets none be run, the program itself has to do.
func workerProgram() (string, error) {
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	from, err := os.Open(program)
	if err != nil { // it is no more to be read than a copy would be
		return program, nil
	}
	defer from.Close()
	unreadable, err := unix.MemfdCreate("sandbox-init", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if err != nil { // before Linux 6.3
		unreadable, err = unix.MemfdCreate("sandbox-init", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return program, nil
	}
	for {
		if n, err := unix.Sendfile(unreadable, int(from.Fd()), nil, 1<<30); err != nil {
			return "", err
		} else if n == 0 {
			break
		}
	}
	if err := unix.Fchmod(unreadable, 0o111); err != nil {
		return "", err
	}
	own := "/proc/self/fd/" + strconv.Itoa(unreadable) // open for as long as this process lives
	if unix.Access(own, unix.X_OK) != nil {
		return program, nil
	}
	return own, nil
}
