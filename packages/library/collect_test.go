//go:build unix

package library_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"secbox/fault"
	"secbox/packages/library"
	"secbox/sandbox/sandboxtest"
	"secbox/skills"
)

// versionDir returns the directory of a version.
func (f *fixture) versionDir(id, digest string) string {
	return filepath.Join(f.root, "agents", "agent001", "skills", id, digest)
}

// collect runs a collection at this time from now, and checks its result.
func (f *fixture) collect(after time.Duration, want library.Collected) {
	f.t.Helper()
	got, err := f.Collect(f.t.Context(), time.Now().Add(after))
	must(f.t, err)
	if got != want {
		f.t.Errorf("after %v: %+v, want %+v", after, got, want)
	}
}

// rows are all pointers of the agent.
func (f *fixture) rows() []skills.Pointer {
	f.t.Helper()
	rows, err := f.registry.Rows(f.t.Context(), "agent001", skills.PointerKey{}, 10_000)
	must(f.t, err)
	return rows
}

// forget removes all pointers of the agent: the table is lost.
func (f *fixture) forget() {
	f.t.Helper()
	for _, row := range f.rows() {
		must(f.t, f.registry.Remove(f.t.Context(), row.PointerKey, row.PointerState))
	}
}

// allThere checks that every version that a pointer names is in its place.
func (f *fixture) allThere() {
	f.t.Helper()
	for _, row := range f.rows() {
		for _, digest := range []string{row.Digest, row.BaseDigest} {
			if digest != "" && !f.exists(f.versionDir(row.SkillID, digest)) {
				f.t.Errorf("%+v names version %.12s, which is not there", row.PointerKey, digest)
			}
		}
	}
}

func TestUnnamedVersionsGo(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	one := f.upload(alice, library.Baseline, "demo", numbered(1))
	f.list(alice) // is pinned
	two := f.upload(bob, library.Baseline, "demo", numbered(2))
	f.collect(2*time.Hour, library.Collected{})
	must(t, f.Materialise(t.Context(), alice, "demo"))
	if _, err := f.Sync(t.Context(), alice, "demo", true); err != nil {
		t.Fatal(err)
	}
	f.collect(30*time.Minute, library.Collected{}) // too young
	f.collect(2*time.Hour, library.Collected{Retired: 1})
	f.collect(150*time.Minute, library.Collected{}) // not out of reach for long enough
	if f.exists(f.versionDir("demo", one.Digest)) || !f.exists(f.versionDir("demo", two.Digest)) {
		t.Error("the wrong version is out of reach")
	}
	f.collect(4*time.Hour, library.Collected{Removed: 1})
	f.collect(9*time.Hour, library.Collected{})
	f.allThere()
	if f.content(alice, "demo", "d0/0.txt") != "2" {
		t.Error("the wrong version is left")
	}
	left, err := filepath.Glob(filepath.Join(f.root, "agents", "agent001", ".[us]*", "*"))
	if must(t, err); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	// The skill goes as a whole, and its directory with it; then it comes back.
	must(t, f.Delete(t.Context(), alice, "demo", library.Overlay))
	must(t, f.Delete(t.Context(), bob, "demo", library.Baseline))
	f.collect(20*time.Hour, library.Collected{Retired: 1})
	f.collect(30*time.Hour, library.Collected{Removed: 1})
	if f.exists(filepath.Dir(f.versionDir("demo", two.Digest))) {
		t.Error("the skill's directory is left")
	}
	f.upload(bob, library.Baseline, "demo", numbered(2))
	if f.content(bob, "demo", "d0/0.txt") != "2" {
		t.Error("it did not come back")
	}
}

