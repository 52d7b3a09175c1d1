package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
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

	// Stdout and Stderr get what the command writes, up to MaxStdout and MaxStderr bytes, while it runs; each is called by one goroutine at a
	// time and never after Run has returned. Nil drops all, as what is too much is dropped: it is counted. A writer that is slow slows the
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
	system  system
	run     func(context.Context, Spec) (*Result, error)

	patience time.Duration // for a command that was killed to be dead
}

// patience is long: killing thousands of processes takes its time on a busy machine. What it is about does not end by being killed.
const patience = time.Minute

// New makes Processes. On Linux the program must have called Main.
func New() *Processes {
	p := &Processes{closing: make(chan struct{}), patience: patience}
	p.run = p.runHere
	return p
}

// Close kills what runs and waits for it. Safe to call twice.
func (p *Processes) Close() error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.closing)
	}
	p.mu.Unlock()
	p.running.Wait()
	p.system.close()
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

// Run runs a command to its end. Whatever ends it, nothing of it is alive when Run returns. An exit code that is not 0 is no error, nor is a
// time-out, nor a program that is not there. ErrNoDir when Dir is not. When ctx ends, the command is killed and the error wraps ctx's. What
// cannot be killed is alive still when Run returns: a Detail or fault.OutcomeUnknown says so.
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
	spec.Env = lastOfEach(spec.Env)
	return p.run(ctx, spec)
}

func endedBySignal(signal syscall.Signal) string {
	return fmt.Sprintf("a signal ended the command: %s", signal)
}

func notFound(program string) string { return fmt.Sprintf("there is no program %q", program) }

func notRunnable(program string) string { return fmt.Sprintf("the program %q cannot be run", program) }

func noRoom(err error) error {
	return fault.Wrap(fault.SandboxBusy, err, "no other process can be started: try again when others have ended")
}

// livesOn is what became of something that a command has left behind and that may not be killed.
const livesOn = "a process that the command has started runs as another user and lives on: who runs commands here may not end it"

// cannotBeKilled is the end of waiting for a command; why is the reason to kill it, nil for its time-out.
func cannotBeKilled(why error) error {
	return fault.Wrap(fault.OutcomeUnknown, why,
		"the command was to be ended and cannot be: it may go on, since a part of it runs as another user or hangs in the system; end it by hand on that machine")
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
