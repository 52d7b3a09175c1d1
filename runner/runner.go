package runner

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"secbox/audit"
	"secbox/audit/hmackey"
	"secbox/engine"
	"secbox/fault"
	"secbox/internal/admission"
	"secbox/internal/traces"
	"secbox/network"
	"secbox/policy"
	"secbox/runner/diskwatch"
	"secbox/runner/inputstore"
	"secbox/runner/lifecycle"
	"secbox/runner/output"
	"secbox/runner/session"
	"secbox/runner/terminal"
	"secbox/workspace"
	"secbox/workspace/diskspace"
)

// Log is what the runner needs of the audit log.
type Log interface {
	lifecycle.Log
	// Enqueue opens the rows of asynchronous execs with their jobs; see audit.Log.
	Enqueue(ctx context.Context, execs []audit.Waiting, limits audit.JobLimits) ([]audit.Enqueued, error)
	// Start moves the row from queued to running; false when it is no longer queued.
	Start(ctx context.Context, r audit.Record) (bool, error)
	// Newer returns a record that was read before as it is now; see audit.Log.
	Newer(ctx context.Context, r audit.Record) (audit.Record, error)
	// OfKey returns the exec that has the idempotency key of the token; nil if none has.
	OfKey(ctx context.Context, requestedBy, key string) (*audit.Record, error)
}

// Inputs keeps the contents of inputs for replays.
type Inputs interface {
	Keep(token string, contents []inputstore.Content) audit.InputsKept
}

// Images resolves the name of an image.
type Images interface {
	Resolve(ctx context.Context, ref string) (engine.Image, error)
	Forget(ref string)
}

// Callbacks stores where to tell that execs have ended.
type Callbacks interface {
	// Register stores the callback of an exec that has no row yet; Forget removes it if the exec
	// gets none.
	Register(ctx context.Context, execID, requestedBy, url string) error
	Forget(ctx context.Context, execID string) error
}

// Config configures a Runner. All fields are required unless they say otherwise.
type Config struct {
	Log    Log
	Engine engine.Engine
	Images Images
	Policy *policy.Resolver
	Skills Skills // may be nil: then no skill is known
	Inputs Inputs // may be nil: then none are kept
	// KeepRequests keeps the arguments of skills in the records of their execs, see audit.Record.
	KeepRequests bool
	Workspace    *workspace.Workspace
	// Ready is called before an exec that may see the project's work/, to put files there that the
	// exec expects. May be nil.
	Ready    func(ctx context.Context, projectID string) error
	Host     func() policy.Host // what bounds the ceilings; zero values where it is not known yet
	StateDir string             // the parent of captures/ and allotted/
	NodeID   string
	Key      hmackey.Key // of the digests of requests and of secret values
	User     string      // "uid:gid" of every container
	Disk     *diskwatch.Watcher
	Network  *network.Network // may be nil: no job has a network
	Ports    bool             // DialPort may be called; needs Network
	// SecretAllowed reports whether a token, by its id, may use a secret of net.credentials. Nil:
	// none may.
	SecretAllowed func(ctx context.Context, secret, token string) (bool, error)
	Sessions      *session.Set  // may be nil: then there are none
	MaxTTL        time.Duration // of a session
	Slots         int           // execs at once, without those in sessions
	Queue         int           // execs that may wait
	// Each is how many of them may be of one token; zero: all but one of Slots, and three quarters
	// of Queue. Requests without a token have no such bound.
	Each  admission.Share
	Async Async
	// Callbacks are told of requests with a CallbackURL before their rows are stored. May be nil if
	// there are none.
	Callbacks Callbacks
	Now       func() time.Time
	NewID     func() string
	Logger    *slog.Logger
	Observer  lifecycle.Observer // may be nil
	Tracer    *traces.Tracer     // may be nil
}

// Runner runs execs. It is safe for concurrent use.
type Runner struct {
	cfg         Config
	commands    *lifecycle.Commands
	admission   *admission.Gate
	pendingDirs *pendingDirs
	captureDir  string

	sessions *session.Set // never nil

	outputs   *output.Running
	terminals terminal.Set
	stdins    stdinSet
	ends      ends // of asynchronous execs
}

