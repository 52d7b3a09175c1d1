// Package record puts every command of a sandbox on record: no row, no run, and the row is closed durably before the result is given back.
//
// A Recorder is a sandbox around another one, the router most likely. Files it passes through; it knows no HTTP, no SQL and no Docker.
package record

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/policy"
	"secbox/sandbox"
)

// Log is what a Recorder asks of the audit log; see runner.Log, whose words hold here.
type Log interface {
	Open(ctx context.Context, r audit.Record) (taken *audit.Record, err error)
	Close(ctx context.Context, r audit.Record) (spooled bool, err error)
	Get(ctx context.Context, execID string) (audit.Record, error)
	Refuse(ctx context.Context, r audit.Record) (taken *audit.Record, recorded bool, err error)
}

// Observer is told of every command that ended; for metrics.
type Observer interface {
	Ended(r audit.Record)
}

// Config is what a Recorder is made of. All fields are needed unless they say otherwise.
type Config struct {
	Sandbox  sandbox.Backend
	Log      Log
	Policy   *policy.Resolver
	Host     func() policy.Host // what bounds the ceilings
	NodeID   string
	Now      func() time.Time
	NewID    func() string
	Logger   *slog.Logger
	Observer Observer // may be nil

	// Enter is told where a command is about to run, and leave when its row is closed: whoever looks after a workspace knows then that a command
	// is at work in it. An error of Enter's ends the command before it begins. Nil: nobody is told.
	Enter func(l sandbox.Location) (leave func(), err error)

	MaxPerUser int // commands of one user at once; 0: 64. Beyond: fault.SandboxBusy, and no row
	Max        int // commands at once; 0: 1024. One token has three quarters of them at most
}

// Recorder is safe for concurrent use.
type Recorder struct {
	sandbox.Backend
	cfg Config

	mu      sync.Mutex
	live    map[string]*live
	users   map[string]int // how many of the live ones are a user's
	tokens  map[string]int // and a token's
	closing bool
	idle    sync.WaitGroup
}

var _ sandbox.Backend = (*Recorder)(nil)

// live is a command between its admission and its closed row.
type live struct {
	cancel context.CancelCauseFunc
	user   string
	token  string
	ended  chan struct{} // closed when its row is
}

// Why we kill a command; context.Cause tells them apart from a caller who gave up.
var (
	errCanceled = errors.New("canceled")
	errShutdown = errors.New("the node shuts down")
)

// New makes a Recorder, which owns the sandbox from then on: Close closes it.
func New(cfg Config) *Recorder {
	if cfg.MaxPerUser <= 0 {
		cfg.MaxPerUser = 64
	}
	if cfg.Max <= 0 {
		cfg.Max = 1024
	}
	return &Recorder{Backend: cfg.Sandbox, cfg: cfg, live: map[string]*live{}, users: map[string]int{}, tokens: map[string]int{}}
}

// Exec implements sandbox.Sandbox. A command that Cancel has ended is a result too: its ExitCode is -1, Detail says why, and what it had
// written until then is there. One that was killed because this node ends is fault.ShuttingDown.
func (r *Recorder) Exec(ctx context.Context, spec sandbox.ExecSpec) (*sandbox.ExecResult, error) {
	c := r.command(spec)
	return c.run(ctx, func() {
		c.stdout.keep, c.stderr.keep = true, true
	})
}

// ExecTo implements sandbox.Streamer; see Exec.
func (r *Recorder) ExecTo(ctx context.Context, spec sandbox.ExecSpec, stdout, stderr io.Writer) (*sandbox.ExecResult, error) {
	c := r.command(spec)
	return c.run(ctx, func() {
		c.stdout.to, c.stderr.to = stdout, stderr
	})
}

// begin registers a command so that it can be canceled and waited for.
func (r *Recorder) begin(ctx context.Context, execID, userID string) (context.Context, *live, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	token := sandbox.RequestOf(ctx).RequestedBy
	switch {
	case r.closing:
		e := fault.New(fault.ShuttingDown, "this node is shutting down; try another one, or again shortly")
		e.RetryAfter = 5 * time.Second
		return nil, nil, e
	case len(r.live) >= r.cfg.Max:
		return nil, nil, busy("%d commands run in sandboxes already; try again shortly", len(r.live))
	case token != "" && token != sandbox.Tokenless && r.tokens[token] >= max(1, r.cfg.Max*3/4):
		return nil, nil, busy("%d commands of this token run already; try again shortly", r.tokens[token])
	case r.users[userID] >= r.cfg.MaxPerUser:
		return nil, nil, busy("%d commands of this user run already; try again shortly", r.users[userID])
	case r.live[execID] != nil:
		return nil, nil, fault.New(fault.Internal, "the exec id %s is in use", execID)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	l := &live{cancel: cancel, user: userID, token: token, ended: make(chan struct{})}
	r.live[execID] = l
	r.users[userID]++
	r.tokens[token]++
	r.idle.Add(1)
	return ctx, l, nil
}

func busy(format string, args ...any) error {
	e := fault.New(fault.SandboxBusy, format, args...)
	e.RetryAfter = time.Second
	return e
}

func (r *Recorder) finish(execID string, l *live) {
	r.mu.Lock()
	delete(r.live, execID)
	if r.users[l.user]--; r.users[l.user] == 0 {
		delete(r.users, l.user)
	}
	if r.tokens[l.token]--; r.tokens[l.token] == 0 {
		delete(r.tokens, l.token)
	}
	r.mu.Unlock()
	l.cancel(nil)
	close(l.ended)
	r.idle.Done()
}

// Cancel asks for the end of a command and returns at once; false when none with this id runs here.
func (r *Recorder) Cancel(execID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.live[execID]
	if l != nil {
		l.cancel(errCanceled)
	}
	return l != nil
}

// Running is how many commands run now.
func (r *Recorder) Running() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.live)
}

// Drain refuses new commands, lets those that run end until ctx does, kills the rest, and returns when every row is closed. Files can be
// worked on until Close. Safe to call twice.
func (r *Recorder) Drain(ctx context.Context) {
	r.mu.Lock()
	r.closing = true
	r.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		r.idle.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	r.mu.Lock()
	for _, l := range r.live {
		l.cancel(errShutdown)
	}
	r.mu.Unlock()
	<-ended
}

// Close implements sandbox.Sandbox: what runs is killed, and its rows are closed first.
func (r *Recorder) Close() error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	r.Drain(now)
	return r.Backend.Close()
}

// now is UTC in microseconds: what the databases keep.
func (r *Recorder) now() time.Time { return r.cfg.Now().UTC().Truncate(time.Microsecond) }

func (r *Recorder) observe(record audit.Record) {
	if r.cfg.Observer != nil {
		r.cfg.Observer.Ended(record)
	}
}
