package session

import (
	"context"
	"crypto/rand"
	_ "embed"
	"io"
	"math"
	"slices"
	"syscall"
	"time"

	"secbox/engine"
	"secbox/fault"
)

// Context names an interpreter of a session that keeps its state from one exec to the next. The
// zero value names none: the exec has a process of its own.
type Context struct {
	Kind string // Python or Shell
	Name string
}

// The kinds of interpreters.
const (
	Python = "python"
	Shell  = "shell"
)

// mostContexts is how many interpreters one session may have.
const mostContexts = 8

// mostLost is how many names of ended interpreters a session remembers.
const mostLost = 64

//go:embed python.py
var pythonDriver string

//go:embed shell.sh
var shellDriver string

// interpreter is a process that runs cells one after the other.
type interpreter struct {
	Context
	input   *io.PipeWriter
	signals chan syscall.Signal
	kill    context.CancelFunc
	stdout  marked
	stderr  marked
	started time.Time

	done chan struct{} // closed when the process has ended; exit and err are to be read then
	exit engine.Exit
	err  error

	// Guarded by Set.mu.
	cells int64
	ended bool // by request
	anew  bool // one with the name has ended before, and no cell was told yet
}

// ContextState is an interpreter as it is now.
type ContextState struct {
	Context
	Cells     int64
	StartedAt time.Time
}

// interpreter returns the session's interpreter with a name, and starts it if there is none.
func (x *live) interpreter(of Context, job engine.Job) (*interpreter, error) {
	x.of.mu.Lock()
	defer x.of.mu.Unlock()
	i := slices.IndexFunc(x.contexts, func(it *interpreter) bool { return it.Name == of.Name })
	switch {
	case i >= 0 && x.contexts[i].Kind != of.Kind:
		return nil, fault.BadField("exec.context", "%q is a context of kind %s; choose another name", of.Name, x.contexts[i].Kind)
	case i >= 0:
		return x.contexts[i], nil
	case x.ahead != nil && of.Kind == Python:
		it := x.ahead
		x.ahead, it.Context, it.anew = nil, of, x.lost[of.Name]
		x.contexts = append(x.contexts, it)
		return it, nil
	case x.over:
		return nil, Ended(x.id)
	case len(x.contexts) >= mostContexts:
		return nil, fault.BadField("exec.context", "would be one more than the %d contexts that a session may have; end one of them", mostContexts)
	}
	it := x.start(of, job.Env, job.Cwd, nil)
	it.anew = x.lost[of.Name]
	x.contexts = append(x.contexts, it)
	return it, nil
}

// start starts an interpreter, with Set.mu held.
func (x *live) start(of Context, env map[string]string, cwd string, imports []string) *interpreter {
	read, write := io.Pipe()
	ctx, kill := context.WithCancel(context.Background())
	it := &interpreter{
		Context: of, input: write, signals: make(chan syscall.Signal, 1), kill: kill,
		started: x.of.cfg.Now(), done: make(chan struct{}),
	}
	argv := append([]string{"python", "-c", pythonDriver}, imports...)
	if of.Kind == Shell {
		argv = []string{"bash", "-c", shellDriver}
	}
	x.leaving.Go(func() {
		x.watch.use(x.terms.Watch)
		defer x.watch.leave()
		it.exit, it.err = x.resident.Run(ctx, engine.Job{
			Argv: argv, Env: env, Cwd: cwd, Stdin: read, Signals: it.signals, MaxStdout: math.MaxInt64, MaxStderr: math.MaxInt64,
			OnConnection: x.onConnection, NetworkCA: x.networkCA,
		}, &it.stdout, &it.stderr)
		x.of.mu.Lock()
		if x.ahead == it {
			x.ahead = nil
		} else if !it.ended {
			x.lose(it)
		}
		x.contexts = slices.DeleteFunc(x.contexts, func(other *interpreter) bool { return other == it })
		x.of.mu.Unlock()
		read.Close()
		kill()
		close(it.done)
	})
	return it
}

// lose notes that an interpreter has ended, with Set.mu held.
func (x *live) lose(it *interpreter) {
	if !it.ended && !x.over {
		x.of.totals.ContextsLost++
	}
	if x.lost[it.Name] = true; len(x.lost) > mostLost {
		clear(x.lost)
	}
}

