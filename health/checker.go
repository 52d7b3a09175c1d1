package health

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"secbox/audit"
	"secbox/engine"
	"secbox/engine/dockercli"
	"secbox/fault"
	"secbox/policy"
	"secbox/skills"
	"secbox/workspace/diskspace"
)

// Workspace is the workspace root. Its methods may hang, and are safe for concurrent use.
type Workspace interface {
	// Free returns the free space of its file system.
	Free() (diskspace.Space, error)
	// Writable creates and removes a small file; fault.DiskFull when there is no room for it.
	Writable() error
}

// Database answers whether an audit row could be written. Safe for concurrent use.
type Database interface {
	Ping(ctx context.Context) error
}

// Images resolves the name of an image: fault.ImageMissing, fault.EngineUnavailable. Safe for
// concurrent use.
type Images interface {
	Resolve(ctx context.Context, ref string) (engine.Image, error)
}

// Config configures a Checker. Fields are required unless they say otherwise.
type Config struct {
	CLI      *dockercli.CLI // nil: the docker binary was not found
	CLIError error          // why CLI is nil; a *fault.Error
	// Cluster asks the cluster that is the engine for its version; CLI is nil then. Nil: Docker is
	// the engine.
	Cluster func(ctx context.Context) (string, error)
	Copies  bool            // the files of execs are copied to the cluster's pods and back
	Images  Images          // nil when CLI is
	Image   string          // the image of an exec that names none
	Allowed func() []string // the other images that a skill or a request may name now; nil: none

	Workspace    Workspace
	Database     Database
	DatabaseKind string // sqlite or postgres
	// AuditLog measures the transparency log. Nil: it is not reported.
	AuditLog func(ctx context.Context) (AuditLog, error)

	// Spool tells which results the database does not have. Nil: it is not reported.
	Spool func() (audit.Unstored, error)

	// Retention tells what rules removed. Nil: it is not reported.
	Retention func(ctx context.Context) (Retention, error)
	StateDir  string
	// NotCreated says that StateDir, or the embedded database in it, does not exist yet: then its
	// nearest existing parent is checked, and Database is not.
	NotCreated bool
	// CheckStateDir checks the file system of the state dir (settings.CheckStateDir). Nil: it is
	// not checked.
	CheckStateDir func(dir string) error

	// From the path adapter.
	RuntimeMode         string // linux, windows, wsl or container
	WorkspaceRootNative string
	DockerRoot          string // the workspace root in docker's form; empty in a volume
	WorkspaceVolume     string // the volume that is the workspace root; empty: it is a directory of the engine's machine

	ContainerUser  string // "uid:gid" of every job
	Runtime        string // OCI runtime of every container, from the settings; empty: the engine's default
	ReadOnlyRootfs bool
	OwnSeccomp     bool // containers get core-api's seccomp profile, not the engine's
	Podman         bool // podman's service was the engine at the start

	// Skills returns the catalog without waiting. Nil: skills are not reported.
	Skills func() *skills.Snapshot

	// The runner refuses execs below these. 0: not checked.
	FreeMinBytes  uint64
	FreeMinInodes uint64

	Version string
	NodeID  string
	Now     func() time.Time
	Logger  *slog.Logger
}

// Timeouts. All checks run at the same time, so a report takes no longer than the longest.
const (
	engineTimeout   = 2500 * time.Millisecond // docker info: 30 ms on Linux, up to a second on Docker Desktop
	databaseTimeout = 2 * time.Second
	diskTimeout     = 2 * time.Second
)

// How long answers are cached.
const (
	reportAge = time.Second      // for reports
	engineAge = 5 * time.Second  // docker info and docker image inspect start a process each
	readyAge  = 5 * time.Second  // for load balancers and metrics
	recentAge = 15 * time.Second // for live pages, while newer answers are made
	// of the log on them, which may stop soon after the start: a page that refreshes itself every 5
	// seconds does not wait
	logAge = 6 * time.Second
	// allowedAge is longer, since each missing image starts a process.
	allowedAge = 15 * time.Second
)

// Checker checks the needs of an exec. It is safe for concurrent use.
type Checker struct {
	cfg    Config
	gauges []gauge

	engine    cached[engineInfo]
	image     cached[engine.Image]
	allowed   cached[[]string] // the missing ones
	database  cached[struct{}]
	root      cached[disk] // the workspace's
	state     cached[disk] // the state dir's
	stateFS   cached[struct{}]
	auditLog  cached[AuditLog]
	retention cached[Retention]
	spool     cached[audit.Unstored]

	mu   sync.Mutex
	host policy.Host
}

// New returns a Checker; it checks nothing yet.
func New(cfg Config) *Checker {
	c := &Checker{cfg: cfg, gauges: newGauges()}
	state := cfg.StateDir
	if cfg.NotCreated {
		state, _ = diskspace.Existing(state) // measuring it fails if looking it up did
	}
	setUp(&c.engine, cfg, "engine", engineTimeout, c.askEngine)
	setUp(&c.image, cfg, "image", engineTimeout, c.askImage)
	setUp(&c.allowed, cfg, "allowed_images", engineTimeout, c.askAllowed)
	setUp(&c.database, cfg, "database", databaseTimeout, func(ctx context.Context) (struct{}, error) {
		if cfg.NotCreated {
			return struct{}{}, nil
		}
		return struct{}{}, cfg.Database.Ping(ctx)
	})
	setUp(&c.auditLog, cfg, "audit_log", databaseTimeout, func(ctx context.Context) (AuditLog, error) {
		if cfg.AuditLog == nil {
			return AuditLog{}, nil
		}
		return cfg.AuditLog(ctx)
	})
	setUp(&c.retention, cfg, "retention", databaseTimeout, func(ctx context.Context) (Retention, error) {
		if cfg.Retention == nil {
			return Retention{}, nil
		}
		return cfg.Retention(ctx)
	})
	setUp(&c.spool, cfg, "audit_spool", diskTimeout, func(context.Context) (audit.Unstored, error) {
		if cfg.Spool == nil {
			return audit.Unstored{}, nil
		}
		return cfg.Spool()
	})
	setUp(&c.root, cfg, "workspace", diskTimeout, func(context.Context) (disk, error) { return measure(cfg.Workspace) })
	setUp(&c.state, cfg, "state_dir", diskTimeout, func(context.Context) (disk, error) { return measure(stateDir(state)) })
	setUp(&c.stateFS, cfg, "state_dir_file_system", diskTimeout, func(context.Context) (struct{}, error) {
		if cfg.CheckStateDir == nil {
			return struct{}{}, nil
		}
		return struct{}{}, cfg.CheckStateDir(cfg.StateDir)
	})
	return c
}