// TestRetiredVersionComesBack checks that readers and pointers that need a retired version get it,
// complete.
func TestRetiredVersionComesBack(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]func(*fixture, library.Uploaded){
		"a reader": func(f *fixture, up library.Uploaded) {
			f.name(bob, "demo", up.Digest)
			if f.content(bob, "demo", "d0/0.txt") != "1" {
				f.t.Error("another version")
			}
		},
		"a collection": func(f *fixture, up library.Uploaded) {
			f.name(bob, "demo", up.Digest)
			f.collect(9*time.Hour, library.Collected{Restored: 1})
		},
		"an upload": func(f *fixture, _ library.Uploaded) {
			f.upload(bob, library.Overlay, "demo", numbered(1))
			f.collect(150*time.Minute, library.Collected{})
			f.collect(9*time.Hour, library.Collected{Removed: 1}) // the other one
		},
		"a first edit": func(f *fixture, up library.Uploaded) {
			f.name(bob, "demo", up.Digest)
			f.edit(bob, "demo", "x", "x")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			up := f.upload(alice, library.Baseline, "demo", numbered(1))
			f.upload(alice, library.Baseline, "demo", numbered(2))
			f.collect(2*time.Hour, library.Collected{Retired: 1})
			if f.exists(f.versionDir("demo", up.Digest)) {
				t.Fatal("it is not out of reach")
			}
			want(f, up)
			f.allThere()
			f.collect(19*time.Hour, library.Collected{})
		})
	}
}

// name sets a user's pointer past the library, as a node that dies before it checks again does.
func (f *fixture) name(o library.Owner, id, digest string) {
	f.t.Helper()
	_, err := f.registry.Set(f.t.Context(), skills.PointerKey{AgentID: o.AgentID, UserID: o.UserID, SkillID: id}, nil, skills.PointerState{Digest: digest})
	must(f.t, err)
}

// TestOpenVersionIsRead: a reader that has a version open can continue after it is retired.
func TestOpenVersionIsRead(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", numbered(1))
	files := 0
	err := f.Download(t.Context(), alice, "demo", writes(func(int) {
		if files++; files == 1 {
			f.upload(alice, library.Baseline, "demo", numbered(2))
			f.upload(alice, library.Overlay, "demo", numbered(2))
			f.collect(2*time.Hour, library.Collected{Retired: 1})
		}
	}))
	if err != nil || files == 0 {
		t.Errorf("after %d writes: %v", files, err)
	}
}

type writes func(int)

func (w writes) Write(b []byte) (int, error) { w(len(b)); return len(b), nil }

// TestLostTableIsNotCollected: an agent without a single pointer is one whose pointers were lost.
func TestLostTableIsNotCollected(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	up := f.upload(alice, library.Baseline, "demo", numbered(1))
	f.forget()
	f.collect(9*time.Hour, library.Collected{})
	if !f.exists(f.versionDir("demo", up.Digest)) {
		t.Error("the version is gone")
	}
}

func TestCollectionSkipsForeignFiles(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	agent := filepath.Join(f.root, "agents", "agent001")
	old := time.Now().Add(-2 * time.Hour)
	leftover := filepath.Join(agent, ".staging", "old", "tree")
	must(t, os.MkdirAll(leftover, 0o755))
	must(t, os.Chtimes(filepath.Dir(leftover), old, old))
	odd := []string{
		filepath.Join(agent, "skills", "a file"), filepath.Join(agent, "skills", "demo", "no digest"), filepath.Join(f.root, "agents", "no agent!"),
		filepath.Join(agent, "skills", "demo", strings.Repeat("a", 64)),
	}
	for _, path := range odd {
		must(t, os.WriteFile(path, nil, 0o600))
		must(t, os.Chtimes(path, old, old))
	}
	must(t, os.Symlink(f.outside, filepath.Join(agent, "skills", "link")))
	f.collect(9*time.Hour, library.Collected{})
	if f.exists(leftover) || !f.exists(filepath.Join(f.outside, "secret")) {
		t.Error("swept the wrong things")
	}
	for _, path := range odd {
		if !f.exists(path) {
			t.Errorf("%s is gone", path)
		}
	}
}

// TestCollectionBesideClients has both nodes collect continuously while 32 clients upload, sync,
// promote, delete and read on them. Every version counts as old, even before its pointer is set;
// versions retired in one round are removed during the next. No read fails, and every pointer names
// an existing version.
func TestCollectionBesideClients(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(testing.TB) string{
		"sqlite": func(testing.TB) string { return "" }, "postgres": func(t testing.TB) string { return cluster.Migrated(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			collectBesideClients(t, setUpOn(t, url(t)))
		})
	}
}

