package docker

import (
	"context"
	"log/slog"
	"time"

	"secbox/diskwatch"
	"secbox/engine"
	"secbox/sandbox"
	"secbox/workspace"
)

// Container is what the containers are made as. It is asked for before every command, so a changed one takes effect with the next start;
// a running container that differs is replaced as soon as none of its commands runs.
type Container struct {
	Image   string // by name; what it stands for is resolved when a container starts
	Limits  engine.Limits
	User    string // "uid:gid", whom work/ and the home belong to
	Runtime string // the OCI runtime by the engine's name for it; empty: the engine's default
	// ReadOnly lets commands look at Root and not change it: what the policy's fs.write leaves out. Files are still written by whoever asks
	// for that.
	ReadOnly bool
	Refused  error // why the policy lets no command see a workspace; nil: it does
	// MaxTimeout bounds a command's Timeout; 0: nothing does.
	MaxTimeout time.Duration
}

// Images says which image a name stands for now; *engine.Images does.
type Images interface {
	Resolve(ctx context.Context, ref string) (engine.Image, error)
}

// Engine starts the containers; *engine.Cold does.
type Engine interface {
	StartResident(ctx context.Context, spec engine.ResidentSpec) (*engine.Resident, error)
}

// Config is what the sandbox is made of.
type Config struct {
	Places    sandbox.Places
	Workspace *workspace.Workspace // where the homes lie; the same that Places opens, and whose disk Disk watches
	Engine    Engine
	Images    Images
	Container func() Container
	Disk      *diskwatch.Watcher

	IdleFor time.Duration // after how long without a command a container is stopped; 0: 15 minutes
	// MovePatience is for how long a move to another image waits for commands that run; then they are killed. 0: 30 seconds.
	MovePatience time.Duration
	MaxPerToken  int // of them started by one token; 0: three quarters. Commands without a token have no such bound
	Max          int // containers at once; 0: 16. Beyond it the idle one used least recently goes; when none is idle: fault.SandboxBusy
	// MaxCommands is how many commands of one user run at once; 0: 64, which is also the most. Beyond it: fault.SandboxBusy.
	MaxCommands int

	ReadOnlyRoots []sandbox.ReadOnlyRoot

	Log *slog.Logger
	Now func() time.Time // nil: time.Now
}
