package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"secbox/fault"
	"secbox/sandbox/search"
)

// Spec is one command.
type Spec struct {
	Argv    []string  // the program, looked up in the PATH of Env if it is a bare name, and its arguments; search.Command is this program
	Dir     string    // working directory, absolute
	Env     []string  // the whole environment; the last value of a name counts
	Stdin   io.Reader // its whole standard input; nil: none. An error ends it like io.EOF
	Timeout time.Duration

	// The command gets SIGTERM policy.KillGrace before Timeout, on Windows Ctrl-Break, and has
	// timed out then, however it ends. On Linux, all that it started has the time up to Timeout;
	// elsewhere it is killed when the main process has ended.

	// Signals are sent to the command's process group while it runs: SIGHUP, SIGINT, SIGTERM,
	// SIGKILL; others are dropped. On Windows SIGINT is Ctrl-Break, and the others kill the
	// command. May be nil.
	Signals <-chan syscall.Signal

	// Stdout and Stderr receive the output while the command runs, up to MaxStdout and MaxStderr
	// bytes; the rest is counted and dropped. Each is called by one goroutine at a time, and never
	// after Run has returned. Nil drops all. A slow writer slows the command. A writer that fails
	// is not called again.
	Stdout, Stderr       io.Writer
	MaxStdout, MaxStderr int64
}

// Result is how a command ended.
type Result struct {
	ExitCode    int // 128+signal when a signal ended it, 127 or 126 when it was not found or could not be started, -1 on timeout
	TimedOut    bool
	Ended       *int  // with TimedOut: the exit code of a command that ended by itself after its SIGTERM; nil if it was killed
	StdoutBytes int64 // bytes written
	StderrBytes int64
	Detail      string // why it ended, if not by itself
}

// ErrNoDir is the error for a missing working directory.
var ErrNoDir = errors.New("the working directory does not exist")

// Exit codes of shells for a command that did not start.
const (
	exitNotFound      = 127
	exitNotExecutable = 126
)

// Processes runs commands. Safe for concurrent use.
type Processes struct {
	mu      sync.Mutex      // no command starts while Close ends closing
	closing context.Context // ends with Close
	end     context.CancelFunc
	running sync.WaitGroup
	system  system
	run     func(context.Context, Spec) (*Result, error)

	killTimeout time.Duration // from the kill of a command to its death
}

// killTimeout is long, because killing thousands of processes takes a while on a busy machine. A
// process that survives it does not end by being killed.
const killTimeout = time.Minute

// ownProgram returns the path of this program: on Linux it is valid even if the file was replaced
// by a new version.
func ownProgram() string {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe" // also the worker's program
	}
	path, _ := os.Executable()
	return path
}

// New makes Processes. The program must have called Main.
func New() *Processes {
	p := &Processes{killTimeout: killTimeout}
	p.closing, p.end = context.WithCancel(context.Background())
	p.run = p.runHere
	return p
}

// Close kills all commands and waits for them. Safe to call twice.
func (p *Processes) Close() error {
	p.mu.Lock()
	p.end()
	p.mu.Unlock()
	p.running.Wait()
	p.system.close()
	return nil
}

// Run runs a command to its end, and no process of it is alive when Run returns. A nonzero exit
// code is a result, and so are a timeout and a missing program. A missing Dir is ErrNoDir. Run does
// not wait for a Read of Stdin that is under way when the command has ended. When ctx ends, the
// command is killed and the error wraps ctx's. A process that cannot be killed lives on: a Detail
// or fault.OutcomeUnknown says so.
func (p *Processes) Run(ctx context.Context, spec Spec) (*Result, error) {
	if err := ended(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	if p.closing.Err() != nil {
		p.mu.Unlock()
		return nil, errClosing
	}
	p.running.Add(1)
	p.mu.Unlock()
	defer p.running.Done()
	if len(spec.Argv) == 0 || spec.Argv[0] == "" {
		return nil, fault.BadField("command", "is empty")
	}
	if spec.Argv[0] == search.Command {
		spec.Argv = append([]string{ownProgram(), search.Verb}, spec.Argv[1:]...)
		spec.Env = slices.Concat(spec.Env, helperEnviron)
	}
	spec.Env = withoutRepeats(spec.Env)
	within, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(p.closing, func() { end(errClosing) })()
	return p.run(within, spec)
}

func endedBySignal(signal syscall.Signal) string {
	return fmt.Sprintf("a signal ended the command: %s", signal)
}

func notFound(program string) string { return fmt.Sprintf("there is no program %q", program) }

func notRunnable(program string) string { return fmt.Sprintf("the program %q cannot be run", program) }

func noRoom(err error) error {
	return fault.Wrap(fault.SandboxBusy, err, "no more processes can be started; try again when others have ended")
}

// detailSurvivor is the detail of a command that left a process of another user.
const detailSurvivor = "a process that the command started runs as another user and lives on, because the user of the commands may not kill it"

// cannotBeKilled is the error of a command that survives being killed; why is the reason to kill
// it, nil for its timeout.
func cannotBeKilled(why error) error {
	return fault.Wrap(fault.OutcomeUnknown, why,
		"the command cannot be killed and may still run, because a part of it runs as another user or hangs in the kernel; end it by "+
			"hand on that machine")
}

var errClosing = fault.New(fault.ShuttingDown, "commands are no longer run")

// killed returns the error of a command that is killed because its context has ended.
func killed(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, errClosing) {
		return cause
	}
	return fmt.Errorf("the command was killed: %w", ended(ctx))
}

// ended returns the error of ctx together with its cause, nil if ctx has not ended.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); err != nil && !errors.Is(cause, err) {
		return errors.Join(err, cause)
	}
	return err
}
