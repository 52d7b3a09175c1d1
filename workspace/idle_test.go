//go:build unix

package workspace_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"secbox/fault"
	"secbox/pathadapter"
	"secbox/workspace"
	"secbox/workspace/pack"
	"secbox/workspace/tree"
)

// idleID is a workspace of a user: only those are packed.
const idleID = "agent~user"

// idleFixture is a workspace root with one user's workspace, and a clock that only the test moves.
type idleFixture struct {
	*workspace.Workspace
	t    testing.TB
	root string // of the workspace
	dir  string // of the project
	work string

	clock  *atomic.Int64
	mu     sync.Mutex
	events []workspace.IdleEvent
}

func setUpIdle(t testing.TB) *idleFixture {
	t.Helper()
	return setUpIdleIn(t, t.TempDir())
}

func setUpIdleIn(t testing.TB, root string) *idleFixture {
	t.Helper()
	f := &idleFixture{t: t, root: root, dir: filepath.Join(root, "projects", idleID), clock: new(atomic.Int64)}
	f.work = filepath.Join(f.dir, "work")
	f.clock.Store(time.Now().UnixNano())
	f.Workspace = f.another()
	f.project()
	return f
}

// another returns the root of another node, which shares only the clock.
func (f *idleFixture) another() *workspace.Workspace {
	f.t.Helper()
	w, err := openIdleSpace(f.root, func() time.Time { return time.Unix(0, f.clock.Load()) }, func(e workspace.IdleEvent) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.events = append(f.events, e)
	})
	must(f.t, err)
	f.t.Cleanup(func() { must(f.t, w.Close()) })
	return w
}

func openIdleSpace(root string, now func() time.Time, told func(workspace.IdleEvent)) (*workspace.Workspace, error) {
	adapter, err := pathadapter.New(pathadapter.Config{Root: root})
	if err != nil {
		return nil, err
	}
	return workspace.Open(workspace.Options{Adapter: adapter, UID: owner(), GID: owner(), Now: now, MarkEvery: time.Minute, Idle: told})
}

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

const day = 24 * time.Hour

// tryPack packs the workspace if it was not used for a day.
func (f *idleFixture) tryPack() (bool, error) {
	return f.existing().PackIdle(f.t.Context(), day, nil)
}

// pack moves the clock and packs.
func (f *idleFixture) pack() {
	f.t.Helper()
	f.later(day + time.Minute)
	done, err := f.tryPack()
	must(f.t, err)
	if !done {
		f.t.Fatal("it was not packed")
	}
	f.isPacked(true)
}

func (f *idleFixture) isPacked(want bool) {
	f.t.Helper()
	for path, there := range map[string]bool{f.work: !want, f.idle("pack.tar.zst"): want} {
		if _, err := os.Lstat(path); (err == nil) != there {
			f.t.Errorf("%s is there: %v (%v)", path, err == nil, err)
		}
	}
}

func (f *idleFixture) idle(name string) string { return filepath.Join(f.dir, ".idle", name) }

// restore opens work/ and closes it.
func (f *idleFixture) restore() error {
	t, err := f.existing().Work()
	if err != nil {
		return err
	}
	return t.Close()
}

// kinds are the events so far.
func (f *idleFixture) kinds() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var kinds []string
	for _, e := range f.events {
		kinds = append(kinds, string(e.Kind))
	}
	return strings.Join(kinds, " ")
}

// tidy checks that packing left only the named files.
func (f *idleFixture) tidy(names ...string) {
	f.t.Helper()
	entries, err := os.ReadDir(filepath.Join(f.dir, ".idle"))
	must(f.t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	want := append([]string{"used"}, names...)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		f.t.Errorf("in .idle lie %q, want %q", got, want)
	}
}

func TestPackedAndBack(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	write(t, filepath.Join(f.work, "notes.txt"), "mine")
	must(t, os.MkdirAll(filepath.Join(f.work, "a/b/c"), 0o750))
	artifact := filepath.Join(f.dir, "artifacts", "x", "result")
	write(t, artifact, "evidence")
	input := filepath.Join(f.dir, "inputs", "main.py")
	write(t, input, "print(1)")
	before := snapshotOf(t, f.work)
	f.pack()
	if read(t, artifact) != "evidence" || read(t, input) != "print(1)" {
		t.Error("evidence was touched")
	}
	f.tidy("pack.tar.zst")
	tree, err := f.existing().Work()
	must(t, err)
	file, _, err := tree.Open("notes.txt")
	must(t, err)
	must(t, file.Close())
	must(t, tree.Close())
	sameTree(t, before, snapshotOf(t, f.work))
	f.isPacked(false)
	f.tidy()
	if got := f.kinds(); got != "packed restored" {
		t.Errorf("events: %s", got)
	}
	f.pack() // and again
	must(t, f.restore())
	sameTree(t, before, snapshotOf(t, f.work))
}

