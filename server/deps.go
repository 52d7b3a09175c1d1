package server

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"secbox/audit"
	"secbox/engine"
	"secbox/engine/attach"
	"secbox/engine/dockercli"
	"secbox/fault"
	"secbox/health"
	"secbox/images/catalog"
	"secbox/internal/buildinfo"
	"secbox/packages/versions"
	"secbox/pathadapter"
	"secbox/policy"
	"secbox/settings"
	"secbox/skills"
	"secbox/store"
	"secbox/workspace"
)

// Deps are what serve, doctor, skills repair and the bench share: the docker CLI, the paths, and
// the user of containers.
type Deps struct {
	settings  settings.Settings
	log       *slog.Logger   // nil except in a Server
	cli       *dockercli.CLI // nil if a cluster is the engine
	cluster   cluster        // nil if Docker is the engine
	adapter   pathadapter.Adapter
	User      string // uid:gid of every container
	podman    bool   // podman's service was the engine at the start
	policy    *policy.Resolver
	image     string               // the default of execs
	Images    *engine.Images       // nil if a cluster is the engine
	Own       *catalog.Table       // empty until it is opened
	Workspace *workspace.Workspace // nil until OpenWorkspace
	versions  *versions.Store      // of the workspace
	skills    *skills.Catalog      // nil until OpenSkills
}

// NewDeps finds the docker CLI and resolves paths, user and policy. It opens nothing.
func NewDeps(s settings.Settings, environ []string) (*Deps, error) {
	if s.Sandbox.Engine == settings.EngineKubernetes {
		return newClusterDeps(s)
	}
	cli, err := dockercli.Find(s.Sandbox.DockerPath, environ)
	if err != nil {
		return nil, err
	}
	adapter, err := newAdapter(s, cli)
	if err != nil {
		return nil, err
	}
	if adapter.Volume() != "" {
		cli.RequireSubpath()
	}
	images := engine.NewImages(cli, policy.DefaultImage, s.Sandbox.InitVolume, time.Now)
	d := &Deps{settings: s, cli: cli, adapter: adapter, Images: images}
	if err := d.resolvePolicy(images); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	info, err := cli.Info(ctx) // empty if the engine does not answer
	switch {
	case adapter.Volume() == "":
	case dockercli.IsTooOld(err):
		return nil, err
	case info.IsPodman():
		return nil, fault.New(fault.InvalidSettings, "the engine is podman, which may mount the whole volume of sandbox.workspace_volume into "+
			"each container; use Docker's engine, or set sandbox.workspace_root_host to a directory of its machine")
	}
	d.User, d.podman = sandboxUser(ctx, s, adapter.Mode(), cli, info), info.IsPodman()
	return d, nil
}

// resolvePolicy makes the policy, and the table of own images in front of the engine's.
func (d *Deps) resolvePolicy(images engine.ImageResolver) error {
	d.Own = catalog.NewTable(images, time.Now)
	rules := d.settings.PolicyConfig()
	rules.Own = d.Own.Names
	var err error
	if d.policy, err = policy.New(rules); err != nil {
		return err
	}
	snapshot, err := d.policy.Resolve(nil, policy.Layer{}, policy.Host{})
	d.image = snapshot.Values.Image
	return err
}

// cluster is a Kubernetes cluster as the engine.
type cluster interface {
	engine.Driver
	NewImages(user string, newID func() string, now func() time.Time) engine.ImageResolver
	// Version is the version of its API server.
	Version(ctx context.Context) (string, error)
}

// newClusterDeps is NewDeps for a cluster as the engine.
func newClusterDeps(s settings.Settings) (*Deps, error) {
	c, err := openCluster(s.Sandbox, slog.Default())
	if err != nil {
		return nil, err
	}
	adapter, err := newClusterAdapter(s)
	if err != nil {
		return nil, err
	}
	d := &Deps{settings: s, cluster: c, adapter: adapter, User: cmp.Or(s.Sandbox.User, standardUser)}
	return d, d.resolvePolicy(c.NewImages(d.User, NewID, time.Now))
}

