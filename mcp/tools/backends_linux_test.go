package tools_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
	"secbox/sandbox/none"
	"secbox/sandbox/process"
	"secbox/sandbox/remote"
	"secbox/sandbox/remote/machine"
	"secbox/sandbox/remote/wire"
	"secbox/sandbox/sandboxtest"
	"secbox/workspace"
)

func TestMain(m *testing.M) {
	process.Main() // none and the runner start their commands through this program
	os.Exit(m.Run())
}

var alice = sandbox.User{AgentID: "agent", ID: "alice"}

// place is a user's sandbox, and where its workspace is on this machine.
type place struct {
	sandbox sandbox.Backend
	user    sandbox.User
	dir     string
	owner   int // uid of its commands; 0: this process's
}

// places are all kinds of sandboxes.
var places = map[string]func(t testing.TB) place{
	"none":   inNone,
	"docker": inDocker,
	"remote": onMachine,
	"router": throughRouter,
}

func inNone(t testing.TB) place {
	dir := t.TempDir()
	s := none.New(none.Config{Directories: sandboxtest.Directory(dir), Environ: os.Environ()})
	closeAfter(t, s)
	return place{sandbox: s, user: alice, dir: dir}
}

func closeAfter(t testing.TB, s sandbox.Sandbox) {
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func inDocker(t testing.TB) place {
	cli, err := dockercli.Find("", os.Environ())
	if err != nil {
		t.Fatalf("%v; run `make setup`", err)
	}
	root := t.TempDir()
	adapter, err := pathadapter.New(pathadapter.Config{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	owner := -1
	if os.Geteuid() == 0 {
		owner = 1000
	}
	space, err := workspace.Open(workspace.Options{Adapter: adapter, UID: owner, GID: owner})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	seccomp, err := engine.WriteSeccomp(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cold := engine.NewCold(engine.Config{
		Driver:   engine.NewDocker(cli, engine.Options{ReadOnlyRootfs: true, Seccomp: seccomp}),
		Identity: engine.Identity{Installation: "test", Node: uuid.NewString()},
		NewID:    uuid.NewString, Log: log,
	})
	container := docker.Container{
		Image: enginetest.Image, User: "1000:1000",
		Limits: enginetest.Limits(policy.ContainerLimits{MemoryMB: 256, CPUCores: 2, PIDs: 128, TmpMB: 32, ShmMB: 64}),
	}
	s := docker.New(docker.Config{
		Directories: files.Workspaces{Workspace: space}, Workspace: space, Engine: cold,
		Images:    engine.NewImages(cli, enginetest.Image, "secbox-test-init", time.Now),
		Container: func() docker.Container { return container }, Log: log, Disk: diskwatch.New(space, diskwatch.Limits{}, log),
	})
	t.Cleanup(func() {
		for _, end := range []func() error{s.Close, cold.Close, space.Close} {
			if err := end(); err != nil {
				t.Error(err)
			}
		}
	})
	if _, err := s.Stat(t.Context(), sandbox.Root, alice); err != nil { // makes the workspace
		t.Fatal(err)
	}
	return place{sandbox: s, user: alice, dir: filepath.Join(root, "projects", alice.ProjectID(), "work"), owner: 1000}
}

// onMachine is a runner with a real link over the loopback.
func onMachine(t testing.TB) place {
	return connect(t, t.TempDir(), machine.AllowExec, machine.AllowWrite)
}

func connect(t testing.TB, dir string, allow ...string) place {
	return connectOver(t, dir, network{}, allow...)
}

// network is what is between a runner and core-api.
type network struct {
	grace    time.Duration // how long a lost runner is awaited; 0: the default
	transfer func(stop func(), serve http.HandlerFunc) http.HandlerFunc
}

func connectOver(t testing.TB, dir string, between network, allow ...string) place {
	connected, once := make(chan struct{}), sync.Once{}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.MessageKey && a.Value.String() == "connected" { // the runner has its welcome
			once.Do(func() { close(connected) })
		}
		return a
	}}))
	hub := remote.NewHub(remote.Config{
		Log: log, Version: "test", Grace: between.grace, Valid: func(context.Context, string) error { return nil },
		Late: func(context.Context, sandbox.User, string, sandbox.ExecResult) error { return nil },
	})
	ctx, stop := context.WithCancel(context.Background())
	caller := remote.Caller{TokenID: "token", UserID: alice.ID}
	transfer := func(w http.ResponseWriter, r *http.Request) {
		hub.ServeTransfer(w, r, strings.TrimPrefix(r.URL.Path, wire.TransferPath), caller)
	}
	if between.transfer != nil {
		transfer = between.transfer(stop, transfer)
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, wire.TransferPath) {
			transfer(w, r)
		} else {
			hub.ServeLink(w, r, caller)
		}
	}))
	m, err := machine.New(machine.Config{Server: web.URL, Token: "token", Workspace: dir, Name: "laptop", Allow: allow, Version: "test", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = hub.Close()
		web.Close()
	})
	select {
	case <-connected:
	case err := <-ended:
		ended <- nil // for the cleanup
		t.Fatalf("the runner has ended: %v", err)
	}
	return place{sandbox: hub, user: alice, dir: dir}
}

// throughRouter is a router with two backends, whose user has chosen the second one.
func throughRouter(t testing.TB) place {
	here, there := inNone(t), onMachine(t)
	router, err := sandbox.NewRouter(sandbox.RouterConfig{Backends: []sandbox.Backend{here.sandbox, there.sandbox}, Default: sandbox.None, Choices: onRemote{}})
	if err != nil {
		t.Fatal(err)
	}
	return place{sandbox: router, user: alice, dir: there.dir}
}

// onRemote has every user's choice of their own machine.
type onRemote struct{}

func (onRemote) Choice(_ context.Context, userID string) (sandbox.Choice, bool, error) {
	return sandbox.Choice{UserID: userID, Backend: sandbox.Remote}, true, nil
}

func (onRemote) Choose(context.Context, sandbox.Choice) error { return nil }
