// Package memengine is an engine.Engine without containers, for tests of its callers: a job is a Go
// function. It keeps the promises of engine.Engine and passes the part of enginetest that every
// engine passes. It confines nothing, so it must not be used outside tests.
//
// Unless Options.Run says otherwise, a job is a script in a few words of shell; see Shell.
package memengine

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"secbox/engine"
	"secbox/fault"
)

// Func is a job. Its context ends when the job must die: at its deadline, when it is killed, and
// when the engine is closed. A job that ends for that reason returns Died. An error says that the
// container was lost while the job ran; a *engine.RunError is passed on as it is. No output arrives
// after the return, so goroutines of the job end before it.
type Func func(ctx context.Context, c *Container) (engine.Exit, error)

// Container is what a job sees.
type Container struct {
	ExecID string
	Spec   engine.Spec
	Job    engine.Job
	Mounts []engine.Mount
	Stdout io.Writer // passes on Job.MaxStdout bytes and counts all
	Stderr io.Writer
}

// Options is how an engine behaves. The zero value runs scripts of Shell, cold.
type Options struct {
	Warm bool // slots say that their container waited for them
	// Attached makes slots say that it waited for any project.
	Attached bool
	Run      Func                    // nil: Shell(nil)
	Acquire  func(engine.Spec) error // its error is Acquire's; nil: none
	Start    func(engine.Spec) error // its error means that the container did not start, so the job did not run; nil: none
}

// Engine is safe for concurrent use.
type Engine struct {
	options Options
	ctx     context.Context
	close   context.CancelFunc
	running sync.WaitGroup
	open    atomic.Int64
}

var _ engine.Engine = (*Engine)(nil)

// New makes an engine.
func New(o Options) *Engine {
	if o.Run == nil {
		o.Run = Shell(nil)
	}
	e := &Engine{options: o}
	e.ctx, e.close = context.WithCancel(context.Background())
	return e
}

// Open is the number of slots that were neither run nor discarded.
func (e *Engine) Open() int { return int(e.open.Load()) }

// Acquire implements engine.Engine. Ids are UUIDs of version 7.
func (e *Engine) Acquire(ctx context.Context, spec engine.Spec) (engine.Slot, error) {
	if e.ctx.Err() != nil {
		return nil, fault.New(fault.EngineUnavailable, "the engine is closed")
	}
	if e.options.Acquire != nil {
		if err := e.options.Acquire(spec); err != nil {
			return nil, err
		}
	}
	id := spec.ExecID
	if id == "" {
		id = uuid.Must(uuid.NewV7()).String()
	}
	place, err := spec.Prepare(ctx, id)
	if err != nil {
		return nil, err
	}
	e.open.Add(1)
	return &slot{engine: e, id: id, spec: spec, place: place}, nil
}

// Close implements engine.Engine: jobs that still run are lost.
func (e *Engine) Close() error {
	e.close()
	e.running.Wait()
	return nil
}

type slot struct {
	engine *Engine
	id     string
	spec   engine.Spec
	place  engine.MountSet
}

func (s *slot) ExecID() string         { return s.id }
func (s *slot) Warm() bool             { return s.engine.options.Warm }
func (s *slot) Attached() bool         { return s.engine.options.Attached }
func (s *slot) Mounts() []engine.Mount { return s.place.Mounts }
func (s *slot) Args() []string         { return []string{"run", "--name", "secbox-" + s.id, s.spec.ImageID} }

func (s *slot) Discard() {
	s.engine.open.Add(-1)
	if s.place.Drop != nil {
		s.place.Drop()
	}
}

// Why a job must die.
var (
	errDeadline = errors.New("the deadline of the job")
	errClosed   = errors.New("the engine was closed while the job ran")
)

func (s *slot) Run(ctx context.Context, job engine.Job, stdout, stderr io.Writer) (engine.Exit, error) {
	e := s.engine
	e.open.Add(-1)
	e.running.Add(1)
	defer e.running.Done()
	if err := s.start(ctx); err != nil {
		return engine.Exit{}, &engine.RunError{Dead: true, Err: err}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.ctx, func() { cancel(errClosed) })()
	if job.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, job.Timeout, errDeadline)
		defer stop()
	}
	if job.OnStart != nil {
		job.OnStart()
	}
	out, errs := &output{to: stdout, limit: job.MaxStdout}, &output{to: stderr, limit: job.MaxStderr}
	exit, err := e.options.Run(ctx, &Container{ExecID: s.id, Spec: s.spec, Job: job, Mounts: s.place.Mounts, Stdout: out, Stderr: errs})
	if err == nil && context.Cause(ctx) == errClosed { //nolint:errorlint // it is never wrapped
		err = errClosed
	}
	var lost *engine.RunError
	switch {
	case errors.As(err, &lost):
		return engine.Exit{}, lost
	case err != nil:
		return engine.Exit{}, &engine.RunError{
			Started: true, Dead: true,
			Err: fault.Wrap(fault.Internal, err, "the container ended without a report"),
		}
	}
	if exit.Signal == sigkill {
		exit.TimedOut = context.Cause(ctx) == errDeadline //nolint:errorlint // it is never wrapped
		exit.Killed = ctx.Err() != nil && !exit.TimedOut
	}
	exit.StdoutBytes, exit.StderrBytes = out.total, errs.total
	return exit, nil
}

// start fails where a container would not come up.
func (s *slot) start(ctx context.Context) error {
	if ctx.Err() != nil {
		return fault.Wrap(fault.Internal, context.Cause(ctx), "killed before it started")
	}
	if s.engine.ctx.Err() != nil {
		return fault.New(fault.EngineUnavailable, "the engine is closed")
	}
	if s.engine.options.Start != nil {
		return s.engine.options.Start(s.spec)
	}
	return nil
}

const sigkill = 9

// Died is the exit of a job that SIGKILL ended. The engine adds whether it was the deadline or a
// kill.
func Died() engine.Exit { return engine.Exit{Code: 128 + sigkill, Signal: sigkill} }

// OutOfMemory is the exit of a job whose main process the kernel killed for memory.
func OutOfMemory() engine.Exit {
	exit := Died()
	exit.OOMKills = 1
	return exit
}

// output is one stream of a job.
type output struct {
	to           io.Writer
	limit, total int64
}

func (o *output) Write(p []byte) (int, error) {
	if keep := min(int64(len(p)), o.limit-o.total); keep > 0 {
		_, _ = o.to.Write(p[:keep])
	}
	o.total += int64(len(p))
	return len(p), nil
}

// Path is the file on this machine that the job knows as name; false when no mount holds it, or
// none that may be written to.
func (c *Container) Path(name string, write bool) (string, bool) {
	for _, m := range c.Mounts {
		if rest, ok := strings.CutPrefix(name, m.Target+"/"); ok && (!write || !m.ReadOnly) {
			return filepath.Join(m.Source, filepath.FromSlash(rest)), true
		}
	}
	return "", false
}
