package runner

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"secbox/admission"
	"secbox/audit"
	"secbox/diskwatch"
	"secbox/engine"
	"secbox/fault"
	"secbox/policy"
	"secbox/workspace"
)

// Log is what the runner asks of the audit log. Open must be durable before it returns; Close must not return before the record is
// durable in the database or, when spooled is true, in the spool. All are safe for concurrent use.
type Log interface {
	Open(ctx context.Context, r audit.Record) (taken *audit.Record, err error)
	Start(ctx context.Context, r audit.Record) (bool, error)
	Close(ctx context.Context, r audit.Record) (spooled bool, err error)
	Get(ctx context.Context, execID string) (audit.Record, error)

	// Refuse puts a request that never started on record; see audit.Log. There is no row when recorded is false.
	Refuse(ctx context.Context, r audit.Record) (taken *audit.Record, recorded bool, err error)
}

// Images says which image a name stands for now.
type Images interface {
	Resolve(ctx context.Context, ref string) (engine.Image, error)
	Forget(ref string)
}

// Config is what a runner is made of. All fields are needed unless they say otherwise.
type Config struct {
	Log       Log
	Engine    engine.Engine
	Images    Images
	Policy    *policy.Resolver
	Skills    Skills // may be nil: then no skill is known
	Workspace *workspace.Workspace
	Host      func() policy.Host // what bounds the ceilings; zero values where it is not known yet
	StateDir  string             // captures/ lies here
	NodeID    string
	User      string // "uid:gid" of every container
	Disk      *diskwatch.Watcher
	Slots     int // execs at once
	Queue     int // execs that may wait
	// Each is how many of them may be of one token; zero: all but one of Slots, and three quarters of Queue. Requests without a token have no such
	// bound.
	Each     admission.Share
	Now      func() time.Time
	NewID    func() string
	Logger   *slog.Logger
	Observer Observer // may be nil
}

// Observer is told of every exec that ended; for metrics.
type Observer interface {
	Ended(r audit.Record)
}

// Backend is what the records of this package name as theirs.
const Backend = "docker"

// Runner runs execs. It is safe for concurrent use.
type Runner struct {
	cfg       Config
	captures  string
	admission *admission.Gate

	allotments *allotments // of directories whose exec has no row yet

	mu      sync.Mutex
	live    map[string]*live
	closing bool
	idle    sync.WaitGroup
}

// live is an exec between its admission and its closed row.
type live struct {
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when the row is closed
	project string
	capture *capture // nil until there is output; guarded by Runner.mu
}

// Why we kill a job; context.Cause tells them apart.
var (
	errCanceled = errors.New("canceled")
	errShutdown = errors.New("the node shuts down")
)

// New makes a runner and empties what an earlier process left of its captures.
func New(cfg Config) (*Runner, error) {
	captures := filepath.Join(cfg.StateDir, "captures")
	if err := os.RemoveAll(captures); err != nil {
		return nil, stateDirError(err)
	}
	if err := os.MkdirAll(captures, 0o700); err != nil {
		return nil, stateDirError(err)
	}
	allotments, err := openAllotments(filepath.Join(cfg.StateDir, "allotted"))
	if err != nil {
		return nil, err
	}
	allotments.recover(cfg.Workspace, cfg.Logger)
	if cfg.Each.AtOnce <= 0 {
		cfg.Each.AtOnce = max(1, cfg.Slots-1)
	}
	if cfg.Each.Queue <= 0 {
		cfg.Each.Queue = (cfg.Queue*3 + 3) / 4
	}
	return &Runner{
		cfg: cfg, captures: captures, admission: admission.NewShared(cfg.Slots, cfg.Queue, cfg.Each), allotments: allotments, live: map[string]*live{},
	}, nil
}

// now is UTC in microseconds: what the databases keep.
func (r *Runner) now() time.Time { return r.cfg.Now().UTC().Truncate(time.Microsecond) }

// begin registers an exec so that it can be canceled and waited for.
func (r *Runner) begin(execID, project string) (context.Context, *live, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return nil, nil, errClosing()
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	l := &live{cancel: cancel, done: make(chan struct{}), project: project}
	r.live[execID] = l
	r.idle.Add(1)
	return ctx, l, nil
}

func (r *Runner) finish(execID string, l *live) {
	r.mu.Lock()
	delete(r.live, execID)
	r.mu.Unlock()
	l.cancel(nil)
	close(l.done)
	r.idle.Done()
}

func errClosing() error {
	e := fault.New(fault.ShuttingDown, "this node is shutting down; try another one, or again shortly")
	e.RetryAfter = 5 * time.Second
	return e
}

func (r *Runner) find(execID string) *live {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live[execID]
}

// Load is how many execs run and wait now.
func (r *Runner) Load() (running, waiting int) {
	waiting, free := r.admission.Load()
	return r.cfg.Slots - free, waiting
}

// Cancel asks for an exec's end and returns at once. fault.UnknownExec when there is none, fault.ExecEnded when it has ended.
func (r *Runner) Cancel(ctx context.Context, execID string) error {
	if l := r.find(execID); l != nil {
		l.cancel(errCanceled)
		return nil
	}
	record, err := r.cfg.Log.Get(ctx, execID)
	if err != nil {
		return err
	}
	if record.Status.Final() {
		return fault.New(fault.ExecEnded, "exec %s has ended already: %s", execID, record.Status)
	}
	return fault.New(fault.ExecEnded, "exec %s does not run on this node; its row is about to be ended", execID)
}

// Resolve says what the policy of a request would be; it runs and writes nothing.
func (r *Runner) Resolve(_ context.Context, req Request) (policy.Snapshot, error) {
	if req.Image != "" {
		req.Overrides.Image = &req.Image
	}
	manifest, err := r.manifestLayer(req)
	if err != nil {
		return policy.Snapshot{}, err
	}
	return r.cfg.Policy.Resolve(manifest, req.Overrides, r.cfg.Host())
}

// Close refuses new execs, lets the running ones end until ctx does, kills the rest, and returns when every row is closed. Safe to call
// twice.
func (r *Runner) Close(ctx context.Context) error {
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
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	for _, l := range r.live {
		l.cancel(errShutdown)
	}
	r.mu.Unlock()
	<-ended
	return nil
}

func unknownSkill(id string) error {
	e := fault.New(fault.UnknownSkill, "there is no skill %q in the catalog", id)
	e.Fields = []fault.Field{{Field: "skill_id", Reason: "is not in the catalog"}}
	return e
}
