package health

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"secbox/diskspace"
	"secbox/dockercli"
	"secbox/engine"
	"secbox/fault"
	"secbox/policy"
	"secbox/skills"
)

// Workspace is what is asked of the workspace root. Both may hang: nothing waits for them for long. Safe for concurrent use.
type Workspace interface {
	// Free is the room on its file system.
	Free() (diskspace.Space, error)
	// Writable makes and removes a small file; fault.DiskFull when there is no room for it.
	Writable() error
}

// Database answers whether an audit row could be written. Safe for concurrent use.
type Database interface {
	Ping(ctx context.Context) error
}

// Images says which image a name stands for now: fault.ImageMissing, fault.EngineUnavailable. Safe for concurrent use.
type Images interface {
	Resolve(ctx context.Context, ref string) (engine.Image, error)
}

// Config is what a Checker is made of. All fields are needed unless they say otherwise.
type Config struct {
	CLI      *dockercli.CLI // nil: the docker binary was not found
	CLIError error          // why CLI is nil; a *fault.Error
	Images   Images         // nil when CLI is
	Image    string         // the image of an exec that names none
	Allowed  []string       // the other images that a skill or a request may name

	Workspace    Workspace
	Database     Database
	DatabaseKind string // sqlite or postgres
	StateDir     string
	// Unmade says that StateDir, or the embedded database in it, is not there yet: what is looked at then is the nearest directory above
	// it that exists, and Database is not asked.
	Unmade bool
	// CheckStateDir says what is wrong with the file system of the state dir (settings.CheckStateDir). Nil: it is not looked at.
	CheckStateDir func(dir string) error

	// What the path adapter found.
	RuntimeMode         string // linux, windows, wsl or container
	WorkspaceRootNative string
	DockerRoot          string // the workspace root as docker is given it

	ContainerUser  string // "uid:gid" of every job
	Runtime        string // OCI runtime of every container, as the settings say; empty: the engine's default
	ReadOnlyRootfs bool

	// Skills is the catalog; it answers at once. Nil: nothing is said about skills.
	Skills func() *skills.Snapshot

	// Less free than this, and the runner refuses execs. 0: not looked at.
	FreeMinBytes  uint64
	FreeMinInodes uint64

	Version string
	NodeID  string
	Now     func() time.Time
	Logger  *slog.Logger
}

// How long an answer is waited for. All are asked at the same time, so a report takes no longer than the longest.
const (
	enginePatience   = 2500 * time.Millisecond // docker info: 30 ms on Linux, up to a second on Docker Desktop
	databasePatience = 2 * time.Second
	diskPatience     = 2 * time.Second
)

// How long an answer is believed.
const (
	reportAge = time.Second     // by somebody who looks
	engineAge = 5 * time.Second // docker info and docker image inspect start a process each
	readyAge  = 5 * time.Second // by a load balancer
	// allowedAge is longer: an image that is not there is asked for anew each time, by a process of its own.
	allowedAge = 15 * time.Second
)

// Checker knows what an exec needs. It is safe for concurrent use.
type Checker struct {
	cfg    Config
	gauges []gauge

	engine   look[engineInfo]
	image    look[engine.Image]
	allowed  look[[]string] // those that the engine does not hold
	database look[struct{}]
	root     look[disk] // the workspace's
	state    look[disk] // the state dir's
	stateFS  look[struct{}]

	mu   sync.Mutex
	host policy.Host
}

// New makes a Checker; it asks nothing yet.
func New(cfg Config) *Checker {
	c := &Checker{cfg: cfg, gauges: newGauges()}
	state := cfg.StateDir
	if cfg.Unmade {
		state = existing(state)
	}
	setUp(&c.engine, cfg, "engine", enginePatience, c.askEngine)
	setUp(&c.image, cfg, "image", enginePatience, c.askImage)
	setUp(&c.allowed, cfg, "allowed_images", enginePatience, c.askAllowed)
	setUp(&c.database, cfg, "database", databasePatience, func(ctx context.Context) (struct{}, error) {
		if cfg.Unmade {
			return struct{}{}, nil
		}
		return struct{}{}, cfg.Database.Ping(ctx)
	})
	setUp(&c.root, cfg, "workspace", diskPatience, func(context.Context) (disk, error) { return lookAt(cfg.Workspace) })
	setUp(&c.state, cfg, "state_dir", diskPatience, func(context.Context) (disk, error) { return lookAt(stateDir(state)) })
	setUp(&c.stateFS, cfg, "state_dir_file_system", diskPatience, func(context.Context) (struct{}, error) {
		if cfg.CheckStateDir == nil {
			return struct{}{}, nil
		}
		return struct{}{}, cfg.CheckStateDir(cfg.StateDir)
	})
	return c
}

