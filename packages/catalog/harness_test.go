//go:build linux

package catalog_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"secbox/packages/catalog"
	"secbox/sandbox"
	"secbox/sandbox/none"
	"secbox/sandbox/process"
	"secbox/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	process.Main()
	os.Exit(m.Run())
}

var user = sandbox.User{AgentID: "a", ID: "u"}

// source is a sandbox that counts its listings.
type source struct {
	sandbox.Backend
	mu     sync.Mutex
	choice sandbox.Choice
	away   error
	lists  atomic.Int32
	hold   chan struct{} // ReadDir waits for it; nil: it does not wait
	held   chan struct{} // gets a value when a listing of skills begins to wait; nil: it does not
}

func (s *source) Chosen(context.Context, string) (sandbox.Choice, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.choice, nil
}

func (s *source) ReadDir(ctx context.Context, path string, user sandbox.User) ([]sandbox.DirEntry, error) {
	if path == catalog.SkillsDir {
		s.lists.Add(1)
	}
	if s.hold != nil {
		if s.held != nil && path == catalog.SkillsDir {
			s.held <- struct{}{}
		}
		<-s.hold
	}
	s.mu.Lock()
	away := s.away
	s.mu.Unlock()
	if away != nil {
		return nil, away
	}
	return s.Backend.ReadDir(ctx, path, user)
}

type fixture struct {
	*catalog.Store
	s     *source
	clock atomic.Int64 // nanoseconds since 1970, moved by tests
	root  string
}

func start(t *testing.T, change func(*catalog.Config)) *fixture {
	f := &fixture{root: t.TempDir()}
	f.clock.Store(1e18)
	f.s = &source{Backend: none.New(none.Config{Directories: sandboxtest.PerUser(f.root), Environ: os.Environ()})}
	t.Cleanup(func() { f.s.Close() })
	cfg := catalog.Config{Sandboxes: f.s, Now: func() time.Time { return time.Unix(0, f.clock.Load()) }, Global: func() []catalog.Entry {
		return []catalog.Entry{{Kind: catalog.Skill, Name: "shell.run", Title: "Shell", Description: "Runs a command."}}
	}}
	if change != nil {
		change(&cfg)
	}
	f.Store = catalog.New(cfg)
	return f
}

func (f *fixture) plant(t *testing.T, u sandbox.User, name, content string) {
	t.Helper()
	at := filepath.Join(f.root, u.ProjectID(), name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) of(t *testing.T, u sandbox.User) *catalog.Catalog {
	t.Helper()
	c, err := f.Of(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func names(c *catalog.Catalog) []string {
	var all []string
	for _, e := range c.Entries {
		all = append(all, string(e.Kind)+" "+e.Name)
	}
	return all
}