// startAhead starts an interpreter of Python for the first context, so that its modules are there
// when the first cell comes. Set.mu is held.
func (x *live) startAhead(memoryMB int64) {
	const enough = 256 // MiB: the container's memory is for what it was asked for
	if len(x.of.cfg.Imports) > 0 && memoryMB >= enough {
		x.ahead = x.start(Context{Kind: Python}, x.terms.Env, x.terms.Cwd, x.of.cfg.Imports)
	}
}

// EndContext ends an interpreter, and the cell that runs in it; false if there is none. The name is
// free at once.
func (s *Set) EndContext(id, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.all[id]
	if x == nil {
		return false
	}
	i := slices.IndexFunc(x.contexts, func(it *interpreter) bool { return it.Name == name })
	if i < 0 {
		return false
	}
	it := x.contexts[i]
	x.contexts = slices.Delete(x.contexts, i, i+1)
	it.ended = true
	x.lose(it)
	it.kill()
	return true
}

// interruptTime is how long a cell may take to end after an interrupt that no grace of its policy
// bounds.
const interruptTime = 2 * time.Second

// runCell runs a job in its interpreter.
func (s *slot) runCell(ctx context.Context, job engine.Job, stdout, stderr io.Writer) (engine.Exit, error) {
	leave, err := s.in.turns.Take(ctx, s.context.Name)
	if err != nil {
		return engine.Exit{}, &engine.RunError{Dead: true, Err: err}
	}
	defer leave()
	it, err := s.in.interpreter(s.context, job)
	if err != nil {
		return engine.Exit{}, &engine.RunError{Dead: true, Err: err}
	}
	s.in.of.mu.Lock()
	it.cells++
	anew := it.anew
	it.anew = false
	s.in.of.mu.Unlock()
	nonce, codes := rand.Text(), make(chan int, 2)
	it.stdout.begin(nonce, stdout, func(code int) { codes <- code })
	it.stderr.begin(nonce, stderr, func(code int) { codes <- code })
	defer it.stdout.end()
	defer it.stderr.end()
	job.OnStart()
	go func() {
		_, _ = io.WriteString(it.input, nonce+"\x00"+job.Env[ArtifactsVariable]+"\x00"+job.Argv[2]+"\x00")
	}()

	ended, code := 0, 0
	var exit engine.Exit
	interrupt, kill := time.NewTimer(job.Timeout-job.Grace), time.NewTimer(job.Timeout)
	defer interrupt.Stop()
	defer kill.Stop()
	canceled := ctx.Done()
	interrupted := func() {
		signal := syscall.SIGTERM // ends a cell of the shell
		if it.Kind == Python {
			signal = syscall.SIGINT
		}
		select {
		case it.signals <- signal:
		default:
		}
	}
	defer func() { // an interrupt that comes too late is not for the next cell
		select {
		case <-it.signals:
		default:
		}
	}()
	for ended < 2 {
		select {
		case code = <-codes:
			ended++
		case <-interrupt.C:
			exit.TimedOut = true
			interrupted()
		case <-kill.C:
			it.kill()
		case <-canceled:
			canceled, exit.Killed = nil, true
			interrupted()
			kill.Reset(min(interruptTime, job.Timeout))
		case <-it.done:
			return s.cellLost(ctx, it, exit)
		}
	}
	exit.Code = code
	switch {
	case exit.TimedOut, exit.Killed:
		exit.Signal = int(syscall.SIGINT)
		exit.Note = "the context " + it.Name + " keeps its state"
	case anew:
		exit.Note = "the context " + it.Name + " began anew, without the state of the one before"
	}
	return exit, nil
}

// cellLost is the end of a cell whose interpreter has ended.
func (s *slot) cellLost(ctx context.Context, it *interpreter, exit engine.Exit) (engine.Exit, error) {
	if it.err != nil {
		return engine.Exit{}, s.lost(ctx, it.err)
	}
	was := exit
	exit = it.exit
	exit.TimedOut, exit.Killed = was.TimedOut, was.Killed
	s.in.of.mu.Lock()
	ended := it.ended
	s.in.of.mu.Unlock()
	switch {
	case exit.StartError != "":
	case ended:
		exit.Code, exit.Signal = 137, int(syscall.SIGKILL)
		exit.Note = "the context " + it.Name + " was ended by request"
	default:
		exit.Note = "the context " + it.Name + " has ended with it, and loses its state"
	}
	return exit, nil
}