func setUp[T any](l *look[T], cfg Config, name string, patience time.Duration, ask func(context.Context) (T, error)) {
	l.name, l.ask, l.patience, l.now, l.log = name, ask, patience, cfg.Now, cfg.Logger
}

// Warm asks everything once, so that the first exec and the first request find answers. It returns within three seconds.
func (c *Checker) Warm(ctx context.Context) { c.survey(ctx, reportAge) }

// Host is the engine's machine as it was last seen; zero values while it was never seen.
func (c *Checker) Host() policy.Host {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.host
}

func (c *Checker) askEngine(ctx context.Context) (engineInfo, error) {
	if c.cfg.CLI == nil {
		return engineInfo{}, c.noCLI()
	}
	info, err := askInfo(ctx, c.cfg.CLI)
	if err == nil {
		c.mu.Lock()
		c.host = policy.Host{CPUs: info.NCPU, MemoryMB: info.MemTotal >> 20}
		c.mu.Unlock()
	}
	return info, err
}

func (c *Checker) askImage(ctx context.Context) (engine.Image, error) {
	if c.cfg.CLI == nil || c.cfg.Images == nil {
		return engine.Image{}, c.noCLI()
	}
	return c.cfg.Images.Resolve(ctx, c.cfg.Image)
}

// askAllowed names the allowed images that the engine does not hold.
func (c *Checker) askAllowed(ctx context.Context) (missing []string, err error) {
	for _, ref := range c.cfg.Allowed {
		if c.cfg.Images == nil {
			return nil, c.noCLI()
		}
		if _, err := c.cfg.Images.Resolve(ctx, ref); fault.Is(err, fault.ImageMissing) {
			missing = append(missing, ref)
		} else if err != nil {
			return missing, err
		}
	}
	return missing, nil
}

func (c *Checker) noCLI() error {
	if c.cfg.CLIError != nil {
		return c.cfg.CLIError
	}
	return fault.New(fault.EngineUnavailable, "the docker CLI was not found")
}

// survey is one look at everything.
type survey struct {
	engine      engineInfo
	engineErr   error
	image       engine.Image
	imageErr    error
	missing     []string // of the allowed images
	allowedErr  error
	databaseErr error
	root        disk
	rootErr     error
	state       disk
	stateErr    error
	stateFSErr  error
}

// imagePresent does not believe an answer from before the engine went away.
func (s survey) imagePresent() bool { return s.engineErr == nil && s.imageErr == nil }

// survey asks everything at once, and gives up on what does not answer.
func (c *Checker) survey(ctx context.Context, maxAge time.Duration) survey {
	var s survey
	var all sync.WaitGroup
	all.Go(func() { s.engine, s.engineErr = c.engine.get(ctx, max(maxAge, engineAge)) })
	all.Go(func() { s.image, s.imageErr = c.image.get(ctx, max(maxAge, engineAge)) })
	all.Go(func() { s.missing, s.allowedErr = c.allowed.get(ctx, max(maxAge, allowedAge)) })
	all.Go(func() { _, s.databaseErr = c.database.get(ctx, maxAge) })
	all.Go(func() { s.root, s.rootErr = c.root.get(ctx, maxAge) })
	all.Go(func() { s.state, s.stateErr = c.state.get(ctx, maxAge) })
	all.Go(func() { _, s.stateFSErr = c.stateFS.get(ctx, max(maxAge, time.Minute)) })
	all.Wait()
	return s
}

// disk is what is known about a directory's file system.
type disk struct {
	bytes, inodes uint64
	known         bool // bytes and inodes could be read
}

// lookAt tells the room even when nothing can be written.
func lookAt(w Workspace) (disk, error) {
	var d disk
	free, freeErr := w.Free()
	if freeErr == nil {
		d = disk{bytes: free.Bytes, inodes: free.Inodes, known: true}
	}
	return d, errors.Join(w.Writable(), freeErr)
}

// stateDir looks at the state dir as a Workspace is looked at.
type stateDir string

func (s stateDir) Free() (diskspace.Space, error) { return diskspace.Free(string(s)) }

// Writable writes a block, since a full disk still takes an empty file.
func (s stateDir) Writable() error {
	f, err := os.CreateTemp(string(s), ".probe-*")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4096))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// existing is the directory, or the nearest one above it that exists.
func existing(dir string) string {
	for {
		parent := filepath.Dir(dir)
		if _, err := os.Stat(dir); err == nil || parent == dir {
			return dir
		}
		dir = parent
	}
}

// Failing is a workspace and a database that could not be opened: a doctor says so instead of giving up.
type Failing struct{ Err error }

// Ping fails.
func (f Failing) Ping(context.Context) error { return f.Err }

// Free fails.
func (f Failing) Free() (diskspace.Space, error) { return diskspace.Space{}, f.Err }

// Writable fails.
func (f Failing) Writable() error { return f.Err }