// New makes a runner and removes what an earlier process left of its captures.
func New(cfg Config) (*Runner, error) {
	captureDir := filepath.Join(cfg.StateDir, "captures")
	if err := os.RemoveAll(captureDir); err != nil {
		return nil, stateDirError(err)
	}
	if err := os.MkdirAll(captureDir, 0o700); err != nil {
		return nil, stateDirError(err)
	}
	pending, err := openPendingDirs(filepath.Join(cfg.StateDir, "allotted"))
	if err != nil {
		return nil, err
	}
	pending.recover(cfg.Workspace, cfg.Log, cfg.Logger)
	if cfg.Each.AtOnce <= 0 {
		cfg.Each.AtOnce = max(1, cfg.Slots-1)
	}
	if cfg.Each.Queue <= 0 {
		cfg.Each.Queue = (cfg.Queue*3 + 3) / 4
	}
	r := &Runner{
		cfg: cfg, captureDir: captureDir, pendingDirs: pending,
		admission: admission.NewShared(cfg.Slots, cfg.Queue, cfg.Each),
		commands:  lifecycle.New(lifecycle.Config{Log: cfg.Log, NodeID: cfg.NodeID, Now: cfg.Now, Observer: cfg.Observer}),
	}
	if r.sessions = cfg.Sessions; r.sessions == nil {
		r.sessions = session.New(session.Config{Now: cfg.Now, NewID: cfg.NewID})
	}
	r.outputs = output.Of(r.commands)
	r.admission.AllowBackground(cfg.Async.Places, cfg.Async.Notifier.Notify)
	return r, nil
}

func stateDirError(err error) error {
	if diskspace.IsFull(err) {
		return fault.Wrap(fault.DiskFull, err, "the state dir has no room for an exec's output; free some space")
	}
	return fault.Wrap(fault.Internal, err, "the state dir cannot be written")
}

// Load returns how many execs run and wait now.
func (r *Runner) Load() (running, waiting int) {
	waiting, free := r.admission.Load()
	return r.cfg.Slots - free, waiting
}

// Sessions returns how many sessions run or start on this node.
func (r *Runner) Sessions() int { return r.sessions.Count() }

// SessionTotals counts what has happened to sessions of this node.
func (r *Runner) SessionTotals() session.Totals { return r.sessions.Totals() }

// Cancel asks for an exec's end, by the actor of the context, and returns at once.
// fault.UnknownExec when there is none, fault.ExecEnded when it has ended.
func (r *Runner) Cancel(ctx context.Context, execID string) error {
	if r.commands.Cancel(ctx, execID) {
		return nil
	}
	canceled := false
	record, err := r.endQueued(ctx, execID, func(record *audit.Record) {
		canceled = true
		record.ErrorReason, record.Detail = audit.ReasonCanceled, lifecycle.CanceledBy(ctx)+" before it started"
	})
	switch {
	case err != nil:
		return err
	case canceled && record.Status == audit.Canceled, r.commands.Cancel(ctx, execID): // else it has started a moment ago
		return nil
	case record.Status.Final():
		return fault.New(fault.ExecEnded, "exec %s has ended already: %s", execID, record.Status)
	}
	return fault.New(fault.ExecEnded, "exec %s does not run on this node; its row is about to be ended", execID)
}

// Resolve returns the policy that a request would run under; it runs and writes nothing.
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

// Pause refuses new execs with an error until resume is called.
func (r *Runner) Pause(why *fault.Error) (resume func()) { return r.commands.Pause(why) }

// EndSessions ends each session as soon as no exec runs in it, and refuses execs in all, until
// resume is called.
func (r *Runner) EndSessions() (resume func()) { return r.sessions.Drain(lifecycle.ErrDrained) }

// Lose kills the execs in progress, because other nodes have ended their rows, and returns when all
// have ended. Call it after Pause.
func (r *Runner) Lose() { r.commands.Lose() }

// Drain refuses new execs, lets the running ones end until ctx does, kills the rest, and returns
// when every row is closed. Sessions end when no exec runs in them. Safe to call twice.
func (r *Runner) Drain(ctx context.Context) {
	r.sessions.Drain(lifecycle.ErrShutdown)
	r.commands.Drain(ctx)
}
