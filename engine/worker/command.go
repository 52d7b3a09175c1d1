//go:build linux

package worker

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"secbox/engine/initproto"
)

// Why a command was killed; the first cause stands.
const (
	causeNone int32 = iota
	causeTimeout
	causeKilled
)

// Sender takes frames, whole and one at a time.
type Sender interface {
	Send(t initproto.Type, payload []byte) error
}

// Options say where commands run.
type Options struct {
	// Alone is for the first process of a container that has one job: every process but itself is the job's, and is killed as such.
	Alone bool
	// OfferToOOM makes the kernel prefer the command's processes when memory is used up, so that whoever reports about them lives on.
	OfferToOOM bool
	// Hardened keeps commands of the same user out of this process's memory and descriptors: Serve makes it undumpable.
	Hardened bool
}

// Command is a running command and all it started.
type Command struct {
	o        Options
	main     int // pid
	mu       sync.Mutex
	pidfd    int  // of main; -1 where the kernel has none
	reaped   bool // main is
	cause    atomic.Int32
	deadline *time.Timer
	stdin    *stdin
	output   sync.WaitGroup
	stdout   stream
	stderr   stream
	dead     chan struct{} // see Dead
}

// Start runs the command with three pipes. An error means that nothing of the job runs; Refusal turns it into a report.
func Start(spec initproto.Job, out Sender, o Options) (*Command, error) {
	env := environment(os.Environ(), spec.Env, spec.PathTail)
	argv0, err := lookUp(spec, env)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", named(spec.Argv[0]), err)
	}
	if spec.CwdMustExist {
		if fi, err := os.Stat(spec.Cwd); err != nil || !fi.IsDir() {
			return nil, errNoDir
		}
	} else if err := os.MkdirAll(spec.Cwd, 0o755); err != nil {
		return nil, fmt.Errorf("working directory: %w", err)
	}
	pipes, err := openPipes()
	if err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	pidfd := -1
	attr := &syscall.ProcAttr{
		Dir: spec.Cwd, Env: env, Files: []uintptr{uintptr(pipes[0][0]), uintptr(pipes[1][1]), uintptr(pipes[2][1])},
		Sys: &syscall.SysProcAttr{Setsid: true},
	}
	if !o.Alone {
		attr.Sys.PidFD = &pidfd
	}
	pid, err := forkExec(argv0, spec.Argv, attr, !o.Alone)
	for _, theirs := range []int{pipes[0][0], pipes[1][1], pipes[2][1]} {
		_ = unix.Close(theirs)
	}
	if err != nil {
		for _, ours := range []int{pipes[0][1], pipes[1][0], pipes[2][0]} {
			_ = unix.Close(ours)
		}
		return nil, fmt.Errorf("%s: %w", named(spec.Argv[0]), err)
	}
	if o.OfferToOOM {
		OfferToOOMKiller(pid)
	}
	c := &Command{
		o: o, main: pid, pidfd: pidfd, dead: make(chan struct{}),
		stdin:  newStdin(ourEnd(pipes[0][1], "stdin"), out),
		stdout: stream{frame: initproto.TypeStdout, limit: spec.MaxStdout, pipe: ourEnd(pipes[1][0], "stdout")},
		stderr: stream{frame: initproto.TypeStderr, limit: spec.MaxStderr, pipe: ourEnd(pipes[2][0], "stderr")},
	}
	c.output.Go(func() { c.stdout.pass(out) })
	c.output.Go(func() { c.stderr.pass(out) })
	if spec.TimeoutMS > 0 {
		c.deadline = time.AfterFunc(time.Duration(spec.TimeoutMS)*time.Millisecond, func() { c.kill(causeTimeout) })
	}
	return c, nil
}

// openPipes makes three; all are closed when there is an error.
func openPipes() (pipes [3][2]int, err error) {
	for i := range pipes {
		if err = unix.Pipe2(pipes[i][:], unix.O_CLOEXEC); err != nil {
			for _, p := range pipes[:i] {
				_ = unix.Close(p[0])
				_ = unix.Close(p[1])
			}
			return pipes, err
		}
	}
	return pipes, nil
}

// ourEnd is the end of a pipe that the poller waits at, so that it costs no thread.
func ourEnd(fd int, name string) *os.File {
	_ = unix.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), name)
}

// forkPatience is for how long a command is tried to be started where the kernel allows no more processes: others may end.
const forkPatience = 2 * time.Second

func forkExec(argv0 string, argv []string, attr *syscall.ProcAttr, patient bool) (int, error) {
	for begun, pause := time.Now(), time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		pid, err := syscall.ForkExec(argv0, argv, attr)
		if !patient || !errors.Is(err, unix.EAGAIN) || time.Since(begun) > forkPatience {
			return pid, err
		}
		time.Sleep(pause)
	}
}

var errNoDir = errors.New("the working directory is not there")

// named is a program's name for a message: whoever asks for one may have written anything, and a report has its bounds.
func named(program string) string {
	const most = 1 << 10
	if len(program) <= most {
		return program
	}
	return strings.ToValidUTF8(program[:most], "") + "…"
}