// Making the project's directories must not make an empty work/ beside the pack, and neither may a mount.
func TestProjectBringsBack(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	write(t, filepath.Join(f.work, "notes.txt"), "mine")
	f.pack()
	f.Workspace = f.another() // after a restart
	f.project()
	if got := read(t, filepath.Join(f.work, "notes.txt")); got != "mine" {
		t.Errorf("got %q", got)
	}
	f.isPacked(false)
}

func TestIdleTime(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	write(t, filepath.Join(f.work, "x"), "x")
	for _, step := range []time.Duration{time.Hour, day - time.Hour - time.Second, time.Second + time.Minute - 1} {
		f.later(step)
		if done, err := f.tryPack(); done || err != nil {
			t.Fatalf("packed after %v: %v %v", step, done, err)
		}
	}
	must(t, f.restore()) // an access, a moment before the end
	f.later(1)
	if done, err := f.tryPack(); done || err != nil {
		t.Fatalf("packed after an access: %v %v", done, err)
	}
	f.later(day + time.Minute)
	// Another node agrees, from the files on the disk.
	p, err := f.another().Existing(idleID)
	must(t, err)
	done, err := p.PackIdle(t.Context(), day, nil)
	must(t, err)
	if !done {
		t.Error("not packed after a day")
	}
}

// A workspace of an older version, which did not pack, counts as used now.
func TestUnknownAccess(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	write(t, filepath.Join(f.work, "x"), "x")
	must(t, os.RemoveAll(filepath.Join(f.dir, ".idle")))
	f.Workspace = f.another()
	f.later(10 * day)
	if done, err := f.tryPack(); done || err != nil {
		t.Fatalf("packed at first sight: %v %v", done, err)
	}
	f.pack()
}

func TestNotWhileInUse(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	write(t, filepath.Join(f.work, "a/x"), "x")
	other, err := f.another().Existing(idleID)
	must(t, err)
	for name, use := range map[string]func() func(){
		"an exec":      func() func() { release, err := f.existing().Use(); must(t, err); return release },
		"another node": func() func() { release, err := other.Use(); must(t, err); return release },
		"an open tree": func() func() { tree, err := f.existing().Work(); must(t, err); return func() { must(t, tree.Close()) } },
		"a directory in it": func() func() {
			return func(close func() error) func() { return func() { must(t, close()) } }(below(t, f))
		},
	} {
		end := use()
		f.later(2 * day)
		for _, p := range []*workspace.Project{f.existing(), other} {
			if done, err := p.PackIdle(t.Context(), day, nil); done || err != nil {
				t.Errorf("packed in spite of %s: %v %v", name, done, err)
			}
		}
		end()
		if done, err := f.tryPack(); done || err != nil {
			t.Errorf("packed right after %s: %v %v", name, done, err)
		}
	}
	f.pack()
}

// below opens a directory of work/ and closes work/ itself.
func below(t *testing.T, f *idleFixture) func() error {
	t.Helper()
	tree, err := f.existing().Work()
	must(t, err)
	defer tree.Close()
	dir, err := tree.Dir("a")
	must(t, err)
	return dir.Close
}

func TestEmptyWorkspacesAreSkipped(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	plain, err := f.Project("plain")
	must(t, err)
	write(t, filepath.Join(f.root, "projects", "plain", "work", "x"), "x")
	f.later(2 * day)
	for _, p := range []*workspace.Project{plain, f.existing()} {
		if done, err := p.PackIdle(t.Context(), day, nil); done || err != nil {
			t.Errorf("%s: %v %v", p.ID(), done, err)
		}
	}
	var seen []string
	must(t, f.Workspaces(func(p *workspace.Project) error { seen = append(seen, p.ID()); return nil }))
	if !slices.Equal(seen, []string{idleID}) {
		t.Errorf("workspaces: %q", seen)
	}
}

