package health

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/engine"
	"secbox/engine/dockercli"
	"secbox/engine/initproto"
	"secbox/pathadapter"
	"secbox/policy"
	"secbox/workspace"
)

// The real engine and the real image: without them these tests fail with the remedy.

func testImage() string {
	if ref := os.Getenv("SECBOX_TEST_IMAGE"); ref != "" {
		return ref
	}
	return policy.DefaultImage
}

func realCLI(t *testing.T) *dockercli.CLI {
	t.Helper()
	cli, err := dockercli.Find("", os.Environ())
	if err != nil {
		t.Fatalf("%v; run `make setup`", err)
	}
	return cli
}

// deadCLI is a docker binary with no engine behind it.
func deadCLI(t *testing.T) *dockercli.CLI {
	t.Helper()
	cli, err := dockercli.Find("", []string{"DOCKER_HOST=unix:///nonexistent/docker.sock", "HOME=" + t.TempDir()})
	if err != nil {
		t.Fatalf("%v; run `make setup`", err)
	}
	return cli
}

// patient is a Checker that waits longer than a load balancer would: the machine of the tests is
// busy.
func patient(cfg Config) *Checker {
	c := New(cfg)
	c.engine.timeout, c.image.timeout, c.database.timeout = time.Minute, time.Minute, time.Minute
	c.root.timeout, c.state.timeout, c.stateFS.timeout = time.Minute, time.Minute, time.Minute
	return c
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

type pinger func(ctx context.Context) error

func (p pinger) Ping(ctx context.Context) error { return p(ctx) }

func alive(context.Context) error { return nil }

// realConfig is a node that is well: the real engine, real directories.
func realConfig(t *testing.T) (Config, *workspace.Workspace) {
	t.Helper()
	adapter, err := pathadapter.New(pathadapter.Config{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ws, err := workspace.Open(workspace.Options{Adapter: adapter, UID: 1000, GID: 1000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.Close() })
	cli := realCLI(t)
	return Config{
		CLI: cli, Images: engine.NewImages(cli, testImage(), "secbox-sandbox-init", time.Now), Image: testImage(),
		Workspace: ws, Database: pinger(alive), DatabaseKind: "sqlite", StateDir: t.TempDir(),
		RuntimeMode: string(adapter.Mode()), WorkspaceRootNative: adapter.NativeRoot(), DockerRoot: adapter.DockerRoot(),
		ContainerUser: "1000:1000", ReadOnlyRootfs: true, Version: "1.2.3", NodeID: "node-1", Now: time.Now, Logger: quiet(),
	}, ws
}

// realEngine is what execs run on. edit, when it is not nil, changes the docker argv first: a
// sandbox without one of its limits.
func realEngine(t *testing.T, cfg Config, edit func([]string) []string, editJob func(*initproto.Job)) engine.Engine {
	t.Helper()
	node := "doctor-test-" + newID()
	seccomp, err := engine.WriteSeccomp(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cold := engine.NewCold(engine.Config{
		Driver:   engine.NewDocker(cfg.CLI, engine.Options{ReadOnlyRootfs: cfg.ReadOnlyRootfs, Seccomp: seccomp}),
		Identity: engine.Identity{Installation: "test", Node: node}, NewID: newID, Log: quiet(),
	})
	t.Cleanup(func() {
		_ = cold.Close()
		left, err := cfg.CLI.Containers(context.Background(), engine.LabelNode+"="+node)
		if err != nil || len(left) > 0 {
			t.Errorf("containers are left: %v %v", left, err)
		}
	})
	if edit == nil && editJob == nil {
		return cold
	}
	return looseEngine{Engine: cold, cli: cfg.CLI, edit: edit, editJob: editJob}
}

// looseEngine runs the same jobs through the same sandbox-init, in containers whose argv was
// changed.
type looseEngine struct {
	engine.Engine
	cli     *dockercli.CLI
	edit    func([]string) []string
	editJob func(*initproto.Job)
}

func (l looseEngine) Acquire(ctx context.Context, spec engine.Spec) (engine.Slot, error) {
	slot, err := l.Engine.Acquire(ctx, spec)
	return looseSlot{slot, l}, err
}

type looseSlot struct {
	engine.Slot
	engine looseEngine
}

func (s looseSlot) Run(ctx context.Context, job engine.Job, stdout, stderr io.Writer) (engine.Exit, error) {
	args := slices.Clone(s.Args())
	if s.engine.edit != nil {
		args = s.engine.edit(args)
	}
	proc, err := s.engine.cli.Start(args...)
	if err != nil {
		return engine.Exit{}, err
	}
	hungUp := context.AfterFunc(ctx, func() { _ = proc.Stdin().Close() }) // the lease: init kills the job
	exit, err := s.converse(proc, job, stdout, stderr)
	if hungUp() {
		_ = proc.Stdin().Close()
	}
	said := proc.Wait()
	if err != nil {
		return exit, errors.Join(said, err)
	}
	return exit, nil // init may see the end of its lease before it has ended by itself
}

func (s looseSlot) converse(proc *dockercli.Process, job engine.Job, stdout, stderr io.Writer) (engine.Exit, error) {
	frames := initproto.NewReader(bufio.NewReader(proc.Stdout()), initproto.FromInit)
	if _, _, err := frames.Next(); err != nil {
		return engine.Exit{}, err
	}
	wire := initproto.Job{Argv: job.Argv, Cwd: job.Cwd, TimeoutMS: job.Timeout.Milliseconds(), MaxStdout: job.MaxStdout, MaxStderr: job.MaxStderr}
	if s.engine.editJob != nil {
		s.engine.editJob(&wire)
	}
	frame, err := initproto.AppendJSON(nil, initproto.TypeJob, wire)
	if err != nil {
		return engine.Exit{}, err
	}
	if _, err := proc.Stdin().Write(initproto.Append(frame, initproto.TypeStdinEnd, nil)); err != nil {
		return engine.Exit{}, err
	}
	if job.OnStart != nil {
		job.OnStart()
	}
	for {
		kind, payload, err := frames.Next()
		if err != nil {
			return engine.Exit{}, err
		}
		switch kind {
		case initproto.TypeStdout:
			_, _ = stdout.Write(payload)
		case initproto.TypeStderr:
			_, _ = stderr.Write(payload)
		case initproto.TypeExit:
			e, err := initproto.DecodeExit(payload)
			return engine.Exit{
				Code: e.Code, Signal: e.Signal, TimedOut: e.TimedOut, StartError: e.StartError, OOMKills: e.OOMKills, PIDsMax: e.PIDsMax,
				StdoutBytes: e.StdoutBytes, UserCPU: time.Duration(e.UserUS) * time.Microsecond, SystemCPU: time.Duration(e.SystemUS) * time.Microsecond,
			}, err
		}
	}
}