// Refusal is the report of a command that Start could not start, with the code that a shell would have exited with.
func Refusal(err error) initproto.Exit {
	exit := initproto.Exit{
		Code: 126, StartError: err.Error(), NoDir: errors.Is(err, errNoDir), NoRoom: errors.Is(err, unix.EAGAIN),
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		exit.Code = 127
	}
	return exit
}

// Push gives the command a chunk of its standard input; false when that was more than there was credit for, or came after the end.
func (c *Command) Push(chunk []byte) bool { return c.stdin.push(chunk) }

// EndStdin closes its standard input once what was pushed is written. Push and EndStdin are called by one goroutine.
func (c *Command) EndStdin() { c.stdin.end() }

// AbandonStdin closes it now.
func (c *Command) AbandonStdin() { c.stdin.abandon() }

// Kill ends the command and all it started. It returns at once; Wait does when all of them are dead.
func (c *Command) Kill() { c.kill(causeKilled) }

func (c *Command) kill(cause int32) {
	c.cause.CompareAndSwap(causeNone, cause)
	if c.o.Alone {
		KillAll()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.reaped: // Wait sees to the rest
	case c.pidfd >= 0:
		_ = unix.PidfdSendSignal(c.pidfd, unix.SIGKILL, nil, 0)
	default:
		_ = unix.Kill(c.main, unix.SIGKILL)
	}
}

// mainReaped keeps kill away from a process id that may be another's by now.
func (c *Command) mainReaped() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reaped = true
	if c.pidfd >= 0 {
		_ = unix.Close(c.pidfd)
	}
}

// Dead is closed when no process of the command is alive that this one may kill. Its output may still be under way.
func (c *Command) Dead() <-chan struct{} { return c.dead }

// Wait reaps until the main process has ended, kills what it left, reaps that too, and drains the outputs. When it returns, this process
// has no children but those that it may not kill (Exit.Left). It is called once.
func (c *Command) Wait() initproto.Exit {
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
		if pid == c.main {
			exit = c.verdict(status)
			break
		}
	}
	c.mainReaped()
	exit.Left = !c.sweep(&used)
	close(c.dead)
	if c.deadline != nil {
		c.deadline.Stop()
	}
	c.stdin.abandon()
	<-c.stdin.over
	if !c.o.Alone {
		// Somebody who is not of this command may have been handed its end of a pipe.
		c.stdout.finish()
		c.stderr.finish()
	}
	c.output.Wait()
	exit.StdoutBytes, exit.StderrBytes = c.stdout.total, c.stderr.total
	exit.UserUS, exit.SystemUS, exit.MaxRSSKB = used.userUS, used.systemUS, used.maxRSSKB
	return exit
}

// sweepTimeout is for how long a command's end waits for processes that this one may not kill.
const sweepTimeout = time.Second

// sweep kills and reaps until there are no children. Those of a process that dies become ours, and so it goes down to the last one. A
// process to which a SIGKILL was sent starts no other. False: what is left is another user's, and goes on.
func (c *Command) sweep(used *usage) bool {
	var refused time.Time // since when nothing was there but that
	how := unix.WNOHANG | unix.WALL
	if c.o.Alone {
		KillAll()
	}
	for {
		var rusage unix.Rusage
		pid, err := unix.Wait4(-1, nil, how, &rusage)
		how = unix.WNOHANG | unix.WALL
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // ECHILD
			return true
		case pid > 0:
			used.add(&rusage)
		case c.o.Alone:
			KillAll()
			how = unix.WALL
		case KillChildren(nil) == 0: // the list has missed some
			time.Sleep(100 * time.Microsecond)
		case mayKillAny():
			how = unix.WALL // one of them ends soon
		case refused.IsZero():
			refused = time.Now()
		case time.Since(refused) > sweepTimeout:
			return false
		default:
			time.Sleep(time.Millisecond)
		}
	}
}

// usage sums up what the processes of a job took. Each that is reaped brings its own and that of the children which it reaped itself. What
// ran before there was a job is not among them, as it would be in the kernel's own sum.
type usage struct{ userUS, systemUS, maxRSSKB int64 }

func (u *usage) add(r *unix.Rusage) {
	u.userUS += microseconds(r.Utime)
	u.systemUS += microseconds(r.Stime)
	u.maxRSSKB = max(u.maxRSSKB, r.Maxrss)
}

func microseconds(t unix.Timeval) int64 { return t.Sec*1e6 + t.Usec }

// verdict reads the main process's status. A kill counts as its cause only when the process really died of it: one that ended by itself
// in the same instant did end by itself.
func (c *Command) verdict(status unix.WaitStatus) initproto.Exit {
	if status.Exited() {
		return initproto.Exit{Code: status.ExitStatus()}
	}
	exit := initproto.Exit{Code: 128 + int(status.Signal()), Signal: int(status.Signal())}
	if status.Signal() == unix.SIGKILL {
		cause := c.cause.Load()
		exit.TimedOut, exit.Killed = cause == causeTimeout, cause == causeKilled
	}
	return exit
}
