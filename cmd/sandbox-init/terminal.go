//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"secbox/engine/initproto"
	"secbox/engine/worker"
)

// runTerminal runs a command in a pseudo-terminal of its own and ends as the command does. Its
// caller is a job's worker, which kills what the command leaves.
func runTerminal(size string, argv []string) int {
	worker.PrepareThreads(terminalProcessors, terminalThreads)
	hangUp := make(chan os.Signal, 1)
	signal.Notify(hangUp, unix.SIGTERM, unix.SIGHUP)
	wanted, ok := initproto.ParseTerminalSize(size)
	if !ok {
		return refuseTerminal(fmt.Errorf("%q is no size of a terminal", size), exitProtocol)
	}
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return refuseTerminal(err, 127)
	}
	terminal, theirs, err := openTerminal()
	if err != nil {
		return refuseTerminal(fmt.Errorf("cannot open a pseudo-terminal: %w", err), 126)
	}
	resize(terminal, wanted)
	end := theirs.Fd()
	pid, err := syscall.ForkExec(program, argv, &syscall.ProcAttr{
		Env: withTerm(os.Environ()), Files: []uintptr{end, end, end}, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: true},
	})
	_ = theirs.Close()
	if err != nil {
		return refuseTerminal(fmt.Errorf("%s: %w", argv[0], err), 126)
	}
	go typeFrames(terminal, pid, os.Stdin)
	go func() {
		for range hangUp {
			// A shell for people ignores SIGTERM, and ends when its terminal is gone.
			for _, s := range []syscall.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGCONT} {
				signalForeground(terminal, pid, s)
				_ = unix.Kill(-pid, s)
			}
		}
	}()
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		_, _ = io.Copy(os.Stdout, onlyReader{terminal})
	}()
	status := awaitCommand(pid)
	// Processes that the command has left may keep the terminal open. What was written until now
	// can be read at once.
	_ = terminal.SetReadDeadline(time.Unix(1, 0))
	<-shown
	showRest(terminal)
	if status.Signaled() {
		ignoreSignals() // of the Go runtime, which would report some of them
		_ = unix.Kill(os.Getpid(), status.Signal())
		time.Sleep(time.Second) // another thread may take it
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// They count against the pids of the job's container: one thread waits for the command.
const (
	terminalProcessors = 1
	terminalThreads    = 3
)

// refuseTerminal tells the terminal's users why there is none.
func refuseTerminal(err error, code int) int {
	fmt.Printf("sandbox-init: %s\r\n", err)
	return code
}

// onlyReader hides other methods of a file: io.Copy would try to splice.
type onlyReader struct{ io.Reader }

// openTerminal opens a pseudo-terminal: our end, which does not block, and the command's.
func openTerminal() (ours, theirs *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("/dev/ptmx: %w", err)
	}
	ours = os.NewFile(uintptr(fd), "terminal")
	err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	var n int
	if err == nil {
		n, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
	}
	if err == nil {
		theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		_ = ours.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// withTerm names the kind of terminal that programs may expect, unless the job or the image does.
func withTerm(env []string) []string {
	for _, kv := range env {
		if strings.HasPrefix(kv, "TERM=") {
			return env
		}
	}
	return append(env, "TERM="+initproto.Term)
}

// typeFrames passes on what is typed, until standard input ends or violates the protocol.
func typeFrames(terminal *os.File, pid int, in io.Reader) {
	frames := initproto.NewReader(bufio.NewReader(in), initproto.ToTerminal)
	for {
		t, payload, err := frames.Next()
		if err != nil {
			return
		}
		switch t {
		case initproto.TypeStdin:
			if _, err := terminal.Write(payload); err != nil {
				return
			}
		case initproto.TypeResize:
			if size, err := initproto.DecodeResize(payload); err == nil {
				resize(terminal, size)
			}
		case initproto.TypeSignal:
			if s, err := initproto.DecodeSignal(payload); err == nil {
				signalForeground(terminal, pid, s)
			}
		}
	}
}

// control calls f with the descriptor, which stays non-blocking.
func control(terminal *os.File, f func(fd int)) {
	if raw, err := terminal.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}

func resize(terminal *os.File, size initproto.TerminalSize) {
	control(terminal, func(fd int) {
		_ = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(size.Cols), Row: uint16(size.Rows)})
	})
}

// signalForeground sends a signal to the process group that the terminal's keys act on; to the
// command's if there is none.
func signalForeground(terminal *os.File, pid int, s syscall.Signal) {
	control(terminal, func(fd int) {
		if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err == nil && group > 0 {
			pid = group
		}
	})
	_ = unix.Kill(-pid, s)
}

func awaitCommand(pid int) (status unix.WaitStatus) {
	for {
		if _, err := unix.Wait4(pid, &status, 0, nil); !errors.Is(err, unix.EINTR) {
			return status
		}
	}
}

// showRest passes on what can be read at once.
func showRest(terminal *os.File) {
	control(terminal, func(fd int) {
		buf := make([]byte, 4<<10)
		for left := maxRest; left > 0; {
			n, err := unix.Read(fd, buf)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || n == 0 {
				return
			}
			_, _ = os.Stdout.Write(buf[:n])
			left -= n
		}
	})
}

// maxRest is far more than the kernel keeps of a terminal, in bytes: a process that the command has
// left may write on and on.
const maxRest = 256 << 10
