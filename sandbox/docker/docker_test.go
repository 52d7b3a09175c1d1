//go:build linux

package docker_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/engine"
	"secbox/engine/dockercli"
	"secbox/engine/enginetest"
	"secbox/pathadapter"
	"secbox/policy"
	"secbox/runner/diskwatch"
	"secbox/sandbox"
	"secbox/sandbox/docker"
	"secbox/sandbox/files"
	"secbox/sandbox/sandboxtest"
	"secbox/workspace"
)

// space is a workspace root with a sandbox on it, on this machine's engine.
type space struct {
	*docker.Sandbox
	t         testing.TB
	workspace *workspace.Workspace
	node      string
	root      string
	tools     sandbox.ReadOnlyRoot
	container atomic.Pointer[docker.Container]
}

var user = sandbox.User{AgentID: "agent", ID: "user"}

// open makes a space; change may be nil. The test fails if a container is left at its end.
func open(t *testing.T, change func(*docker.Config)) *space {
	t.Helper()
	return openFor(t, change)
}

func openFor(t testing.TB, change func(*docker.Config)) *space {
	t.Helper()
	cli := command(t)
	owner := -1
	if os.Geteuid() == 0 {
		owner = 1000
	}
	s := &space{t: t, root: t.TempDir(), node: uuid.NewString()}
	tools := t.TempDir()
	if err := os.Chmod(tools, 0o755); err != nil {
		t.Fatal(err)
	}
	s.tools = sandbox.ReadOnlyRoot{Path: "/opt/tools", Link: "/workspace/tools", Dir: tools, Mount: tools}
	adapter, err := pathadapter.New(pathadapter.Config{Root: s.root})
	if err != nil {
		t.Fatal(err)
	}
	if s.workspace, err = workspace.Open(workspace.Options{Adapter: adapter, UID: owner, GID: owner}); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	seccomp, err := engine.WriteSeccomp(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cold := engine.NewCold(engine.Config{
		Driver:   engine.NewDocker(cli, engine.Options{ReadOnlyRootfs: true, Seccomp: seccomp}),
		Identity: engine.Identity{Installation: "test", Node: s.node},
		NewID:    func() string { return uuid.Must(uuid.NewV7()).String() }, Log: log,
	})
	s.container.Store(&docker.Container{
		Image: enginetest.Image, User: "1000:1000",
		Limits: enginetest.Limits(policy.ContainerLimits{MemoryMB: 256, CPUCores: 2, PIDs: 128, TmpMB: 32, ShmMB: 64}),
	})
	cfg := docker.Config{
		Directories: files.Workspaces{Workspace: s.workspace}, Workspace: s.workspace, Engine: cold,
		Images:    engine.NewImages(cli, enginetest.Image, "secbox-test-init", time.Now),
		Container: func() docker.Container { return *s.container.Load() }, ReadOnlyRoots: []sandbox.ReadOnlyRoot{s.tools}, Log: log,
		Disk: diskwatch.New(s.workspace, diskwatch.Limits{}, log),
	}
	if change != nil {
		change(&cfg)
	}
	s.Sandbox = docker.New(cfg)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if left := s.containers(); len(left) > 0 {
			t.Errorf("after Close there are %q", left)
		}
		if err := cold.Close(); err != nil {
			t.Error(err)
		}
		if err := s.workspace.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func command(t testing.TB) *dockercli.CLI {
	t.Helper()
	cli, err := dockercli.Find("", os.Environ())
	if err != nil {
		t.Fatalf("%v; run `make setup`", err)
	}
	return cli
}

func (s *space) dir(user sandbox.User) string {
	return filepath.Join(s.root, "projects", user.ProjectID())
}

// containers returns the containers that the sandbox has started and that exist.
func (s *space) containers() []string {
	s.t.Helper()
	names, err := command(s.t).Containers(context.Background(), engine.LabelNode+"="+s.node)
	if err != nil {
		s.t.Fatal(err)
	}
	return names
}

func (s *space) run(spec sandbox.ExecSpec) *sandbox.ExecResult {
	s.t.Helper()
	if spec.User == (sandbox.User{}) {
		spec.User = user
	}
	r, err := s.Exec(s.t.Context(), spec)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func line(command string) sandbox.ExecSpec { return sandbox.ExecSpec{Command: command, Shell: true} }

func (s *space) prints(command, want string) {
	s.t.Helper()
	if r := s.run(line(command)); r.Stdout != want || r.ExitCode != 0 {
		s.t.Errorf("%s: %+v, want %q", command, *r, want)
	}
}

func TestSandbox(t *testing.T) {
	t.Parallel()
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.Fixture {
		s := open(t, nil)
		if _, err := s.Stat(t.Context(), sandbox.Root, user); err != nil { // makes the workspace
			t.Fatal(err)
		}
		return sandboxtest.Fixture{
			Sandbox: s, User: user, Dir: filepath.Join(s.dir(user), "work"), Owner: 1000, ReadOnly: s.tools,
		}
	})
}
