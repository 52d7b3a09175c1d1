package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"secbox/fault"
)

// Spec is one command.
type Spec struct {
	Argv    []string // the program, looked up in the PATH of Env if it is a bare name, and what it is given
	Dir     string   // where it starts; absolute
	Env     []string // all of its environment; the last one of a name counts
	Stdin   string   // all that it can read
	Timeout time.Duration

	// Stdout and Stderr get what the command writes, up to MaxStdout and MaxStderr bytes, while it runs; each is called by one goroutine and
	// never after Run has returned. Nil drops all, as what is too much is dropped: it is counted. A writer that is slow slows the
	// command; one that fails gets nothing more.
	Stdout, Stderr       io.Writer
	MaxStdout, MaxStderr int64
}

// Result is how a command ended.
type Result struct {
	ExitCode    int // 128+signal when a signal ended it, 127 or 126 when it was not found or could not be started, -1 on time-out
	TimedOut    bool
	StdoutBytes int64 // all that was written
	StderrBytes int64
	Detail      string // a sentence on what ended it, if that was not itself
}

// ErrNoDir is a directory to start in that is not there.
var ErrNoDir = errors.New("the directory to start in is not there")

// The exit codes that shells give to a command which did not start.
const (
	exitNotFound      = 127
	exitNotExecutable = 126
)

// Processes runs commands. Safe for concurrent use.
type Processes struct {
	mu      sync.Mutex
	closed  bool
	closing chan struct{}
	running sync.WaitGroup
}

// New makes Processes.
func New() *Processes { return &Processes{closing: make(chan struct{})} }

// Close kills what runs and waits for it. Safe to call twice.
func (p *Processes) Close() error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.closing)
	}
	p.mu.Unlock()
	p.running.Wait()
	return nil
}

func (p *Processes) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.running.Add(1)
	return true
}

// Why a command came to its end; the first reason counts.
const (
	reasonNone int32 = iota
	reasonItself
	reasonTimeout
	reasonContext
	reasonClosing
)

// Run runs a command to its end. Whatever ends it, nothing of it is alive when Run returns. An exit code that is not 0 is no error, nor is a
// time-out, nor a program that is not there. ErrNoDir when Dir is not. When ctx ends, the command is killed and the error wraps ctx's.
func (p *Processes) Run(ctx context.Context, spec Spec) (*Result, error) {
	if err := ended(ctx); err != nil {
		return nil, err
	}
	if !p.enter() {
		return nil, shuttingDown()
	}
	defer p.running.Done()
	if len(spec.Argv) == 0 || spec.Argv[0] == "" {
		return nil, fault.BadField("command", "is empty")
	}
	env := lastOfEach(spec.Env)
	program, err := lookUp(spec.Argv[0], spec.Dir, env)
	if err != nil {
		return notStarted(spec.Argv[0], err)
	}
	pipes, err := connect(spec)
	if err != nil {
		return nil, fault.Wrap(fault.SandboxBusy, err, "there is no room for another command: try again when others have ended")
	}
	defer pipes.close()
	t, err := start(program, spec.Argv, spec.Dir, env, pipes.ofCommand)
	pipes.started()
	if err != nil {
		return notStarted(spec.Argv[0], err)
	}

	var reason atomic.Int32
	over := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		p.watch(ctx, spec.Timeout, over, func(why int32) { reason.CompareAndSwap(reasonNone, why); t.kill() })
	})
	end := t.wait(func() { reason.CompareAndSwap(reasonNone, reasonItself) })
	close(over)
	watch.Wait()
	r := &Result{ExitCode: end.code, Detail: end.detail}
	r.StdoutBytes, r.StderrBytes = pipes.drain()
	switch reason.Load() {
	case reasonContext:
		return nil, fmt.Errorf("the command was killed: %w", ended(ctx))
	case reasonClosing:
		return nil, shuttingDown()
	case reasonTimeout:
		r.ExitCode, r.TimedOut, r.Detail = -1, true, ""
	}
	return r, nil
}

// watch calls kill when the command must end before it does.
func (p *Processes) watch(ctx context.Context, timeout time.Duration, over <-chan struct{}, kill func(why int32)) {
	var late <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-over:
	case <-late:
		kill(reasonTimeout)
	case <-ctx.Done():
		kill(reasonContext)
	case <-p.closing:
		kill(reasonClosing)
	}
}

// end is how the main process ended.
type end struct {
	code   int
	detail string
}

func endOf(state *os.ProcessState) end {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return end{code: 128 + int(status.Signal()), detail: fmt.Sprintf("a signal ended the command: %s", status.Signal())}
	}
	return end{code: state.ExitCode()}
}

// notStarted is the result of a command that never ran; an error if that is our machine's fault and not the command's.
func notStarted(program string, err error) (*Result, error) {
	var at *fs.PathError
	switch {
	case errors.As(err, &at) && at.Op == "chdir":
		return nil, ErrNoDir
	case errors.Is(err, errNotFound), errors.Is(err, os.ErrNotExist):
		return &Result{ExitCode: exitNotFound, Detail: fmt.Sprintf("there is no program %q", program)}, nil
	case errors.Is(err, errNoResources):
		return nil, fault.Wrap(fault.SandboxBusy, err, "there is no room for another command: try again when others have ended")
	}
	return &Result{ExitCode: exitNotExecutable, Detail: fmt.Sprintf("the program %q cannot be run", program)}, nil
}

func shuttingDown() error { return fault.New(fault.ShuttingDown, "commands are not run any more") }

// ended is the error of a call whose context ended, nil as long as it has not.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); err != nil && !errors.Is(cause, err) {
		return errors.Join(err, cause)
	}
	return err
}