// OpenWorkspace opens the workspace root; the caller closes d.Workspace.
func (d *Deps) OpenWorkspace() (err error) {
	uid, gid := owner(d.User)
	opts := workspace.Options{Adapter: d.adapter, UID: uid, GID: gid, MarkEvery: markEvery(idleAfter(d.settings))}
	if d.Workspace, err = workspace.Open(opts); err == nil {
		d.versions = versions.New(d.Workspace)
	}
	return err
}

// OpenExistingWorkspace is OpenWorkspace for commands beside a server: it refuses a root without
// projects, in which all files of the installation would seem to be gone.
func (d *Deps) OpenExistingWorkspace() error {
	root := d.adapter.NativeRoot()
	if _, err := os.Stat(filepath.Join(root, "projects")); errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(fault.InvalidSettings, err,
			"there are no projects in the workspace root %s: no core-api has run on it. Give the server's --workspace-root or --config", root)
	}
	return d.OpenWorkspace()
}

// OpenSkills loads the catalog. The operator's folder must exist; a broken skill in it does not
// affect the others.
func (d *Deps) OpenSkills(log *slog.Logger) (err error) {
	dir := d.settings.Sandbox.SkillsDir
	if dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return fault.Wrap(fault.InvalidSettings, err,
				"sandbox.skills_dir: cannot read the directory %s; create it, or remove the setting", dir)
		}
		if err := settings.CheckSkillsDir(dir, d.settings.StateDir, d.adapter.NativeRoot()); err != nil {
			return err
		}
	}
	d.skills, err = skills.Open(skills.Config{Dir: dir, Logger: log})
	return err
}

// The most that is copied to a pod and back for an exec, each way. A project that is larger needs a
// volume, which the error says.
const (
	copyMaxBytes   = 2 << 30
	copyMaxEntries = 250_000 // as many as a project may have
)

// NewEngine makes a cold engine. dir must exist as long as the engine: the docker CLI reads the
// seccomp profile from it.
func (d *Deps) NewEngine(identity engine.Identity, dir string, log *slog.Logger) (*engine.Cold, error) {
	if d.cluster != nil {
		cfg := engine.Config{Driver: d.cluster, Identity: identity, NewID: NewID, Log: log}
		if d.copies() {
			cfg.Copy = &engine.Copying{MaxBytes: copyMaxBytes, MaxEntries: copyMaxEntries}
		}
		return engine.NewCold(cfg), nil
	}
	seccomp := ""
	if d.settings.Sandbox.Seccomp != settings.SeccompOfEngine {
		var err error
		if seccomp, err = engine.WriteSeccomp(dir); err != nil {
			return nil, err
		}
		if toWindows := wslpath(); d.cli.IsExe() && toWindows != nil { // docker.exe needs a Windows path
			if seccomp, err = toWindows(seccomp, true); err != nil {
				return nil, fault.Wrap(fault.InvalidSettings, err, "docker.exe cannot read the seccomp profile; set sandbox.seccomp to %s",
					settings.SeccompOfEngine)
			}
		}
	}
	return engine.NewCold(engine.Config{
		Driver: engine.NewDocker(d.cli, engine.Options{
			ReadOnlyRootfs: d.settings.Sandbox.ReadOnlyRootfs, Seccomp: seccomp,
			Podman: d.podman, WorkspaceVolume: d.adapter.Volume(),
		}), Identity: identity, NewID: NewID, Log: log,
	}), nil
}

// copies reports whether the files of execs are copied to pods, which then serve any project.
func (d *Deps) copies() bool {
	return d.cluster != nil && d.settings.Sandbox.Kubernetes.VolumeClaim == ""
}

