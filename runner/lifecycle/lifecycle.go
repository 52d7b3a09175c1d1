// Package lifecycle takes a command from its open row to its closed one, for execs (package runner)
// and for commands in sandboxes (package sandbox/record): it knows which commands are in progress
// on this node, cancels them, drains them when the node shuts down, and closes their rows. It does
// not know where a command runs or how its outcome is determined.
package lifecycle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"secbox/audit"
	"secbox/audit/admin"
	"secbox/fault"
	"secbox/policy"
)

// Log is the part of the audit log that the life cycle uses. Open must be durable before it
// returns; Close must not return before the record is durable in the database or, when spooled is
// true, in the spool. All are safe for concurrent use.
type Log interface {
	Open(ctx context.Context, r audit.Record) (taken *audit.Record, err error)
	Close(ctx context.Context, r *audit.Record) (spooled bool, err error)
	Get(ctx context.Context, execID string) (audit.Record, error)

	// Refuse puts a request that never started on record; see audit.Log. There is no row when
	// recorded is false.
	Refuse(ctx context.Context, r audit.Record) (taken *audit.Record, recorded bool, err error)
}

// Observer is called for every ended command, for metrics.
type Observer interface {
	Ended(r audit.Record)
}

// Config configures Commands. All fields are required unless they say otherwise.
type Config struct {
	Log      Log
	NodeID   string
	Now      func() time.Time
	Observer Observer // may be nil
}

// Commands is the commands in progress on this node. It is safe for concurrent use.
type Commands struct {
	cfg Config

	mu         sync.Mutex
	inProgress map[string]*Command // by exec id
	awaited    map[string]*awaited // the same, of commands that are not in progress
	draining   bool
	paused     []*fault.Error // why commands are refused for some time
	idle       sync.WaitGroup
}

// Command is a command from Begin to End.
type Command struct {
	ExecID string
	User   string // for the bounds of Begin's admit
	Token  string // the same

	cancel context.CancelCauseFunc
	ended  chan struct{}
}

// Why a command is killed. Killed reads them.
type canceled struct{ detail string }

func (c canceled) Error() string { return c.detail }

var errLost = errors.New("the node has lost its lease")

// ErrShutdown is the cause with which Drain kills commands.
var ErrShutdown = errors.New("the node shuts down")

// ErrDrained is the cause of the end of what no operator wants to wait for on a drained node.
var ErrDrained = errors.New("the node was drained")

// New makes an empty set of commands.
func New(cfg Config) *Commands {
	return &Commands{cfg: cfg, inProgress: map[string]*Command{}, awaited: map[string]*awaited{}}
}

// Now is the time in UTC, in microseconds as the databases keep it.
func (c *Commands) Now() time.Time { return c.cfg.Now().UTC().Truncate(time.Microsecond) }

// Begin registers a command, so that it can be canceled and waited for, and returns its context,
// which ends with parent, Cancel and Drain. The caller must call End, after the row is closed. An
// error of admit, which sees all commands in progress and may be nil, refuses the command.
// fault.ShuttingDown after Drain, and the error of Pause until its resume.
func (c *Commands) Begin(parent context.Context, cmd Command, admit func(inProgress map[string]*Command) error) (context.Context, *Command,
	error,
) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.accepts(); err != nil {
		return nil, nil, err
	}
	if admit != nil {
		if err := admit(c.inProgress); err != nil {
			return nil, nil, err
		}
	}
	if c.inProgress[cmd.ExecID] != nil {
		return nil, nil, fault.New(fault.Internal, "the exec id %s is in use", cmd.ExecID)
	}
	ctx, cancel := context.WithCancelCause(parent)
	cmd.cancel, cmd.ended = cancel, make(chan struct{})
	c.inProgress[cmd.ExecID] = &cmd
	if a := c.awaited[cmd.ExecID]; a != nil {
		delete(c.awaited, cmd.ExecID)
		close(a.began)
	}
	c.idle.Add(1)
	return ctx, &cmd, nil
}

// Accepts returns the error with which Begin refuses every command now.
func (c *Commands) Accepts() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.accepts()
}

func (c *Commands) accepts() error {
	switch {
	case c.draining:
		return shuttingDown()
	case len(c.paused) > 0:
		return c.paused[len(c.paused)-1]
	}
	return nil
}

// Pause refuses new commands with an error until resume is called. With several, they are refused
// until the last one has resumed.
func (c *Commands) Pause(why *fault.Error) (resume func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = append(c.paused, why)
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.paused, why)
		c.paused = slices.Delete(c.paused, i, i+1)
	})
}

// Lose kills the commands in progress, because other nodes have ended their rows, and returns when
// all have ended. Call it after Pause.
func (c *Commands) Lose() {
	c.kill(errLost)
	c.idle.Wait()
}

func (c *Commands) kill(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cmd := range c.inProgress {
		cmd.cancel(cause)
	}
}

func shuttingDown() error {
	e := fault.New(fault.ShuttingDown, "this node is shutting down; try another one, or again shortly")
	e.RetryAfter = 5 * time.Second
	return e
}

// End removes a command from the commands in progress and wakes its waiters.
func (c *Commands) End(cmd *Command) {
	c.mu.Lock()
	delete(c.inProgress, cmd.ExecID)
	c.mu.Unlock()
	cmd.cancel(nil)
	close(cmd.ended)
	c.idle.Done()
}

