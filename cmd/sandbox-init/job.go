//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"secbox/engine/initproto"
)

// Why init killed the job; the first cause stands.
const (
	causeNone int32 = iota
	causeTimeout
	causeKilled
)

// job is the running command and all it started.
type job struct {
	main     int // pid
	cause    atomic.Int32
	deadline *time.Timer
	stdin    *stdin
	output   sync.WaitGroup
	stdout   stream
	stderr   stream
}

// stream is one output of the job on its way to core-api.
type stream struct {
	frame initproto.Type
	limit int64 // bytes to pass on
	total int64 // bytes written by the job; read after the stream has ended
}

// start runs the command with three pipes. An error means that nothing of the job runs.
func start(spec initproto.Job, l *link) (*job, error) {
	argv0, err := exec.LookPath(spec.Argv[0]) // in the image's PATH, which is ours: the job's PATH is the caller's
	if err != nil {
		return nil, fmt.Errorf("%s: %w", spec.Argv[0], errors.Unwrap(err))
	}
	if err := os.MkdirAll(spec.Cwd, 0o755); err != nil {
		return nil, fmt.Errorf("working directory: %w", err)
	}
	var pipes [3][2]int
	for i := range pipes {
		if err := unix.Pipe2(pipes[i][:], unix.O_CLOEXEC); err != nil {
			return nil, fmt.Errorf("pipe: %w", err)
		}
	}
	pid, err := syscall.ForkExec(argv0, spec.Argv, &syscall.ProcAttr{
		Dir:   spec.Cwd,
		Env:   environment(os.Environ(), spec.Env),
		Files: []uintptr{uintptr(pipes[0][0]), uintptr(pipes[1][1]), uintptr(pipes[2][1])},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	for _, theirs := range []int{pipes[0][0], pipes[1][1], pipes[2][1]} {
		_ = unix.Close(theirs)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", spec.Argv[0], err)
	}
	offerToOOMKiller(pid)

	j := &job{
		main:   pid,
		stdin:  newStdin(os.NewFile(uintptr(pipes[0][1]), "stdin"), l),
		stdout: stream{frame: initproto.TypeStdout, limit: spec.MaxStdout},
		stderr: stream{frame: initproto.TypeStderr, limit: spec.MaxStderr},
	}
	j.output.Go(func() { j.stdout.pass(os.NewFile(uintptr(pipes[1][0]), "stdout"), l) })
	j.output.Go(func() { j.stderr.pass(os.NewFile(uintptr(pipes[2][0]), "stderr"), l) })
	if spec.TimeoutMS > 0 {
		j.deadline = time.AfterFunc(time.Duration(spec.TimeoutMS)*time.Millisecond, func() { j.kill(causeTimeout) })
	}
	return j, nil
}

// startCode is what a shell would have exited with for this error.
func startCode(err error) int {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		return 127
	}
	return 126
}

// environment lays the job's variables over the image's; the last word on a name is the job's.
func environment(image, job []string) []string {
	named := make(map[string]bool, len(job))
	for _, kv := range job {
		name, _, _ := strings.Cut(kv, "=")
		named[name] = true
	}
	env := slices.DeleteFunc(slices.Clone(image), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return named[name]
	})
	return append(env, job...)
}

// kill ends every process of the container but init.
func (j *job) kill(cause int32) {
	j.cause.CompareAndSwap(causeNone, cause)
	killAll()
}

func killAll() { _ = unix.Kill(-1, unix.SIGKILL) }

// wait reaps until the main process has ended, kills what it left, reaps that too, and drains the outputs. When it returns, init is
// the only process of the container.
func (j *job) wait() initproto.Exit {
	var exit initproto.Exit
	var used usage
	for {
		var status unix.WaitStatus
		var rusage unix.Rusage
		pid, err := unix.Wait4(-1, &status, 0, &rusage)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil { // ECHILD: cannot be before the main process was seen
			break
		}
		used.add(&rusage)
		if pid == j.main {
			exit = j.verdict(status)
			break
		}
	}
	for {
		killAll()
		var rusage unix.Rusage
		_, err := unix.Wait4(-1, nil, 0, &rusage)
		if err == nil {
			used.add(&rusage)
		} else if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if j.deadline != nil {
		j.deadline.Stop()
	}
	j.stdin.abandon()
	j.output.Wait()
	exit.StdoutBytes, exit.StderrBytes = j.stdout.total, j.stderr.total
	exit.UserUS, exit.SystemUS, exit.MaxRSSKB = used.userUS, used.systemUS, used.maxRSSKB
	return exit
}

// usage sums up what the processes of a job took. Each that is reaped brings its own and that of the children which it reaped itself. What
// init ran before there was a job is not among them, as it would be in the kernel's own sum.
type usage struct{ userUS, systemUS, maxRSSKB int64 }

func (u *usage) add(r *unix.Rusage) {
	u.userUS += microseconds(r.Utime)
	u.systemUS += microseconds(r.Stime)
	u.maxRSSKB = max(u.maxRSSKB, r.Maxrss)
}

// verdict reads the main process's status. A kill counts as its cause only when the process really died of it: one that ended by itself
// in the same instant did end by itself.
func (j *job) verdict(status unix.WaitStatus) initproto.Exit {
	if status.Exited() {
		return initproto.Exit{Code: status.ExitStatus()}
	}
	exit := initproto.Exit{Code: 128 + int(status.Signal()), Signal: int(status.Signal())}
	if status.Signal() == unix.SIGKILL {
		cause := j.cause.Load()
		exit.TimedOut, exit.Killed = cause == causeTimeout, cause == causeKilled
	}
	return exit
}

func microseconds(t unix.Timeval) int64 { return t.Sec*1e6 + t.Usec }

// pass sends the stream's first bytes up to its limit and counts the rest, so that a job that prints without end neither stops nor
// costs anybody more than a read.
func (s *stream) pass(r *os.File, l *link) {
	defer r.Close()
	buf := make([]byte, initproto.MaxChunk)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if send := min(int64(n), s.limit-s.total); send > 0 {
				if l.send(s.frame, buf[:send]) != nil {
					_, _ = io.Copy(io.Discard, r)
					return
				}
			}
			s.total += int64(n)
		}
		if err != nil {
			return
		}
	}
}
