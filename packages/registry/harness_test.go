//go:build linux

package registry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"secbox/fault"
	"secbox/packages/catalog"
	"secbox/packages/registry"
	"secbox/packages/versions"
	"secbox/pathadapter"
	"secbox/sandbox"
	"secbox/sandbox/none"
	"secbox/sandbox/process"
	"secbox/sandbox/sandboxtest"
	"secbox/store/sqlite"
	"secbox/workspace"
)

func TestMain(m *testing.M) {
	process.Main()
	os.Exit(m.Run())
}

var (
	ann = registry.Owner{AgentID: "a", UserID: "ann"}
	bob = registry.Owner{AgentID: "a", UserID: "bob"}
)

// flaky is a sandbox whose writes can fail, and wait.
type flaky struct {
	sandbox.Backend
	fails atomic.Pointer[string] // writing or making a path that ends so is an error
	dead  atomic.Bool            // after that every call is, as after a crash
	wait  chan struct{}          // a write waits for it; nil: it does not
	begun chan struct{}

	removals chan chan struct{} // RemoveAll sends a channel and waits for its end; nil: it does not wait
}

var errBroken = fault.New(fault.RunnerOffline, "the machine has gone")

func (f *flaky) WriteFileFrom(ctx context.Context, path string, r io.Reader, perm fs.FileMode, user sandbox.User) (int64, error) {
	if f.wait != nil {
		f.begun <- struct{}{}
		<-f.wait
	}
	if suffix := f.fails.Load(); suffix != nil && strings.HasSuffix(path, *suffix) {
		return 0, errBroken
	}
	return f.Backend.WriteFileFrom(ctx, path, r, perm, user)
}

func (f *flaky) MkdirAll(ctx context.Context, path string, perm fs.FileMode, user sandbox.User) error {
	if suffix := f.fails.Load(); suffix != nil && strings.HasSuffix(path, *suffix) {
		return errBroken
	}
	return f.Backend.MkdirAll(ctx, path, perm, user)
}

func (f *flaky) RemoveAll(ctx context.Context, path string, user sandbox.User) error {
	if f.dead.Load() {
		return errBroken
	}
	if f.removals != nil {
		turn := make(chan struct{})
		f.removals <- turn
		<-turn
	}
	return f.Backend.RemoveAll(ctx, path, user)
}

type fixture struct {
	*registry.Registry
	t     *testing.T
	s     *flaky
	store registry.Store
	root  string
	users string

	mu      sync.Mutex
	now     time.Time
	changed []sandbox.User
	global  []string
}

// start makes a registry whose users work in none.
func start(t *testing.T) *fixture {
	users := t.TempDir()
	return startOver(t, users, none.New(none.Config{Directories: sandboxtest.PerUser(users), Environ: os.Environ()}))
}

// startOver makes a registry over any sandbox, which it closes. users has the directories of its
// users.
func startOver(t *testing.T, users string, over sandbox.Backend) *fixture {
	base := t.TempDir()
	f := &fixture{t: t, root: filepath.Join(base, "ws"), users: users, now: time.Now(), s: &flaky{Backend: over}}
	adapter, err := pathadapter.New(pathadapter.Config{Root: f.root})
	if err != nil {
		t.Fatal(err)
	}
	w, err := workspace.Open(workspace.Options{Adapter: adapter, UID: -1, GID: -1, Now: f.clock})
	if err != nil {
		t.Fatal(err)
	}
	v := versions.New(w)
	db, err := sqlite.Open(t.Context(), filepath.Join(base, "db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.s.Close(); v.Close(); w.Close(); db.Close() })
	f.store = db.Registry()
	var ids atomic.Int64
	f.Registry, err = registry.New(registry.Config{
		Store: f.store, Versions: v, Sandboxes: f.s, Now: f.clock, NewID: func() string { return fmt.Sprintf("id-%09d", ids.Add(1)) },
		Changed: func(u sandbox.User) { f.mu.Lock(); defer f.mu.Unlock(); f.changed = append(f.changed, u) },
		Global: func(kind catalog.Kind) []string {
			if kind == catalog.Skill {
				return f.global
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) clock() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *fixture) later(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

// at is a path of a user's workspace on this machine.
func (f *fixture) at(o registry.Owner, name string) string {
	return filepath.Join(f.users, o.AgentID+"~"+o.UserID, name)
}

func (f *fixture) plant(o registry.Owner, name, content string) {
	f.t.Helper()
	at := f.at(o, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) holds(o registry.Owner, name, content string) {
	f.t.Helper()
	got, err := os.ReadFile(f.at(o, name))
	fi, statErr := os.Lstat(f.at(o, name))
	if err != nil || string(got) != content || statErr != nil || !fi.Mode().IsRegular() {
		f.t.Errorf("%s: %q %v, want %q", name, got, errors.Join(err, statErr), content)
	}
}

func (f *fixture) absent(o registry.Owner, name string) {
	f.t.Helper()
	if _, err := os.Lstat(f.at(o, name)); !errors.Is(err, fs.ErrNotExist) {
		f.t.Errorf("%s is there: %v", name, err)
	}
}

func skill(o registry.Owner, name string) registry.Request {
	return registry.Request{Owner: o, Kind: catalog.Skill, Name: name, RequestedBy: "token"}
}

func agent(o registry.Owner, name string) registry.Request {
	return registry.Request{Owner: o, Kind: catalog.Agent, Name: name, RequestedBy: "token"}
}

func (f *fixture) publish(req registry.Request) registry.Entry {
	f.t.Helper()
	e, err := f.Publish(f.t.Context(), req)
	if err != nil {
		f.t.Fatalf("publish %s: %v", req.Name, err)
	}
	return e
}

func (f *fixture) install(req registry.Request) {
	f.t.Helper()
	if _, err := f.Install(f.t.Context(), req); err != nil {
		f.t.Fatalf("install %s: %v", req.Name, err)
	}
}

// fails checks an error: its code, and the beginning of its message.
func fails(t *testing.T, what string, err error, code fault.Code, message string) {
	t.Helper()
	if !fault.Is(err, code) || !strings.HasPrefix(fault.From(err).Message, message) {
		t.Errorf("%s: %v, want %s: %s", what, err, code, message)
	}
}

func (f *fixture) actions(kind catalog.Kind, name string) string {
	f.t.Helper()
	events, err := f.Events(f.t.Context(), kind, name, nil, 100)
	if err != nil {
		f.t.Fatal(err)
	}
	var all []string
	for _, e := range events {
		all = append([]string{e.By.UserID + " " + string(e.Action)}, all...)
		if e.RequestedBy != "token" || e.Digest == "" || e.At.IsZero() {
			f.t.Errorf("%+v", e)
		}
	}
	return strings.Join(all, ", ")
}