// Kill ends the command's context with a cause.
func (cmd *Command) Kill(cause error) { cmd.cancel(cause) }

// Cancel asks for the end of a command, by the actor of the context, and returns at once; false
// when it is not in progress on this node.
func (c *Commands) Cancel(ctx context.Context, execID string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cmd := c.inProgress[execID]
	if cmd != nil {
		cmd.cancel(canceled{CanceledBy(ctx)})
	}
	return cmd != nil
}

// Ended returns a channel that is closed when the command has ended; nil when it is not in progress
// on this node.
func (c *Commands) Ended(execID string) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cmd := c.inProgress[execID]; cmd != nil {
		return cmd.ended
	}
	return nil
}

// awaited is a command whose beginning some callers wait for.
type awaited struct {
	began   chan struct{}
	waiting int
}

// Await returns a channel that is closed when the command begins on this node; at once if it is in
// progress. The caller must call leave.
func (c *Commands) Await(execID string) (began <-chan struct{}, leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.awaited[execID]
	if a == nil {
		a = &awaited{began: make(chan struct{})}
		if c.inProgress[execID] != nil {
			close(a.began)
			return a.began, func() {}
		}
		c.awaited[execID] = a
	}
	a.waiting++
	return a.began, sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if a.waiting--; a.waiting == 0 && c.awaited[execID] == a {
			delete(c.awaited, execID)
		}
	})
}

// Running is how many commands are in progress.
func (c *Commands) Running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.inProgress)
}

// Drain refuses new commands, lets the commands in progress end until ctx does, kills the rest, and
// returns when all have ended. Safe to call twice.
func (c *Commands) Drain(ctx context.Context) {
	c.mu.Lock()
	c.draining = true
	c.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		c.idle.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	c.kill(ErrShutdown)
	<-ended
}

// CanceledBy is the detail of a command that the actor of the context cancels.
func CanceledBy(ctx context.Context) string {
	if by := admin.ActorOf(ctx); by.Calls() {
		return "canceled by request of " + by.String()
	}
	return "canceled by request"
}

// Killed says why the context of a command ended: by Drain, by Lose, by Cancel, or, when reason is
// empty, for another cause.
func Killed(ctx context.Context) (status audit.Status, reason audit.Reason, detail string) {
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrShutdown) {
		return audit.Canceled, audit.ShuttingDown, "killed because core-api was shutting down"
	}
	if errors.Is(cause, ErrDrained) {
		return audit.Canceled, audit.ShuttingDown, "ended because the node was drained"
	}
	if errors.Is(cause, errLost) {
		return audit.Lost, audit.NodeLost, "killed because the node had lost its lease; it may have run to its end before"
	}
	if c, ok := errors.AsType[canceled](cause); ok {
		return audit.Canceled, audit.ReasonCanceled, c.detail
	}
	return audit.Canceled, "", ""
}

// NewRecord completes the record of a request before anything has happened. EnvKeys may be in any
// order and repeat; a snapshot without fields stands for no policy.
func (c *Commands) NewRecord(request audit.Record, snapshot policy.Snapshot) (audit.Record, error) {
	r := request
	if snapshot.Fields != nil {
		var err error
		if r.PolicySnapshot, err = json.Marshal(snapshot); err != nil {
			return audit.Record{}, fault.Wrap(fault.Internal, err, "the policy snapshot cannot be stored")
		}
	}
	r.Kind = cmp.Or(r.Kind, audit.KindExec)
	r.Args = append([]string{}, r.Args...)
	r.EnvKeys = slices.Compact(slices.Sorted(slices.Values(r.EnvKeys)))
	if r.EnvKeys == nil {
		r.EnvKeys = []string{}
	}
	if r.EnvHMACs == nil {
		r.EnvHMACs = []string{}
	}
	if r.Inputs == nil {
		r.Inputs = []audit.Input{}
	}
	r.CreatedAt, r.NodeID, r.SettingsDigest = c.Now(), c.cfg.NodeID, snapshot.SettingsDigest
	return r, nil
}

// Close closes the row of a command, durably, and tells the observer. r becomes the row if another
// node had ended it, or runs it. An error names the exec.
func (c *Commands) Close(ctx context.Context, r *audit.Record) (spooled bool, err error) {
	r.DurationMS = r.Duration().Milliseconds()
	if spooled, err = c.cfg.Log.Close(context.WithoutCancel(ctx), r); err != nil {
		e := *fault.From(err)
		e.ExecID = r.ExecID
		return false, &e
	}
	if r.Status.Final() { // else another node runs it
		c.observe(*r)
	}
	return spooled, nil
}

// Refuse puts a request that never started on record and tells the observer, unless another exec
// holds its idempotency key: that one is taken.
func (c *Commands) Refuse(ctx context.Context, r audit.Record) (taken *audit.Record, recorded bool, err error) {
	r.EndedAt = r.CreatedAt
	taken, recorded, err = c.cfg.Log.Refuse(context.WithoutCancel(ctx), r)
	if err == nil && taken == nil {
		c.observe(r)
	}
	return taken, recorded, err
}

func (c *Commands) observe(r audit.Record) {
	if c.cfg.Observer != nil {
		c.cfg.Observer.Ended(r)
	}
}
