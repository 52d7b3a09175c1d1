//go:build linux

package main

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// workerProgram is the path of the workers' program: a copy of this program in memory that its user
// may execute and not read. The kernel makes a process of such a program undumpable from its start.
// Otherwise a worker would be dumpable after its execve until it changes that, and a command of the
// same user could access the worker's memory and its pipe to us in between, and report in the
// worker's name. Where the kernel has no such copies, or does not execute them, it is this program.
func workerProgram() (string, error) {
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	from, err := os.Open(program)
	if err != nil { // the program is unreadable already
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
	own := "/proc/self/fd/" + strconv.Itoa(unreadable) // open as long as this process lives
	if unix.Access(own, unix.X_OK) != nil {
		return program, nil
	}
	return own, nil
}