func setUp[T any](l *cached[T], cfg Config, name string, timeout time.Duration, ask func(context.Context) (T, error)) {
	l.name, l.ask, l.timeout, l.now, l.log = name, ask, timeout, cfg.Now, cfg.Logger
}

// Warm runs all checks once, for the first exec and the first request. It returns within three
// seconds.
func (c *Checker) Warm(ctx context.Context) { c.survey(ctx, reportAge, 0) }

// Host is the size of the engine's machine at the last check; zero before the first answer.
func (c *Checker) Host() policy.Host {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.host
}

func (c *Checker) askEngine(ctx context.Context) (engineInfo, error) {
	if c.cfg.Cluster != nil {
		version, err := c.cfg.Cluster(ctx)
		return engineInfo{Cluster: version}, err
	}
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
	if c.cfg.Images == nil {
		return engine.Image{}, c.noCLI()
	}
	return c.cfg.Images.Resolve(ctx, c.cfg.Image)
}

// askAllowed returns the allowed images that the engine lacks.
func (c *Checker) askAllowed(ctx context.Context) (missing []string, err error) {
	if c.cfg.Allowed == nil {
		return nil, nil
	}
	for _, ref := range c.cfg.Allowed() {
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

// survey is the result of all checks.
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
	auditLog    AuditLog
	auditLogErr error
	logReported bool // the audit log is measured

	retention         Retention
	retentionErr      error
	retentionReported bool

	spool         audit.Unstored
	spoolErr      error
	spoolReported bool
}

// imagePresent ignores a cached answer when the engine does not answer.
func (s survey) imagePresent() bool { return s.engineErr == nil && s.imageErr == nil }

// errs is the errors of all checks.
func (s survey) errs() []error {
	return []error{
		s.engineErr, s.imageErr, s.allowedErr, s.databaseErr, s.rootErr, s.stateErr, s.stateFSErr, s.auditLogErr,
		s.retentionErr, s.spoolErr,
	}
}

// survey runs all checks at once.
func (c *Checker) survey(ctx context.Context, maxAge, staleAge time.Duration) survey {
	s := survey{logReported: c.cfg.AuditLog != nil, retentionReported: c.cfg.Retention != nil, spoolReported: c.cfg.Spool != nil}
	var all sync.WaitGroup
	all.Go(func() { s.engine, s.engineErr = c.engine.soon(ctx, max(maxAge, engineAge), staleAge) })
	all.Go(func() { s.image, s.imageErr = c.image.soon(ctx, max(maxAge, engineAge), staleAge) })
	all.Go(func() { s.missing, s.allowedErr = c.allowed.soon(ctx, max(maxAge, allowedAge), staleAge) })
	all.Go(func() { _, s.databaseErr = c.database.soon(ctx, maxAge, staleAge) })
	all.Go(func() { s.root, s.rootErr = c.root.soon(ctx, maxAge, staleAge) })
	all.Go(func() { s.state, s.stateErr = c.state.soon(ctx, maxAge, staleAge) })
	all.Go(func() { _, s.stateFSErr = c.stateFS.soon(ctx, max(maxAge, time.Minute), staleAge) })
	all.Go(func() { s.retention, s.retentionErr = c.retention.soon(ctx, maxAge, staleAge) })
	all.Go(func() { s.auditLog, s.auditLogErr = c.auditLog.soon(ctx, maxAge, min(staleAge, logAge)) })
	all.Go(func() { s.spool, s.spoolErr = c.spool.soon(ctx, maxAge, staleAge) })
	all.Wait()
	return s
}

// disk is the free space of a directory's file system.
type disk struct {
	bytes, inodes uint64
	known         bool // bytes and inodes could be read
}

func (d disk) space() *diskspace.Space {
	if !d.known {
		return nil
	}
	return &diskspace.Space{Bytes: d.bytes, Inodes: d.inodes}
}

// measure returns the free space even when nothing can be written.
func measure(w Workspace) (disk, error) {
	var d disk
	free, freeErr := w.Free()
	if freeErr == nil {
		d = disk{bytes: free.Bytes, inodes: free.Inodes, known: true}
	}
	return d, errors.Join(w.Writable(), freeErr)
}

// stateDir is the state dir as a Workspace.
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

// Failing is a workspace and a database that could not be opened, for a doctor that reports the
// error.
type Failing struct{ Err error }

// Ping fails.
func (f Failing) Ping(context.Context) error { return f.Err }

// Free fails.
func (f Failing) Free() (diskspace.Space, error) { return diskspace.Space{}, f.Err }

// Writable fails.
func (f Failing) Writable() error { return f.Err }