func collectBesideClients(t *testing.T, f *fixture) {
	rounds := sandboxtest.Soak(2, 10)
	const clients, contents = 32, 4 // few contents: most uploads find their version stored, in its place or out of reach
	nodes := []*library.Library{f.Library, f.another()}
	f.upload(alice, library.Baseline, "demo", numbered(0))
	var put, restored, removed atomic.Int64
	for round := range rounds {
		f.upload(alice, library.Overlay, "demo", numbered(contents+round)) // whether clients leave a version unused is chance; this one is
		must(t, f.Delete(t.Context(), alice, "demo", library.Overlay))
		collect := func(l *library.Library) error {
			got, err := l.Collect(t.Context(), time.Now().Add(time.Duration(round+1)*2*time.Hour))
			put.Add(int64(got.Retired))
			restored.Add(int64(got.Restored))
			removed.Add(int64(got.Removed))
			return err
		}
		done := make(chan struct{})
		var collectors, users sync.WaitGroup
		for _, l := range nodes {
			collectors.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					if err := collect(l); err != nil {
						t.Errorf("collecting: %v", err)
						return
					}
				}
			})
		}
		for c := range clients {
			users.Go(func() { besideCollection(t, nodes[c%2], c, round, contents) })
		}
		users.Wait()
		close(done)
		collectors.Wait()
		for _, l := range nodes { // the next collection restores versions of crashed callers; here there are none
			must(t, collect(l))
		}
		f.allThere()
	}
	if put.Load() == 0 || removed.Load() == 0 {
		t.Errorf("nothing was collected: %d put away, %d restored, %d removed", put.Load(), restored.Load(), removed.Load())
	}
	t.Logf("%d put away, %d restored by a collection, %d removed", put.Load(), restored.Load(), removed.Load())
	f.nothingStaged()
}

// isMine reports whether an edit has added the file, to a version that was promoted afterwards.
func isMine(file string) bool { return file == "mine" }

// besideCollection runs one client for one round. Conflicts with other clients are allowed.
func besideCollection(t *testing.T, l *library.Library, c, round, contents int) {
	ctx := t.Context()
	me := library.Owner{AgentID: "agent001", UserID: fmt.Sprintf("user%d", c%8)}
	fine := func(what string, err error) {
		if err != nil && !fault.Is(err, fault.SkillMoved) && !fault.Is(err, fault.SkillConflict) && !fault.Is(err, fault.UnknownSkill) &&
			!fault.Is(err, fault.SkillChanged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for n := range 3 {
		b := packed(t, "demo", numbered((c+n+round)%contents))
		switch c % 6 {
		case 0:
			_, err := l.Upload(ctx, me, library.Baseline, "x.zip", bytes.NewReader(b), int64(len(b)))
			fine("a baseline", err)
		case 1:
			_, err := l.Upload(ctx, me, library.Overlay, "x.zip", bytes.NewReader(b), int64(len(b)))
			fine("an overlay", err)
		case 2:
			_, err := l.Promote(ctx, me, "demo", true)
			fine("a promotion", err)
		case 3:
			_, err := l.Sync(ctx, me, "demo", n%2 == 0)
			fine("a sync", err)
		case 4:
			fine("an edit", l.Edit(ctx, me, "demo", "mine", []byte("mine"), nil))
			fine("a deletion", l.Delete(ctx, me, "demo", library.Overlay))
		default: // a reader who never writes, and a new user: neither may ever fail
			for _, o := range []library.Owner{bob, {AgentID: "agent001", UserID: fmt.Sprintf("new%d-%d-%d", c, round, n)}} {
				if list, err := l.List(ctx, o); err != nil || len(list) != 1 {
					t.Errorf("list: %+v, %v", list, err)
				}
				if files, err := l.Files(ctx, o, "demo"); err != nil || len(slices.DeleteFunc(files, isMine)) != 21 {
					t.Errorf("files: %v, %v", files, err)
				}
				if _, err := l.Read(ctx, o, "demo", "d0/0.txt"); err != nil {
					t.Errorf("read: %v", err)
				}
			}
		}
	}
}
