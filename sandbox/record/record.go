// Package record puts every command of a sandbox on record: a command runs only after its row is
// open, and its result is returned only after the row is closed durably. A Recorder wraps another
// sandbox, in most cases the router; file operations pass through, except for changes that a tool
// makes by Change. The package must not know HTTP, SQL or Docker.
package record

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"time"

	"secbox/audit/hmackey"
	"secbox/fault"
	"secbox/internal/traces"
	"secbox/network"
	"secbox/policy"
	"secbox/runner/lifecycle"
	"secbox/runner/output"
	"secbox/sandbox"
)

// Config configures a Recorder. All fields are required unless they say otherwise.
type Config struct {
	Sandbox  sandbox.Backend
	Log      lifecycle.Log
	Policy   *policy.Resolver
	Host     func() policy.Host // what bounds the ceilings
	NodeID   string
	Key      hmackey.Key // of the digests of requests and of secret values
	Now      func() time.Time
	NewID    func() string
	Logger   *slog.Logger
	Observer lifecycle.Observer // may be nil
	Tracer   *traces.Tracer     // may be nil
	Network  *network.Network   // may be nil: no command has a network

	// Enter is called with the location of a command before it begins, and leave when its row is
	// closed: the workspace is in use in between. An error of Enter ends the command before it
	// begins. May be nil.
	Enter func(ctx context.Context, l sandbox.Location) (leave func(), err error)

	// Changed is called after each change of a file, made or not, before Change returns. May be
	// nil.
	Changed func(c sandbox.Change)

	MaxPerUser int // commands of one user at once; 0: 64. Further ones are fault.SandboxBusy and have no row
	Max        int // commands at once; 0: 1024. One token has three quarters of them at most
}

// Recorder is safe for concurrent use.
type Recorder struct {
	sandbox.Backend
	cfg      Config
	commands *lifecycle.Commands
	outputs  *output.Running
}

var (
	_ sandbox.Backend = (*Recorder)(nil)
	_ sandbox.Changer = (*Recorder)(nil)
)

// New makes a Recorder, which owns the sandbox from then on: Close closes it.
func New(cfg Config) *Recorder {
	cfg.MaxPerUser = cmp.Or(max(0, cfg.MaxPerUser), 64)
	cfg.Max = cmp.Or(max(0, cfg.Max), 1024)
	commands := lifecycle.New(lifecycle.Config{Log: cfg.Log, NodeID: cfg.NodeID, Now: cfg.Now, Observer: cfg.Observer})
	return &Recorder{Backend: cfg.Sandbox, cfg: cfg, commands: commands, outputs: output.Of(commands)}
}

// Exec implements sandbox.Sandbox. A command that Cancel has ended has a result, too: its ExitCode
// is -1, Detail names the reason, and its output until then is there. A command that was killed
// because this node shuts down is fault.ShuttingDown.
func (r *Recorder) Exec(ctx context.Context, spec sandbox.ExecSpec) (*sandbox.ExecResult, error) {
	return r.run(ctx, spec, &stream{keep: true}, &stream{keep: true})
}

// ExecTo implements sandbox.Streamer; see Exec.
func (r *Recorder) ExecTo(ctx context.Context, spec sandbox.ExecSpec, stdout, stderr io.Writer) (*sandbox.ExecResult, error) {
	return r.run(ctx, spec, &stream{to: stdout}, &stream{to: stderr})
}

// begin registers a command, within the limits of its user, its token and the node.
func (r *Recorder) begin(ctx context.Context, execID, userID string) (context.Context, *lifecycle.Command, error) {
	token := sandbox.RequestOf(ctx).RequestedBy
	return r.commands.Begin(ctx, lifecycle.Command{ExecID: execID, User: userID, Token: token},
		func(inProgress map[string]*lifecycle.Command) error {
			ofUser, ofToken := 0, 0
			for _, c := range inProgress {
				if c.User == userID {
					ofUser++
				}
				if c.Token == token {
					ofToken++
				}
			}
			switch {
			case len(inProgress) >= r.cfg.Max:
				return sandbox.Busy("%d commands run in sandboxes already; try again shortly", len(inProgress))
			case token != "" && token != sandbox.Tokenless && ofToken >= max(1, r.cfg.Max*3/4):
				return sandbox.Busy("%d commands of this token run already; try again shortly", ofToken)
			case ofUser >= r.cfg.MaxPerUser:
				return sandbox.Busy("%d commands of this user run already; try again shortly", ofUser)
			}
			return nil
		})
}

// Cancel asks for the end of a command, by the actor of the context, and returns at once; false
// when it does not run on this node.
func (r *Recorder) Cancel(ctx context.Context, execID string) bool {
	return r.commands.Cancel(ctx, execID)
}

// lingering is how long a follower of a command can read its output after its end.
const lingering = time.Second

// Follow waits until the progress of a command differs from seen; see output.Running. Only the
// first output.InlineBytes of each stream are kept, only while the command runs, and only if its
// caller takes the output.
func (r *Recorder) Follow(ctx context.Context, execID string, seen output.Progress) (output.Progress, error) {
	return r.outputs.Follow(ctx, execID, seen)
}

// OpenOutput opens what a command has written to "stdout" or "stderr" so far, as far as it is kept,
// and returns its size in bytes; nil for a command that does not run here.
func (r *Recorder) OpenOutput(execID, stream string) (io.ReadSeekCloser, int64) {
	return r.outputs.Open(execID, stream)
}

// Running is how many commands run now.
func (r *Recorder) Running() int { return r.commands.Running() }

// Pause refuses new commands with an error until resume is called. File operations go on.
func (r *Recorder) Pause(why *fault.Error) (resume func()) { return r.commands.Pause(why) }

// Lose kills the commands in progress, because other nodes have ended their rows, and returns when
// all have ended. Call it after Pause.
func (r *Recorder) Lose() { r.commands.Lose() }

// Drain refuses new commands, lets the running ones end until ctx does, kills the rest, and returns
// when every row is closed. File operations go on until Close. Safe to call twice.
func (r *Recorder) Drain(ctx context.Context) { r.commands.Drain(ctx) }

// Close implements sandbox.Sandbox. It kills the running commands and closes their rows first.
func (r *Recorder) Close() error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	r.Drain(now)
	return r.Backend.Close()
}
