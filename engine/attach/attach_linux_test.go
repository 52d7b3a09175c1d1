package attach

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"secbox/internal/lockfile"
)

// All tests need root, as CI has it. They use the mounts of the machine, each below its own
// directory.

// opened is a base that is closed, and checked to have left nothing, at the end of the test.
func opened(t testing.TB) *Base {
	t.Helper()
	parent := filepath.Join(t.TempDir(), "private")
	b, err := Open(parent, "base")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(b.Close(), b.Close()); err != nil {
			t.Error(err)
		}
		nothingLeft(t, parent)
	})
	return b
}

// nothingLeft checks that a parent of bases has no mount and no file.
func nothingLeft(t testing.TB, parent string) {
	t.Helper()
	mounts, err := mountsBelow(parent)
	if err != nil || len(mounts) > 0 {
		t.Errorf("mounts are left: %v %v", mounts, err)
	}
	if entries, err := os.ReadDir(parent); err != nil || len(entries) > 0 {
		t.Errorf("files are left: %v %v", entries, err)
	}
}

// project makes inputs, work and artifacts with a file each, and opens them.
func project(t testing.TB) (dir string, dirs []Dir) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"inputs", "work", "artifacts"} {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Join(path, "empty"), 0o755))
		must(t, os.WriteFile(filepath.Join(path, "of"), []byte(name), 0o644))
		dirs = append(dirs, Dir{name, openDir(t, path), name == "inputs"})
	}
	return dir, dirs
}

func openDir(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// flagsOf returns the options of the uppermost mount at a path and its propagation, as in
// mountinfo.
func flagsOf(t *testing.T, at string) string {
	t.Helper()
	info, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	for _, line := range slices.Backward(strings.Split(string(info), "\n")) {
		if fields := strings.Fields(line); len(fields) > 6 && unescaped(fields[4]) == at {
			return fields[5] + " " + fields[6]
		}
	}
	return ""
}

func TestAttach(t *testing.T) {
	t.Parallel()
	b := opened(t)
	p, err := b.NewPoint("p", "inputs", "work", "artifacts")
	must(t, err)
	dir, dirs := project(t)
	for range 2 { // a point can be used again
		must(t, p.Attach(dirs...))
		for _, d := range dirs {
			at := filepath.Join(p.Path(), d.Name)
			if content, err := os.ReadFile(filepath.Join(at, "of")); err != nil || string(content) != d.Name {
				t.Errorf("%s: %q %v", d.Name, content, err)
			}
			flags := flagsOf(t, at)
			if !strings.Contains(flags, "nosuid") || !strings.Contains(flags, "nodev") || strings.HasPrefix(flags, "ro,") != d.ReadOnly {
				t.Errorf("%s: %q", d.Name, flags)
			}
			err := os.WriteFile(filepath.Join(at, "written"), nil, 0o644)
			if _, there := os.Lstat(filepath.Join(dir, d.Name, "written")); errors.Is(err, unix.EROFS) != d.ReadOnly || (there == nil) == d.ReadOnly {
				t.Errorf("%s: written with %v, and on disk %v", d.Name, err, there)
			}
			if err := os.WriteFile(filepath.Join(dir, d.Name, "beside"), nil, 0o644); err != nil {
				t.Errorf("the project's own directory: %v", err)
			}
		}
		if err := os.WriteFile(filepath.Join(p.Path(), "no"), nil, 0o644); !errors.Is(err, unix.EROFS) {
			t.Errorf("written into the point: %v", err)
		}
		if err := p.Attach(dirs...); err == nil {
			t.Error("attached twice")
		}
		must(t, errors.Join(p.Detach(), p.Detach()))
		for _, d := range dirs {
			if entries, err := os.ReadDir(filepath.Join(p.Path(), d.Name)); err != nil || len(entries) > 0 {
				t.Errorf("%s after detach: %v %v", d.Name, entries, err)
			}
		}
	}
	must(t, errors.Join(p.Attach(dirs[0]), p.Remove(), p.Remove()))
	if _, err := os.Lstat(p.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a removed point: %v", err)
	}
	if p.Attach(dirs...) == nil {
		t.Error("attached to a removed point")
	}
	untouched(t, dir)
}

// untouched checks that a project has all it had.
func untouched(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"inputs", "work", "artifacts"} {
		if content, err := os.ReadFile(filepath.Join(dir, name, "of")); err != nil || string(content) != name {
			t.Errorf("%s has lost its file: %q %v", name, content, err)
		}
		if _, err := os.Stat(filepath.Join(dir, name, "empty")); err != nil {
			t.Error(err)
		}
	}
}