// A caller in this process or another gets the workspace without waiting for the end of packing.
func TestPackingGivesWay(t *testing.T) {
	t.Parallel()
	for name, from := range map[string]func(*idleFixture) *workspace.Workspace{
		"this process": func(f *idleFixture) *workspace.Workspace { return f.Workspace },
		"another":      func(f *idleFixture) *workspace.Workspace { return f.another() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUpIdle(t)
			write(t, filepath.Join(f.work, "notes.txt"), "mine")
			before := snapshotOf(t, f.work)
			f.later(2 * day)
			used := f.idle("used")
			then, err := os.Stat(used)
			must(t, err)
			who, err := from(f).Existing(idleID)
			must(t, err)
			got := make(chan error, 1)
			done, err := f.existing().PackIdle(t.Context(), day, func(context.Context, *tree.Tree) (map[string]bool, error) {
				f.later(time.Second)
				go func() {
					tree, err := who.Work()
					if err == nil {
						err = tree.Close()
					}
					got <- err
				}()
				for { // until the other caller waits
					now, err := os.Stat(used)
					if err != nil || !now.ModTime().Equal(then.ModTime()) || f.existing().Waiting() > 0 {
						return nil, err
					}
					time.Sleep(time.Millisecond)
				}
			})
			if done || err != nil {
				t.Errorf("packed: %v %v", done, err)
			}
			must(t, <-got)
			sameTree(t, before, snapshotOf(t, f.work))
			f.pack()
		})
	}
}

func TestUnpackableFiles(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(dir string) error{
		"a FIFO":   func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644) },
		"a socket": func(dir string) error { return syscall.Mknod(filepath.Join(dir, "socket"), syscall.S_IFSOCK|0o644, 0) },
		"depth":    func(dir string) error { nest(t, dir, 200); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUpIdle(t)
			write(t, filepath.Join(f.work, "a", "x"), "x")
			must(t, make(filepath.Join(f.work, "a")))
			kept(t, f)
		})
	}
}

// kept checks that the workspace is not packed, and that packing is tried once only.
func kept(t *testing.T, f *idleFixture) {
	t.Helper()
	before := snapshotOf(t, f.work)
	f.later(2 * day)
	for range 3 {
		if done, _ := f.tryPack(); done {
			t.Fatal("it was packed")
		}
	}
	sameTree(t, before, snapshotOf(t, f.work))
	f.tidy()
	if got := f.kinds(); got != "kept" {
		t.Errorf("events: %s", got)
	}
}

func TestWorkThatIsNoDirectory(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	must(t, os.Remove(f.work))
	outside := filepath.Join(t.TempDir(), "outside")
	write(t, filepath.Join(outside, "secret"), "secret")
	must(t, os.Symlink(outside, f.work))
	f.later(2 * day)
	if done, err := f.tryPack(); done || err == nil {
		t.Errorf("packed a link: %v %v", done, err)
	}
	if to, err := os.Readlink(f.work); err != nil || to != outside {
		t.Errorf("the link is %q (%v)", to, err)
	}
	if read(t, filepath.Join(outside, "secret")) != "secret" {
		t.Error("a file outside was changed")
	}
}

