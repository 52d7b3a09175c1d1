package docker

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"secbox/engine"
	"secbox/policy"
	"secbox/runner/diskwatch"
	"secbox/sandbox"
	"secbox/workspace"
)

// Container describes the containers to start. It is asked for before every command: a running
// container that differs is replaced as soon as none of its commands runs.
type Container struct {
	Image   string // by name; resolved before every command
	Limits  policy.ContainerLimits
	User    string // "uid:gid", the owner of work/ and the home
	Runtime string // the OCI runtime by the engine's name for it; empty: the engine's default
	// ReadOnly mounts Root read-only, for a policy whose fs.write leaves it out. File operations
	// still write.
	ReadOnly   bool
	Refused    error         // why the policy lets no command see a workspace; nil: it does
	MaxTimeout time.Duration // the longest timeout of a command; 0: no bound
}

// Images resolves the name of an image; *engine.Images does.
type Images interface {
	Resolve(ctx context.Context, ref string) (engine.Image, error)
}

// Engine starts containers; *engine.Cold does.
type Engine interface {
	StartResident(ctx context.Context, spec engine.ResidentSpec) (*engine.Resident, error)
}

// Config configures a Sandbox.
type Config struct {
	Directories sandbox.Directories
	Workspace   *workspace.Workspace // holds the homes; Directories opens it, and Disk watches its disk
	Engine      Engine
	Images      Images
	Container   func() Container
	Disk        *diskwatch.Watcher

	IdleFor     time.Duration // how long a container without commands runs; 0: 15 minutes
	Max         int           // containers at once; 0: 16. Beyond it the idle one used least recently is stopped, or fault.SandboxBusy
	MaxPerToken int           // of them started by one token; 0: three quarters. Commands without a token have no such bound
	MaxCommands int           // commands of one user at once; 0: 64, which is also the most. Beyond: fault.SandboxBusy

	ReadOnlyRoots []sandbox.ReadOnlyRoot

	Log *slog.Logger
	Now func() time.Time // nil: time.Now
}

// The bounds of a Config without any.
const (
	defaultIdleFor = 15 * time.Minute
	defaultMax     = 16
)

func (c Config) withDefaults() Config {
	c.IdleFor = cmp.Or(max(0, c.IdleFor), defaultIdleFor)
	c.Max = cmp.Or(max(0, c.Max), defaultMax)
	c.MaxPerToken = cmp.Or(max(0, c.MaxPerToken), (c.Max*3+3)/4)
	if c.MaxCommands <= 0 || c.MaxCommands > engine.MaxResidentCommands {
		c.MaxCommands = engine.MaxResidentCommands
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}
