//go:build linux

package worker

import (
	"bytes"
	"errors"
	"fmt"
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

// Why a command was killed; the first cause counts.
const (
	causeNone int32 = iota
	causeTimeout
	causeKilled
)

// Sender sends whole frames, one at a time.
type Sender interface {
	Send(t initproto.Type, payload []byte) error
}

// Options describe the process that commands run in.
type Options struct {
	// Alone is for the first process of a container with one job: all other processes are the job's
	// and are killed with it.
	Alone bool
	// OfferToOOM makes the kernel kill the command's processes first when memory is used up, so
	// that this process survives.
	OfferToOOM bool
	// Hardened keeps commands of the same user out of this process's memory and descriptors: Serve
	// makes it undumpable.
	Hardened bool
}

// Command is a running command with all processes that it started.
type Command struct {
	o      Options
	main   int // pid
	mu     sync.Mutex
	pidfd  int  // of main; -1 where the kernel has none
	reaped bool // main is
	killed bool // no process may live on
	warned bool // SIGTERM was sent, because the deadline is near
	cause  atomic.Int32
	timers []*time.Timer
	stdin  *stdin
	output sync.WaitGroup
	stdout stream
	stderr stream
	dead   chan struct{} // see Dead
}

// Start starts a command. After an error nothing of it runs; Refusal turns the error into a report.
func Start(spec initproto.Job, out Sender, o Options) (*Command, error) {
	env := withCPUs(environment(os.Environ(), spec.Env, spec.PathTail), spec.CPUs)
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
	if spec.CodeFile != "" {
		if spec.Argv, env, err = codeInFile(spec, env); err != nil {
			return nil, fmt.Errorf("the file of the code: %w", err)
		}
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
		after := func(ms int64, f func()) {
			c.timers = append(c.timers, time.AfterFunc(time.Duration(ms)*time.Millisecond, f))
		}
		after(spec.TimeoutMS, func() { c.kill(causeTimeout) })
		if spec.GraceMS > 0 {
			after(max(0, spec.TimeoutMS-spec.GraceMS), c.warn)
		}
	}
	return c, nil
}

// codeInFile writes the code of Job.CodeFile, and returns the arguments and the environment of the
// program that runs it.
func codeInFile(spec initproto.Job, env []string) (argv, withPath []string, err error) {
	f, err := os.OpenFile(spec.CodeFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, nil, err
	}
	_, err = f.WriteString(withoutEncoding(spec.Argv[2]))
	path := "PYTHONPATH=" + spec.Cwd
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, "PYTHONPATH="); ok && value != "" {
			path = "PYTHONPATH=" + spec.Cwd + ":" + value
		}
	}
	argv = slices.Concat(spec.Argv[:1], []string{spec.CodeFile}, spec.Argv[3:])
	return argv, environment(env, []string{path}, ""), errors.Join(err, f.Close())
}

// withoutEncoding takes the effect from encoding lines (PEP 263) that name another encoding than
// UTF-8, which the text of a job has: with -c, Python heeds none. The lines keep their length. They
// are comments among the first two lines; the second counts only after a blank line or a comment.
func withoutEncoding(code string) string {
	text := []byte(code)
	rest := bytes.TrimPrefix(text, []byte("\ufeff"))
	for range 2 {
		line := rest
		if end := bytes.IndexAny(rest, "\r\n"); end >= 0 {
			line, rest = rest[:end], bytes.TrimPrefix(rest[end:], []byte("\r"))
			rest = bytes.TrimPrefix(rest, []byte("\n"))
		} else {
			rest = nil
		}
		comment := bytes.TrimLeft(line, " \t\f")
		if len(comment) > 0 && comment[0] != '#' {
			break
		}
		for {
			at := bytes.Index(comment, []byte("coding"))
			if at < 0 {
				break
			}
			comment = comment[at+len("coding"):]
			if len(comment) == 0 || comment[0] != ':' && comment[0] != '=' {
				continue
			}
			if name := bytes.ToLower(bytes.TrimLeft(comment[1:], " \t")); !bytes.HasPrefix(name, []byte("utf-8")) && !bytes.HasPrefix(name,
				[]byte("utf8")) {
				comment[0] = ' '
			}
		}
	}
	return string(text)
}

// openPipes makes three pipes, or none.
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

// ourEnd is our end of a pipe, non-blocking so that waiting at it needs no thread.
func ourEnd(fd int, name string) *os.File {
	_ = unix.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), name)
}

// forkTimeout is how long a fork is repeated while the kernel allows no more processes: others may
// end.
const forkTimeout = 2 * time.Second

func forkExec(argv0 string, argv []string, attr *syscall.ProcAttr, retry bool) (int, error) {
	for begun, pause := time.Now(), time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		pid, err := syscall.ForkExec(argv0, argv, attr)
		if !retry || !errors.Is(err, unix.EAGAIN) || time.Since(begun) > forkTimeout {
			return pid, err
		}
		time.Sleep(pause)
	}
}

var errNoDir = errors.New("the working directory is not there")

// named is a program's name for a message, bounded because a job can choose any name.
func named(program string) string {
	const most = 1 << 10
	if len(program) <= most {
		return program
	}
	return strings.ToValidUTF8(program[:most], "") + "…"
}

// Refusal is the report of a command that Start could not start, with the code that a shell would
// have exited with.
func Refusal(err error) initproto.Exit {
	exit := initproto.Exit{
		Code: 126, StartError: err.Error(), NoDir: errors.Is(err, errNoDir), NoRoom: errors.Is(err, unix.EAGAIN),
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		exit.Code = 127
	}
	return exit
}

