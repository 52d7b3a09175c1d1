package library_test

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"secbox/packages/library"
)

// TestListUnnests checks that List moves a skill out of a folder with its own name, but not while
// an exec runs.
func TestListUnnests(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	must(t, f.Materialise(t.Context(), alice, "demo"))
	dir := f.copyDir(alice, "demo")
	nest := func() {
		t.Helper()
		must(t, os.Rename(dir, dir+".moved"))
		must(t, os.MkdirAll(dir+"/demo", 0o755))
		must(t, os.Rename(dir+".moved", dir+"/demo/demo"))
	}
	nest()
	p, err := openSpace(t, f.root).Project(alice.ProjectID()) // of another process: not seen
	must(t, err)
	end := p.BeginExec()
	if s := f.status(alice, "demo"); s != library.Unchanged {
		t.Errorf("%s", s)
	}
	if got := f.everything(alice, "demo"); !maps.Equal(got, demo) {
		t.Errorf("%q", got)
	}
	end()

	nest()
	p, err = f.Workspace.Project(alice.ProjectID())
	must(t, err)
	end = p.BeginExec()
	f.later(time.Hour) // so that looks are believed
	for range 2 {
		if s := f.status(alice, "demo"); s != library.Modified || !f.exists(dir+"/demo/demo/SKILL.md") {
			t.Errorf("while an exec runs: %s", s)
		}
	}
	end()
	end()
	if s := f.status(alice, "demo"); s != library.Unchanged || f.exists(dir+"/demo") {
		t.Errorf("after it: %s", s)
	}

	// Leftovers of a process that was killed half-way.
	must(t, os.Rename(dir, dir+".unnested-x"))
	must(t, os.Mkdir(dir, 0o755))
	list := f.list(alice)
	if len(list) != 1 || list[0].Status != library.Unchanged || f.exists(dir+".unnested-x") {
		t.Errorf("%+v", list)
	}
	if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) != 1 {
		t.Errorf("%v %v", left, err)
	}
}