// TestAttachOne attaches a directory at the point itself.
func TestAttachOne(t *testing.T) {
	t.Parallel()
	b := opened(t)
	p, err := b.NewPoint("p")
	must(t, err)
	dir, dirs := project(t)
	must(t, p.Attach(Dir{From: dirs[1].From, ReadOnly: true}))
	if content, err := os.ReadFile(filepath.Join(p.Path(), "of")); err != nil || string(content) != "work" {
		t.Errorf("%q %v", content, err)
	}
	if err := os.WriteFile(filepath.Join(p.Path(), "no"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Error(err)
	}
	must(t, p.Detach())
	for _, name := range []string{"", ".", "..", "a/b", "../work"} {
		if err := p.Attach(dirs[0], Dir{Name: name, From: dirs[1].From}); err == nil {
			t.Errorf("attached at %q", name)
		}
	}
	must(t, p.Remove())
	untouched(t, dir)
}

// TestAttachFails: nothing is attached after an error in the middle, and the point can be used
// again.
func TestAttachFails(t *testing.T) {
	t.Parallel()
	b := opened(t)
	p, err := b.NewPoint("p", "work")
	must(t, err)
	dir, dirs := project(t)
	pipe, other, err := os.Pipe() // its file system cannot be mounted
	must(t, err)
	defer pipe.Close()
	defer other.Close()
	before, err := mountsBelow(b.dir)
	must(t, err)
	for _, bad := range []*os.File{pipe, openDir(t, "/proc/self/fd")} {
		if bad != pipe {
			bad.Close() // EBADF
		}
		if err := p.Attach(dirs[0], dirs[1], Dir{"artifacts", bad, false}); err == nil {
			t.Error("attached what cannot be")
		}
		if p.Attach(Dir{From: bad}) == nil {
			t.Error("attached at the point what cannot be")
		}
		if after, err := mountsBelow(b.dir); err != nil || !slices.Equal(before, after) {
			t.Errorf("mounted after an error: %v %v", after, err)
		}
	}
	must(t, errors.Join(p.Attach(dirs...), p.Remove()))
	untouched(t, dir)
}

// TestMountsBelow: what is mounted below a directory is attached with it, with its flags; what is
// mounted there later is not.
func TestMountsBelow(t *testing.T) {
	t.Parallel()
	b := opened(t)
	p, err := b.NewPoint("p", "inputs", "work")
	must(t, err)
	dir, dirs := project(t)
	for _, at := range []string{"inputs/set", "work/set", "work/later"} {
		must(t, os.Mkdir(filepath.Join(dir, at), 0o755))
	}
	data := func(at string) string { return filepath.Join(dir, at, "data") }
	mountSet := func(at string) {
		must(t, unix.Mount("set", filepath.Join(dir, at), "tmpfs", 0, "size=64k"))
		t.Cleanup(func() { _ = unix.Unmount(filepath.Join(dir, at), unix.MNT_DETACH) })
		must(t, os.WriteFile(data(at), []byte(at), 0o600))
	}
	mountSet("inputs/set")
	mountSet("work/set")
	must(t, p.Attach(dirs...))
	mountSet("work/later")
	for at, want := range map[string]error{"inputs/set": nil, "work/set": nil, "work/later": os.ErrNotExist} {
		if _, err := os.ReadFile(filepath.Join(p.Path(), at, "data")); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", at, err, want)
		}
	}
	if err := os.WriteFile(filepath.Join(p.Path(), "inputs/set/more"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("a write below read-only inputs: %v", err)
	}
	var fs unix.Statfs_t
	must(t, unix.Statfs(filepath.Join(p.Path(), "work/set"), &fs))
	if fs.Flags&unix.ST_NOSUID == 0 || fs.Flags&unix.ST_NODEV == 0 || fs.Flags&unix.ST_RDONLY != 0 {
		t.Errorf("flags %#x of a mount below work", fs.Flags)
	}
	must(t, p.Remove())
	for _, at := range []string{"inputs/set", "work/set", "work/later"} {
		if got, err := os.ReadFile(data(at)); err != nil || string(got) != at {
			t.Errorf("%s afterwards: %q %v", at, got, err)
		}
	}
}

// TestParentOnAnotherFileSystem: the directories have the flags of their own mounts, not of the
// base's mount.
func TestParentOnAnotherFileSystem(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	must(t, unix.Mount("top", top, "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID, "size=1m,mode=755"))
	t.Cleanup(func() { must(t, unix.Unmount(top, 0)) })
	b, err := Open(filepath.Join(top, "private"), "base")
	must(t, err)
	p, err := b.NewPoint("p")
	must(t, err)
	dir, dirs := project(t)
	must(t, os.WriteFile(filepath.Join(dir, "work/run"), []byte("#!/bin/sh\n"), 0o755))
	must(t, p.Attach(dirs...))
	if out, err := exec.Command(filepath.Join(p.Path(), "work/run")).CombinedOutput(); err != nil {
		t.Errorf("a program in work: %v %s", err, out)
	}
	must(t, b.Close()) // with a point that has its mounts
	untouched(t, dir)

	must(t, unix.Mount("", top, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	if _, err := Open(filepath.Join(top, "private"), "base"); !errors.Is(err, unix.EROFS) {
		t.Errorf("a read-only parent: %v", err)
	}
}

func TestParent(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(parent string) error{
		"others may pass": func(parent string) error { return os.Chmod(parent, 0o711) },
		"another's":       func(parent string) error { return os.Chown(parent, 1000, 0) },
		"a file": func(parent string) error {
			return errors.Join(os.Remove(parent), os.WriteFile(parent, nil, 0o700))
		},
		"a link": func(parent string) error {
			return errors.Join(os.Rename(parent, parent+"-elsewhere"), os.Symlink(parent+"-elsewhere", parent))
		},
		"a link to nowhere": func(parent string) error {
			return errors.Join(os.Remove(parent), os.Symlink(parent+"-elsewhere", parent))
		},
	} {
		parent := filepath.Join(t.TempDir(), "private")
		must(t, errors.Join(os.Mkdir(parent, 0o700), change(parent)))
		if b, err := Open(parent, "base"); err == nil {
			_ = b.Close()
			t.Errorf("%s: opened", name)
		} else if !strings.Contains(err.Error(), "remove it") {
			t.Errorf("%s: no remedy: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", "a/b"} {
		if b, err := Open(filepath.Join(t.TempDir(), "private"), name); err == nil {
			_ = b.Close()
			t.Errorf("opened %q", name)
		}
	}
}

// TestOddNames: mountinfo escapes spaces and newlines, and has paths without links.
func TestOddNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, errors.Join(os.Mkdir(dir+"/a [b]\n\\c", 0o755), os.Symlink("a [b]\n\\c", dir+"/link")))
	parent := dir + "/link/private"
	left, err := Open(parent, "killed\t*")
	must(t, err)
	p, err := left.NewPoint("p\n")
	must(t, err)
	projectDir, dirs := project(t)
	must(t, p.Attach(dirs...))
	lockfile.Unlock(left.lock) // as if its process was killed
	b, err := Open(parent, "b*")
	must(t, err)
	must(t, b.Close())
	nothingLeft(t, dir+"/a [b]\n\\c/private")
	untouched(t, projectDir)
}

// TestOpenBesideOthers: a base in use is left alone, and an unused base is removed.
func TestOpenBesideOthers(t *testing.T) {
	t.Parallel()
	parent := filepath.Join(t.TempDir(), "private")
	var bases [3]*Base
	var dirs [3]string
	for i, name := range []string{"used", "killed", "empty"} {
		var err error
		bases[i], err = Open(parent, name)
		must(t, err)
		if name == "empty" {
			continue
		}
		p, err := bases[i].NewPoint("p")
		must(t, err)
		var attached []Dir
		dirs[i], attached = project(t)
		must(t, p.Attach(attached...))
	}
	// A directory without a lock file: perhaps that was lost.
	must(t, os.Mkdir(filepath.Join(parent, "unknown"), 0o755))
	lockfile.Unlock(bases[1].lock)
	lockfile.Unlock(bases[2].lock)
	b, err := Open(parent, "base")
	must(t, err)
	if content, err := os.ReadFile(filepath.Join(parent, "used/p/work/of")); err != nil || string(content) != "work" {
		t.Errorf("the base in use: %q %v", content, err)
	}
	entries, err := os.ReadDir(parent)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if want := []string{"base", "base.lock", "unknown", "used", "used.lock"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("%v %v", names, err)
	}
	must(t, errors.Join(b.Close(), bases[0].Close(), os.Remove(filepath.Join(parent, "unknown"))))
	nothingLeft(t, parent)
	untouched(t, dirs[0])
	untouched(t, dirs[1])
}

// TestLock: a second process waits for the first one, which removes the lock file at its end.
func TestLock(t *testing.T) {
	t.Parallel()
	parent := filepath.Join(t.TempDir(), "private")
	first, err := Open(parent, "base")
	must(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lockBase(ended, parent, "base"); !errors.Is(err, lockfile.ErrLocked) {
		t.Errorf("locked twice: %v", err)
	}
	second := make(chan error)
	go func() {
		b, err := lockBase(t.Context(), parent, "base")
		if err == nil {
			err = b.Close()
		}
		second <- err
	}()
	must(t, errors.Join(first.Close(), <-second))
	nothingLeft(t, parent)
	if _, err := lockBase(t.Context(), filepath.Join(parent, "no"), "base"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a directory that does not exist: %v", err)
	}
}

// TestPoints: points are made, attached and removed by many goroutines, and one point by several.
func TestPoints(t *testing.T) {
	t.Parallel()
	b := opened(t)
	dir, dirs := project(t)
	shared, err := b.NewPoint("shared")
	must(t, err)
	results := make(chan error)
	const workers = 8
	for w := range workers {
		go func() {
			results <- func() error {
				for n := range 20 {
					p, err := b.NewPoint(fmt.Sprintf("%d-%d", w, n), "work")
					if err != nil {
						return err
					}
					if err := errors.Join(p.Attach(dirs...), p.Remove()); err != nil {
						return err
					}
					_ = shared.Attach(dirs[w%3]) // another one may have done so
					if err := shared.Detach(); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range workers {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	must(t, shared.Remove())
	untouched(t, dir)
}

func TestNewPoint(t *testing.T) {
	t.Parallel()
	b := opened(t)
	p, err := b.NewPoint("p")
	must(t, err)
	if _, err := b.NewPoint("p"); !errors.Is(err, os.ErrExist) {
		t.Errorf("two points with a name: %v", err)
	}
	if _, err := os.Lstat(p.Path()); err != nil {
		t.Errorf("the point was removed with its namesake: %v", err)
	}
	must(t, p.Remove())
	for _, name := range []string{"", ".", "..", "a/b"} {
		if _, err := b.NewPoint(name); err == nil {
			t.Errorf("a point %q", name)
		}
		if _, err := b.NewPoint("p", "inputs", name); err == nil {
			t.Errorf("a point with the directory %q", name)
		}
	}
	if entries, err := os.ReadDir(b.dir); err != nil || len(entries) > 0 {
		t.Errorf("left after errors: %v %v", entries, err)
	}
}

// TestTooManyFiles runs alone: the limit is the process's.
func TestTooManyFiles(t *testing.T) {
	b := opened(t)
	p, err := b.NewPoint("p", "work")
	must(t, err)
	_, dirs := project(t)
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	next := openDir(t, "/")
	low := limit
	low.Cur = uint64(next.Fd()) // no file can have this number
	must(t, errors.Join(next.Close(), unix.Setrlimit(unix.RLIMIT_NOFILE, &low)))
	err = p.Attach(dirs...)
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	if !errors.Is(err, unix.EMFILE) {
		t.Error(err)
	}
	if at, err := mountsBelow(p.Path()); err != nil || len(at) > 0 {
		t.Errorf("mounted: %v %v", at, err)
	}
	must(t, p.Attach(dirs...))
}

// TestBusy: a point whose files are in use is detached nonetheless; the process that uses them
// keeps them.
func TestBusy(t *testing.T) {
	t.Parallel()
	b := opened(t)
	p, err := b.NewPoint("p")
	must(t, err)
	dir, dirs := project(t)
	must(t, p.Attach(dirs...))
	used, err := os.OpenFile(filepath.Join(p.Path(), "work/of"), os.O_WRONLY, 0)
	must(t, err)
	defer used.Close()
	cmd := exec.Command("sh", "-c", "echo ready; read line; echo late >late")
	cmd.Dir = filepath.Join(p.Path(), "artifacts")
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	_, err = out.Read(make([]byte, 8)) // its working directory is in use
	must(t, err)
	must(t, p.Remove())
	if at, err := mountsBelow(p.Path()); err != nil || len(at) > 0 {
		t.Errorf("still mounted: %v %v", at, err)
	}
	must(t, errors.Join(in.Close(), cmd.Wait()))
	if _, err := os.Lstat(filepath.Join(dir, "artifacts/late")); err != nil {
		t.Errorf("in the working directory: %v", err)
	}
	untouched(t, dir)
}

func TestUnescaped(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		`/a\040b\012c\134d\011`: "/a b\nc\\d\t",
		`/plain`:                "/plain",
		`/end\04`:               `/end\04`,
		`/no\08x`:               `/no\08x`,
	} {
		if got := unescaped(path); got != want {
			t.Errorf("%s: %q", path, got)
		}
	}
}

func BenchmarkAttach(b *testing.B) {
	base := opened(b)
	p, err := base.NewPoint("p")
	must(b, err)
	_, dirs := project(b)
	for b.Loop() {
		must(b, errors.Join(p.Attach(dirs...), p.Detach()))
	}
	must(b, p.Remove())
}

func BenchmarkOpen(b *testing.B) {
	parent := filepath.Join(b.TempDir(), "private")
	for b.Loop() {
		base, err := Open(parent, "base")
		must(b, err)
		must(b, base.Close())
	}
}