func (d *Deps) newPool(cold *engine.Cold, nodeID string, host func() policy.Host, metrics *metrics, log *slog.Logger) *engine.Pool {
	s := d.settings.Pool
	var base *attach.Base
	var because string
	if s.Max > 0 && !d.copies() {
		if base, because = d.openBase(mountsDir, nodeID); base == nil {
			log.Info("each container that waits serves one project only", "reason", because)
		}
	}
	ready := s.Ready
	if ready < 0 {
		ready = 2 * runtime.NumCPU()
	}
	return engine.NewPool(cold, engine.PoolConfig{
		Base: base, NotShared: because, Ready: ready,
		Default: func(ctx context.Context) (engine.Spec, error) { return d.defaultSpec(ctx, host()) },
		Max:     s.Max, MaxPerKey: s.MaxPerKey, MaxMemoryMB: s.MaxMemoryMB, Idle: time.Duration(s.IdleSeconds) * time.Second,
		MemoryLow: shortOfMemory, Now: time.Now, Log: log, Taken: metrics.slotTaken, Refilled: metrics.slotReady,
	})
}

// defaultSpec is the container of an exec that asks for nothing, without its project.
func (d *Deps) defaultSpec(ctx context.Context, host policy.Host) (engine.Spec, error) {
	snapshot, err := d.policy.Resolve(nil, policy.Layer{}, host)
	if err != nil {
		return engine.Spec{}, err
	}
	v := snapshot.Values
	image, err := d.Own.Resolve(ctx, v.Image)
	if err != nil {
		return engine.Spec{}, err
	}
	return engine.Spec{
		ImageRef: image.Ref, ImageID: image.ID, InitVolume: image.InitVolume, Volumes: image.Volumes,
		Limits: v.ContainerLimits, User: d.User, Runtime: v.Runtime,
	}, nil
}

// NewChecker makes the health checks of a node; database may be nil when none exists yet, spool
// too, and auditLog and retained when no server runs.
func (d *Deps) NewChecker(database health.Database, kind string, auditLog func(context.Context) (health.AuditLog, error),
	retained func(context.Context) (health.Retention, error), spool func() (audit.Unstored, error), nodeID string,
	log *slog.Logger,
) *health.Checker {
	var version func(context.Context) (string, error)
	if d.cluster != nil {
		version = d.cluster.Version
	}
	return health.New(health.Config{
		CLI: d.cli, Cluster: version, Copies: d.copies(), Images: d.Own, Image: d.image,
		Allowed: func() []string {
			return slices.DeleteFunc(d.policy.Images(), func(ref string) bool { return ref == d.image })
		},
		Workspace: d.Workspace, Database: database, DatabaseKind: kind, AuditLog: auditLog, Retention: retained, Spool: spool,
		StateDir: d.settings.StateDir, NotCreated: errors.Is(NeedDatabase(d.settings), fs.ErrNotExist),
		CheckStateDir: settings.CheckStateDir, RuntimeMode: string(d.adapter.Mode()),
		WorkspaceRootNative: d.adapter.NativeRoot(), DockerRoot: d.adapter.DockerRoot(), WorkspaceVolume: d.adapter.Volume(),
		ContainerUser: d.User,
		Runtime:       d.settings.Sandbox.Runtime,
		Podman:        d.podman, OwnSeccomp: d.settings.Sandbox.Seccomp != settings.SeccompOfEngine,
		ReadOnlyRootfs: d.settings.Sandbox.ReadOnlyRootfs, FreeMinBytes: uint64(d.settings.Sandbox.DiskFreeMinBytes),
		FreeMinInodes: uint64(d.settings.Sandbox.DiskFreeMinInodes), Skills: d.skills.Now, Version: buildinfo.Version,
		NodeID: nodeID, Now: time.Now, Logger: log,
	})
}

// NeedDatabase refuses a state directory without a database, so that a typo does not create one.
// Its error wraps fs.ErrNotExist then.
func NeedDatabase(s settings.Settings) error {
	if s.DatabaseURL.Reveal() != "" {
		return nil
	}
	_, err := os.Stat(filepath.Join(s.StateDir, store.File))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.Wrap(fault.InvalidSettings, err,
			"there is no database in the state dir %s: no core-api has run on it. Give the server's --state-dir or --config; `core-api "+
				"serve` and `core-api migrate` make a new one", s.StateDir)
	case err != nil:
		return fault.Wrap(fault.InvalidSettings, err,
			"the database in the state dir %s cannot be read (%v); run this as the user that core-api runs as", s.StateDir, err)
	}
	return nil
}
