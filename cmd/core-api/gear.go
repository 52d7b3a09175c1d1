package main

import (
	"log/slog"
	"time"

	"secbox/dockercli"
	"secbox/engine"
	"secbox/health"
	"secbox/pathadapter"
	"secbox/policy"
	"secbox/settings"
	"secbox/workspace"
)

// gear is what serve and doctor share: the docker CLI, the paths, and who a container runs as.
type gear struct {
	settings  settings.Settings
	cli       *dockercli.CLI
	adapter   pathadapter.Adapter
	user      string
	images    *engine.Images
	workspace *workspace.Workspace // nil until openWorkspace
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
	return &gear{
		settings: s, cli: cli, adapter: adapter, user: sandboxUser(s, adapter.Mode()),
		images: engine.NewImages(cli, policy.DefaultImage, s.Sandbox.InitVolume, time.Now),
	}, nil
}

func (g *gear) openWorkspace() (err error) {
	uid, gid := owner(g.user)
	g.workspace, err = workspace.Open(workspace.Options{Adapter: g.adapter, UID: uid, GID: gid})
	return err
}

func (g *gear) newEngine(identity engine.Identity, log *slog.Logger) *engine.Cold {
	return engine.NewCold(engine.Config{
		CLI: g.cli, Identity: identity, Options: engine.Options{ReadOnlyRootfs: g.settings.Sandbox.ReadOnlyRootfs}, NewID: newID, Log: log,
	})
}

func (g *gear) newChecker(database health.Database, kind, nodeID string, log *slog.Logger) *health.Checker {
	return health.New(health.Config{
		CLI: g.cli, Images: g.images, Image: policy.DefaultImage, Workspace: g.workspace, Database: database, DatabaseKind: kind,
		StateDir: g.settings.StateDir, CheckStateDir: settings.CheckStateDir, RuntimeMode: string(g.adapter.Mode()),
		WorkspaceRootNative: g.adapter.NativeRoot(), DockerRoot: g.adapter.DockerRoot(), ContainerUser: g.user,
		ReadOnlyRootfs: g.settings.Sandbox.ReadOnlyRootfs, FreeMinBytes: uint64(g.settings.Sandbox.DiskFreeMinBytes),
		FreeMinInodes: uint64(g.settings.Sandbox.DiskFreeMinInodes), Version: version, NodeID: nodeID, Now: time.Now, Logger: log,
	})
}
