package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"secbox/dockercli"
	"secbox/engine"
	"secbox/fault"
	"secbox/health"
	"secbox/pathadapter"
	"secbox/policy"
	"secbox/settings"
	"secbox/skills"
	"secbox/workspace"
)

// gear is what serve and doctor share: the docker CLI, the paths, and who a container runs as.
type gear struct {
	settings  settings.Settings
	log       *slog.Logger // nil until serve says it
	cli       *dockercli.CLI
	adapter   pathadapter.Adapter
	user      string
	policy    *policy.Resolver
	image     string // of an exec that names none
	images    *engine.Images
	workspace *workspace.Workspace // nil until openWorkspace
	idle      *idleWatch           // is told of idle workspaces; may be nil
	skills    *skills.Catalog      // nil until openSkills
}

func newGear(s settings.Settings, environ []string) (*gear, error) {
	cli, err := dockercli.Find(s.Sandbox.DockerPath, environ)
	if err != nil {
		return nil, err
	}
	adapter, err := newAdapter(s, cli)
	if err != nil {
		return nil, err
	}
	resolver, err := policy.New(s.PolicyConfig())
	if err != nil {
		return nil, err
	}
	snapshot, err := resolver.Resolve(nil, policy.Layer{}, policy.Host{})
	if err != nil {
		return nil, err
	}
	return &gear{
		settings: s, cli: cli, adapter: adapter, user: sandboxUser(s, adapter.Mode()), policy: resolver, image: snapshot.Values.Image,
		images: engine.NewImages(cli, policy.DefaultImage, s.Sandbox.InitVolume, time.Now),
	}, nil
}

func (g *gear) openWorkspace() (err error) {
	uid, gid := owner(g.user)
	opts := workspace.Options{Adapter: g.adapter, UID: uid, GID: gid, MarkEvery: markEvery(idleAfter(g.settings))}
	if g.idle != nil {
		opts.Idle = g.idle.happened
	}
	g.workspace, err = workspace.Open(opts)
	return err
}

// openSkills loads the catalog. The operator's folder must be there at start; what is broken in it hides only itself.
func (g *gear) openSkills(log *slog.Logger) (err error) {
	dir := g.settings.Sandbox.SkillsDir
	if dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return fault.Wrap(fault.InvalidSettings, err, "sandbox.skills_dir: %s is no directory that can be read; make it, or leave the setting out", dir)
		}
		if err := settings.CheckSkillsDir(dir, g.settings.StateDir, g.adapter.NativeRoot()); err != nil {
			return err
		}
	}
	g.skills, err = skills.Open(skills.Config{Dir: dir, Logger: log})
	return err
}

// newEngine is the cold one; serve puts a pool around it, doctor does not, since it looks at how a container starts. dir is where the
// docker CLI finds the seccomp profile for as long as the engine is in use.
func (g *gear) newEngine(identity engine.Identity, dir string, log *slog.Logger) (*engine.Cold, error) {
	seccomp := ""
	if g.settings.Sandbox.Seccomp != settings.SeccompOfEngine {
		var err error
		if seccomp, err = engine.WriteSeccomp(dir); err != nil {
			return nil, err
		}
		if toWindows := wslpath(); g.cli.IsExe() && toWindows != nil { // it reads the file as a Windows program
			if seccomp, err = toWindows(seccomp, true); err != nil {
				return nil, fault.Wrap(fault.InvalidSettings, err, "docker.exe cannot be given the seccomp profile; set sandbox.seccomp to %s", settings.SeccompOfEngine)
			}
		}
	}
	return engine.NewCold(engine.Config{
		CLI: g.cli, Identity: identity, Options: engine.Options{ReadOnlyRootfs: g.settings.Sandbox.ReadOnlyRootfs, Seccomp: seccomp}, NewID: newID, Log: log,
	}), nil
}

func (g *gear) newPool(cold *engine.Cold, metrics *metrics, log *slog.Logger) *engine.Pool {
	s := g.settings.Pool
	return engine.NewPool(cold, engine.PoolConfig{
		Max: s.Max, MaxPerKey: s.MaxPerKey, MaxMemoryMB: s.MaxMemoryMB, Idle: time.Duration(s.IdleSeconds) * time.Second,
		Pressed: shortOfMemory, Now: time.Now, Log: log, Taken: metrics.slotTaken, Refilled: metrics.slotReady,
	})
}

func (g *gear) newChecker(database health.Database, kind, nodeID string, log *slog.Logger) *health.Checker {
	return health.New(health.Config{
		CLI: g.cli, Images: g.images, Image: g.image, Allowed: slices.DeleteFunc(g.policy.Images(), func(ref string) bool { return ref == g.image }),
		Workspace: g.workspace, Database: database, DatabaseKind: kind,
		StateDir: g.settings.StateDir, Unmade: errors.Is(needDatabase(g.settings), fs.ErrNotExist), CheckStateDir: settings.CheckStateDir, RuntimeMode: string(g.adapter.Mode()),
		WorkspaceRootNative: g.adapter.NativeRoot(), DockerRoot: g.adapter.DockerRoot(), ContainerUser: g.user, Runtime: g.settings.Sandbox.Runtime,
		ReadOnlyRootfs: g.settings.Sandbox.ReadOnlyRootfs, FreeMinBytes: uint64(g.settings.Sandbox.DiskFreeMinBytes),
		FreeMinInodes: uint64(g.settings.Sandbox.DiskFreeMinInodes), Skills: g.skills.Now, Version: version, NodeID: nodeID, Now: time.Now, Logger: log,
	})
}
