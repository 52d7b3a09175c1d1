//go:build unix

package library_test

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"secbox/fault"
	"secbox/packages/library"
	"secbox/packages/versions"
	"secbox/pathadapter"
	"secbox/skills"
	"secbox/store"
	"secbox/store/storetest/pgtest"
	"secbox/store/storetest/sqlitetest"
	"secbox/workspace"
)

var cluster *pgtest.Cluster

func TestMain(m *testing.M) {
	if base := os.Getenv(victimOf); base != "" {
		victim(base) // until it is killed
	}
	for env, run := range map[string]func(string) error{collectorOf: collector, repairerOf: repairer} {
		if base := os.Getenv(env); base != "" {
			fmt.Fprintln(os.Stderr, run(base))
			os.Exit(1)
		}
	}
	os.Exit(pgtest.Main(m, &cluster))
}

var (
	alice = library.Owner{AgentID: "agent001", UserID: "alice"}
	bob   = library.Owner{AgentID: "agent001", UserID: "bob"}
)

// fixture is a library over a fresh workspace and a fresh database.
type fixture struct {
	*library.Library
	t        testing.TB
	root     string // of the workspace
	outside  string // a directory beside it, with a file "secret": no test may change or show it
	registry skills.Registry
	shift    atomic.Int64 // of the clock, in nanoseconds
}

func (f *fixture) SandboxEdit(ctx context.Context, o library.Owner, file string, content []byte, r *library.LineRange) error {
	_, err := f.Library.SandboxEdit(ctx, o, file, content, r)
	return err
}

// later moves the library's clock forward.
func (f *fixture) later(d time.Duration) { f.shift.Add(int64(d)) }

func (f *fixture) reads() int64 { return f.Reads() }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func setUp(t testing.TB) *fixture {
	t.Helper()
	return setUpOn(t, "")
}

func setUpOn(t testing.TB, databaseURL string) *fixture {
	t.Helper()
	return setUpIn(t, t.TempDir(), databaseURL)
}

// setUpIn takes over what an earlier one left in base, if there was one.
func setUpIn(t testing.TB, base, databaseURL string) *fixture {
	t.Helper()
	f := &fixture{t: t, root: filepath.Join(base, "ws"), outside: filepath.Join(base, "outside")}
	must(t, os.MkdirAll(f.outside, 0o755))
	must(t, os.WriteFile(filepath.Join(f.outside, "secret"), []byte("secret"), 0o600))
	if databaseURL == "" {
		sqlitetest.Migrated(t, filepath.Join(base, store.File))
	}
	db, err := store.Open(t.Context(), databaseURL, base)
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	f.registry = db.Skills()
	f.Library = f.another()
	return f
}

// another returns a library of another node, on the same workspace and database. It shares no lock
// and no memory with the first.
func (f *fixture) another() *library.Library {
	space := openSpace(f.t, f.root)
	l, err := library.New(library.Config{
		Workspace: space, Versions: versions.New(space), Registry: f.registry,
		Now: func() time.Time { return time.Now().Add(time.Duration(f.shift.Load())) },
	})
	must(f.t, err)
	return l
}

func openSpace(t testing.TB, root string) *workspace.Workspace {
	t.Helper()
	adapter, err := pathadapter.New(pathadapter.Config{Root: root})
	must(t, err)
	owner := -1
	if os.Geteuid() == 0 {
		owner = 1000
	}
	w, err := workspace.Open(workspace.Options{Adapter: adapter, UID: owner, GID: owner})
	must(t, err)
	t.Cleanup(func() { must(t, w.Close()) })
	return w
}

type tree = map[string]string

// packed is a ZIP of a skill, whose folder is id.
func packed(t testing.TB, id string, files tree) []byte {
	t.Helper()
	b, err := zipped(id, files)
	must(t, err)
	return b
}

func zipped(id string, files tree) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		// Stored: compressing costs more than the rest of most tests. Package archive tests
		// compressed files.
		w, err := z.CreateHeader(&zip.FileHeader{Name: id + "/" + name, Method: zip.Store})
		if err != nil {
			return nil, err
		}
		if _, err := w.Write([]byte(files[name])); err != nil {
			return nil, err
		}
	}
	err := z.Close()
	return b.Bytes(), err
}

func (f *fixture) tryUpload(o library.Owner, scope library.Scope, id string, files tree) (library.Uploaded, error) {
	b := packed(f.t, id, files)
	return f.Upload(f.t.Context(), o, scope, id+".zip", bytes.NewReader(b), int64(len(b)))
}

func (f *fixture) upload(o library.Owner, scope library.Scope, id string, files tree) library.Uploaded {
	f.t.Helper()
	up, err := f.tryUpload(o, scope, id, files)
	must(f.t, err)
	return up
}

func (f *fixture) list(o library.Owner) []library.Listed {
	f.t.Helper()
	list, err := f.List(f.t.Context(), o)
	must(f.t, err)
	return list
}

// status returns a skill's status in the list, or "".
func (f *fixture) status(o library.Owner, id string) library.Status {
	f.t.Helper()
	one := f.listed(o, id)
	return one.Status
}

func (f *fixture) listed(o library.Owner, id string) library.Listed {
	f.t.Helper()
	for _, one := range f.list(o) {
		if one.SkillID == id {
			return one
		}
	}
	return library.Listed{}
}

func (f *fixture) content(o library.Owner, id, path string) string {
	f.t.Helper()
	b, err := f.Read(f.t.Context(), o, id, path)
	must(f.t, err)
	return string(b)
}

func (f *fixture) edit(o library.Owner, id, path, content string) {
	f.t.Helper()
	must(f.t, f.Edit(f.t.Context(), o, id, path, []byte(content), nil))
}

// copyDir returns the directory of the user's copy of a skill.
func (f *fixture) copyDir(o library.Owner, id string) string {
	return filepath.Join(f.root, "projects", o.ProjectID(), "work", "skills", id)
}

func (f *fixture) exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// everything is the user's version of a skill, read through the library.
func (f *fixture) everything(o library.Owner, id string) tree {
	f.t.Helper()
	paths, err := f.Files(f.t.Context(), o, id)
	must(f.t, err)
	all := tree{}
	for _, p := range paths {
		all[p] = f.content(o, id, p)
	}
	return all
}

// nothingStaged checks that nothing half done is left in any staging directory.
func (f *fixture) nothingStaged() {
	f.t.Helper()
	found, err := filepath.Glob(filepath.Join(f.root, "*", "*", ".staging", "*"))
	must(f.t, err)
	if len(found) > 0 {
		f.t.Errorf("left behind: %s", strings.Join(found, " "))
	}
}

func wantFault(t testing.TB, err error, code fault.Code, says string) {
	t.Helper()
	if !fault.Is(err, code) {
		t.Fatalf("got %v, want the code %s", err, code)
	}
	if message := fault.From(err).Message; !strings.Contains(message, says) {
		t.Errorf("the message is %q and does not say %q", message, says)
	}
}