func TestDamagedPack(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	write(t, filepath.Join(f.work, "notes.txt"), strings.Repeat("all that I have written\n", 100))
	f.pack()
	whole, err := os.ReadFile(f.idle("pack.tar.zst"))
	must(t, err)
	damages := map[string][]byte{"empty": nil, "something else": []byte("no pack"), "more": append(slices.Clone(whole), whole...)}
	for _, at := range []int{1, 5, len(whole) / 3, len(whole) / 2, len(whole) - 2} {
		flipped := slices.Clone(whole)
		flipped[at] ^= 0x10
		damages["a bit at "+string(rune('a'+at%26))] = flipped
		damages["cut at "+string(rune('a'+at%26))] = whole[:at]
	}
	for name, content := range damages {
		must(t, os.WriteFile(f.idle("pack.tar.zst"), content, 0o600))
		for what, err := range map[string]error{"reading": f.restore(), "making": func() error { _, err := f.Project(idleID); return err }()} {
			if !fault.Is(err, fault.Internal) || !strings.Contains(fault.From(err).Message, "damaged") {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		if now, err := os.ReadFile(f.idle("pack.tar.zst")); err != nil || !bytes.Equal(now, content) {
			t.Errorf("%s: the pack was changed (%v)", name, err)
		}
		f.isPacked(true)
		f.tidy("pack.tar.zst")
	}
	must(t, os.WriteFile(f.idle("pack.tar.zst"), whole, 0o600))
	must(t, f.restore())
}

// TestAnyState builds every state that a crash can leave, and some impossible ones, and checks that no file is lost.
func TestAnyState(t *testing.T) {
	t.Parallel()
	must := func(err error) { must(t, err) }
	rename := func(f *idleFixture, from, to string) { must(os.Rename(from, to)) }
	newer := func(f *idleFixture) { write(t, filepath.Join(f.work, "notes.txt"), "newer") }
	for name, c := range map[string]struct {
		make func(f *idleFixture)
		want string
		left int // files that are set aside
	}{
		"moved": {func(f *idleFixture) { rename(f, f.work, f.idle("work")) }, "mine", 0},
		"moved and half a pack": {func(f *idleFixture) {
			rename(f, f.work, f.idle("work"))
			write(t, f.idle("new-1"), "half")
		}, "mine", 0},
		"moved and a pack": {func(f *idleFixture) {
			f.pack()
			write(t, filepath.Join(f.idle("work"), "notes.txt"), "moved")
		}, "moved", 0},
		"packed and half removed": {func(f *idleFixture) {
			f.pack()
			write(t, filepath.Join(f.idle("gone-1"), "other"), "half")
		}, "mine", 0},
		"half unpacked": {func(f *idleFixture) {
			f.pack()
			write(t, filepath.Join(f.idle("out-1"), "notes.txt"), "half")
		}, "mine", 0},
		"unpacked and not in its place": {func(f *idleFixture) {
			f.pack()
			rename(f, f.idle("pack.tar.zst"), f.idle("waking.tar.zst"))
			write(t, filepath.Join(f.idle("out-1"), "notes.txt"), "whole")
		}, "mine", 0},
		"unpacked and in use": {func(f *idleFixture) {
			f.pack()
			rename(f, f.idle("pack.tar.zst"), f.idle("waking.tar.zst"))
			newer(f)
		}, "newer", 0},
		"an old pack and a new one": {func(f *idleFixture) {
			f.pack()
			write(t, f.idle("waking.tar.zst"), "old")
		}, "mine", 0},
		"an empty work beside a pack": {func(f *idleFixture) {
			f.pack()
			must(os.Mkdir(f.work, 0o755))
		}, "mine", 0},
		"another work beside a pack": {func(f *idleFixture) {
			f.pack()
			newer(f)
		}, "newer", 1},
		"another work beside the moved one": {func(f *idleFixture) {
			rename(f, f.work, f.idle("work"))
			newer(f)
		}, "newer", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUpIdle(t)
			write(t, filepath.Join(f.work, "notes.txt"), "mine")
			c.make(f)
			for range 2 {
				f.Workspace = f.another()
				f.project()
				if got := read(t, filepath.Join(f.work, "notes.txt")); got != c.want {
					t.Fatalf("got %q, want %q", got, c.want)
				}
				f.pack() // which also tidies up
			}
			must(f.restore())
			left, err := filepath.Glob(f.idle("left-*"))
			must(err)
			if len(left) != c.left {
				t.Errorf("set aside are %q", left)
			}
			if c.left == 0 {
				f.tidy()
			}
			if got := read(t, filepath.Join(f.work, "notes.txt")); got != c.want {
				t.Fatalf("in the end %q, want %q", got, c.want)
			}
		})
	}
}

func TestPackingIsCalledOff(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	write(t, filepath.Join(f.work, "notes.txt"), "mine")
	before := snapshotOf(t, f.work)
	f.later(2 * day)
	database := errors.New("the database does not answer")
	_, err := f.existing().PackIdle(t.Context(), day, func(context.Context, *tree.Tree) (map[string]bool, error) { return nil, database })
	if !errors.Is(err, database) {
		t.Errorf("got %v", err)
	}
	sameTree(t, before, snapshotOf(t, f.work))
	f.tidy()
}

// TestWritesWhilePacking: an unknown container may still have the tree mounted. Its writes during packing are
// noticed.
func TestWritesWhilePacking(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"NEW!", "longer than before"} {
		f := setUpIdle(t)
		write(t, filepath.Join(f.work, "notes.txt"), "mine")
		write(t, filepath.Join(f.work, "z"), strings.Repeat("x", 12<<20)) // while this is packed, after the other
		work, err := f.existing().Work()
		must(t, err)
		to, err := os.Create(filepath.Join(t.TempDir(), "pack"))
		must(t, err)
		wrote := sync.OnceFunc(func() { write(t, filepath.Join(f.work, "notes.txt"), content) })
		_, err = pack.Write(t.Context(), work, to, nil, func() bool { wrote(); return false })
		if !errors.Is(err, tree.ErrChanged) {
			t.Errorf("got %v", err)
		}
		must(t, to.Close())
		must(t, work.Close())
	}
}