// Push queues a chunk of standard input; false when it exceeds the credit or comes after the end.
func (c *Command) Push(chunk []byte) bool { return c.stdin.push(chunk) }

// EndStdin closes the command's standard input after the pushed chunks. Push and EndStdin must not
// be called at the same time.
func (c *Command) EndStdin() { c.stdin.end() }

// AbandonStdin closes the command's standard input at once.
func (c *Command) AbandonStdin() { c.stdin.abandon() }

// Kill kills the command and all its processes. It returns at once; Wait returns when all are dead.
func (c *Command) Kill() { c.kill(causeKilled) }

// Signal sends a signal to the process group of the main process, as a terminal does. It does
// nothing when the main process has ended.
func (c *Command) Signal(s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaped {
		_ = unix.Kill(-c.main, s)
	}
}

// warn tells the command that its deadline is near: like Signal with SIGTERM, which also stopped
// processes get. From now on it has timed out, however it ends.
func (c *Command) warn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaped && c.cause.CompareAndSwap(causeNone, causeTimeout) {
		c.warned = true
		_ = unix.Kill(-c.main, unix.SIGTERM)
		_ = unix.Kill(-c.main, unix.SIGCONT)
	}
}

func (c *Command) kill(cause int32) {
	c.cause.CompareAndSwap(causeNone, cause)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed = true
	switch {
	case c.o.Alone:
		KillAll()
	case c.reaped: // Wait kills the rest
	case c.pidfd >= 0:
		_ = unix.PidfdSendSignal(c.pidfd, unix.SIGKILL, nil, 0)
	default:
		_ = unix.Kill(c.main, unix.SIGKILL)
	}
	if !c.o.Alone && !c.reaped {
		killTracer(c.main, nil)
	}
}

// mainReaped keeps kill from using a process id that may have been reused.
func (c *Command) mainReaped() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reaped = true
	if c.pidfd >= 0 {
		_ = unix.Close(c.pidfd)
	}
}

// Dead is closed when no process of the command is alive that this one may kill. Output may still
// follow.
func (c *Command) Dead() <-chan struct{} { return c.dead }

// Wait waits for the end of the main process, kills and reaps the others, and drains the outputs.
// When it returns, this process has no children except those that it may not kill (Exit.Left). It
// must be called once.
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
		if err != nil { // ECHILD, which cannot happen before the main process was reaped
			break
		}
		if status.Stopped() { // it traces itself, and nobody would continue it
			_ = unix.Kill(pid, unix.SIGKILL)
			continue
		}
		used.add(&rusage)
		if pid == c.main {
			exit = c.verdict(status)
			break
		}
	}
	c.mainReaped()
	c.awaitWarned(&used)
	exit.Left = !c.sweep(&used)
	close(c.dead)
	for _, timer := range c.timers {
		timer.Stop()
	}
	c.stdin.abandon()
	<-c.stdin.over
	if !c.o.Alone {
		// A process of another command may hold an end of a pipe.
		c.stdout.finish()
		c.stderr.finish()
	}
	c.output.Wait()
	exit.StdoutBytes, exit.StderrBytes = c.stdout.total, c.stderr.total
	exit.UserUS, exit.SystemUS, exit.MaxRSSKB = used.userUS, used.systemUS, used.maxRSSKB
	return exit
}

// awaitWarned waits for the other processes of a command that got SIGTERM, up to its deadline: a
// shell ends at once, and what it runs may need the time.
func (c *Command) awaitWarned(used *usage) {
	waits := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.warned && !c.killed
	}
	for waits() {
		var rusage unix.Rusage
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG|unix.WALL, &rusage)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // ECHILD
			return
		case pid > 0:
			used.add(&rusage)
		default:
			time.Sleep(time.Millisecond)
		}
	}
}

// sweepTimeout is how long a command's end waits for processes that this one may not kill.
const sweepTimeout = time.Second

// sweep kills and reaps until there are no children. The children of a process that dies become
// ours, so all descendants are killed in the end; a process that was sent a SIGKILL starts no
// others. False: processes of another user are left.
func (c *Command) sweep(used *usage) bool {
	var refused time.Time // since when there are only processes of other users
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
		case KillChildren(nil) == 0: // the list may miss some
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

// usage adds up the resource usage of a job's processes. The usage of a reaped process includes the
// usage of the children that it has reaped. Unlike the kernel's sum for all children, it leaves out
// processes that ran before the job.
type usage struct{ userUS, systemUS, maxRSSKB int64 }

func (u *usage) add(r *unix.Rusage) {
	u.userUS += microseconds(r.Utime)
	u.systemUS += microseconds(r.Stime)
	u.maxRSSKB = max(u.maxRSSKB, r.Maxrss)
}

func microseconds(t unix.Timeval) int64 { return t.Sec*1e6 + t.Usec }

// verdict judges the main process's status. A kill counts as the cause only when the process died
// of it and did not end by itself at the same time.
func (c *Command) verdict(status unix.WaitStatus) initproto.Exit {
	c.mu.Lock()
	exit := initproto.Exit{TimedOut: c.warned}
	c.mu.Unlock()
	if status.Exited() {
		exit.Code = status.ExitStatus()
		return exit
	}
	exit.Code, exit.Signal = 128+int(status.Signal()), int(status.Signal())
	if status.Signal() == unix.SIGKILL {
		cause := c.cause.Load()
		exit.TimedOut, exit.Killed = cause == causeTimeout, cause == causeKilled
	}
	return exit
}
