//go:build unix

package workspace_test

import (
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"secbox/pathadapter"
	"secbox/workspace"
	"secbox/workspace/tree"
)

// idleID is a workspace of a user: only those can be idle.
const idleID = "agent~user"

const day = 24 * time.Hour

// idleFixture is a workspace root with one user's workspace, and a clock that only the test moves.
type idleFixture struct {
	*workspace.Workspace
	t     testing.TB
	root  string // of the workspace
	dir   string // of the project
	work  string
	clock *atomic.Int64
}

func setUpIdle(t testing.TB) *idleFixture {
	t.Helper()
	return setUpIdleIn(t, t.TempDir())
}

func setUpIdleIn(t testing.TB, root string) *idleFixture {
	t.Helper()
	f := &idleFixture{t: t, root: root, clock: new(atomic.Int64)}
	f.dir = filepath.Join(f.root, "projects", idleID)
	f.work = filepath.Join(f.dir, "work")
	f.clock.Store(time.Now().UnixNano())
	f.Workspace = f.another()
	f.project()
	return f
}

// another returns the root of another node, which shares only the clock.
func (f *idleFixture) another() *workspace.Workspace {
	f.t.Helper()
	adapter, err := pathadapter.New(pathadapter.Config{Root: f.root})
	must(f.t, err)
	w, err := workspace.Open(workspace.Options{Adapter: adapter, UID: owner(), GID: owner(), Now: f.now, MarkEvery: time.Minute})
	must(f.t, err)
	f.t.Cleanup(func() { must(f.t, w.Close()) })
	return w
}

func (f *idleFixture) now() time.Time { return time.Unix(0, f.clock.Load()) }

func (f *idleFixture) later(d time.Duration) { f.clock.Add(int64(d)) }

func (f *idleFixture) project() *workspace.Project {
	f.t.Helper()
	p, err := f.Project(idleID)
	must(f.t, err)
	return p
}

func (f *idleFixture) existing() *workspace.Project {
	f.t.Helper()
	p, err := f.Existing(idleID)
	must(f.t, err)
	return p
}

var errAsked = errors.New("asked only")

// idle reports whether the workspace was not used for a day as this node sees it.
func idle(t testing.TB, w *workspace.Workspace) bool {
	t.Helper()
	p, err := w.Existing(idleID)
	must(t, err)
	err = p.IfIdle(day, func(*tree.Tree, func() bool) error { return errAsked })
	if err != nil && !errors.Is(err, errAsked) {
		t.Error(err)
	}
	return err != nil
}

// TestIdle: each use, on any node, makes a workspace young again, and so does a running command.
func TestIdle(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	other := f.another()
	past := day + 2*time.Minute
	for name, use := range map[string]func(){
		"opening": func() { f.project() },
		"files": func() {
			work, err := f.existing().Work()
			must(t, err)
			must(t, work.Close())
		},
		"a sandbox": func() {
			dir, err := f.existing().WorkDir()
			must(t, err)
			dir.Close()
		},
		"a command": func() { f.existing().BeginExec()() },
	} {
		f.later(past)
		if !idle(t, other) || !idle(t, f.Workspace) {
			t.Errorf("before %s it is in use", name)
		}
		use()
		if f.later(day); idle(t, other) || idle(t, f.Workspace) {
			t.Errorf("after %s it is idle", name)
		}
	}
	end := f.existing().BeginExec()
	f.later(past)
	if idle(t, f.Workspace) {
		t.Error("it is idle while a command runs")
	}
	f.MarkRunning()
	if idle(t, other) {
		t.Error("another node takes it for idle while a command runs")
	}
	end()
	count := 0
	for range 2 {
		f.later(past)
		must(t, f.existing().IfIdle(day, func(_ *tree.Tree, unused func() bool) error {
			if count++; !unused() {
				t.Error("it is used")
			}
			p, err := other.Project(idleID)
			must(t, err)
			if p.BeginExec()(); unused() {
				t.Error("a use of another node is not seen")
			}
			return nil
		}))
	}
	if count != 2 { // its time of use has changed
		t.Errorf("called %d times", count)
	}
	f.later(past)
	must(t, f.existing().IfIdle(day, func(*tree.Tree, func() bool) error { count++; return nil }))
	must(t, f.existing().IfIdle(day, func(*tree.Tree, func() bool) error { count++; return nil }))
	if count != 3 {
		t.Errorf("called %d times", count)
	}
}
