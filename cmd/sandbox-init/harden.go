//go:build linux

package main

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// harden protects init from the job, which runs with the same uid.
func harden() error {
	// Without this the job could open /proc/1/fd/1 and forge frames, or ptrace us.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot become undumpable: %w", err)
	}
	// Jobs inherit this: they write no core files either.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	ignoreSignals()
	return nil
}

// ignoreSignals gives every signal its default disposition. For PID 1 that is stronger than
// ignoring: the kernel discards such signals when a process of the container sends them, with any
// si_code (the Go runtime's handlers would crash on a SIGSEGV queued with sigqueue), and children
// inherit nothing. This includes Go's preemption signal, which makes the scheduler cooperative.
func ignoreSignals() {
	var byDefault [4]uint64 // struct sigaction of the kernel: handler, flags, restorer, mask; all zero is SIG_DFL
	for sig := 1; sig <= 64; sig++ {
		if sig == int(syscall.SIGKILL) || sig == int(syscall.SIGSTOP) {
			continue
		}
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	}
}
