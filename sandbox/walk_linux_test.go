package sandbox_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/none"
	"secbox/sandbox/sandboxtest"
)

var walker = sandbox.User{AgentID: "a", ID: "u"}

// onDisk returns a sandbox over an empty directory.
func onDisk(t *testing.T) (dir string, s sandbox.Backend) {
	dir = t.TempDir()
	s = none.New(none.Config{Directories: sandboxtest.Directory(dir), Environ: os.Environ()})
	t.Cleanup(func() { s.Close() })
	return dir, s
}

func plant(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWalkDirFilesOnly (004 l39, l297–320): relative paths, files only, a missing root is an error.
func TestWalkDirFilesOnly(t *testing.T) {
	t.Parallel()
	dir, s := onDisk(t)
	plant(t, dir, map[string]string{"top/a/b/c": "1", "top/z": "22", "top/a.txt": "", "beside": "x"})
	if err := os.Mkdir(filepath.Join(dir, "top/empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..", filepath.Join(dir, "top/loop")); err != nil {
		t.Fatal(err)
	}
	var got []string
	sizes := map[string]int64{}
	err := sandbox.WalkDir(t.Context(), s, "/workspace/top", walker, sandbox.DefaultWalkBounds, func(rel string, e sandbox.DirEntry) error {
		got = append(got, rel)
		sizes[rel] = e.Size
		return nil
	})
	if want := []string{"a/b/c", "a.txt", "loop", "z"}; err != nil || !slices.Equal(got, want) || sizes["z"] != 2 {
		t.Errorf("%q %v %v, want %q", got, sizes, err, want)
	}
	if err := sandbox.WalkDir(t.Context(), s, "/workspace/none", walker, sandbox.DefaultWalkBounds, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	calls := 0
	err = sandbox.WalkDir(t.Context(), s, "/workspace/top", walker, sandbox.DefaultWalkBounds,
		func(string, sandbox.DirEntry) error { calls++; return fs.SkipAll })
	if err != nil || calls != 1 {
		t.Errorf("SkipAll: %d calls, %v", calls, err)
	}
}

// endless lists the same directory below every directory.
type endless struct {
	sandbox.Backend
	entries []sandbox.DirEntry
	wait    bool
}

func (e endless) ReadDir(ctx context.Context, _ string, _ sandbox.User) ([]sandbox.DirEntry, error) {
	if e.wait {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return e.entries, nil
}

func TestWalkDirIsBounded(t *testing.T) {
	t.Parallel()
	million := make([]sandbox.DirEntry, 1_000_000)
	for i := range million {
		million[i] = sandbox.DirEntry{Name: "f"}
	}
	for name, c := range map[string]struct {
		s      endless
		bounds sandbox.WalkBounds
		code   fault.Code
	}{
		"entries": {endless{entries: million}, sandbox.WalkBounds{Entries: 1000, Depth: 3}, fault.TreeTooLarge},
		"depth":   {endless{entries: []sandbox.DirEntry{{Name: "d", IsDir: true}}}, sandbox.WalkBounds{Entries: 1000, Depth: 3}, fault.TreeTooLarge},
		"time":    {endless{wait: true}, sandbox.WalkBounds{Entries: 1000, Depth: 3, Time: time.Millisecond}, fault.TreeTooLarge},
		"parent":  {endless{entries: []sandbox.DirEntry{{Name: ".."}}}, sandbox.DefaultWalkBounds, fault.RunnerProtocol},
		"slash":   {endless{entries: []sandbox.DirEntry{{Name: "a/../../b"}}}, sandbox.DefaultWalkBounds, fault.RunnerProtocol},
		"no name": {endless{entries: []sandbox.DirEntry{{}}}, sandbox.DefaultWalkBounds, fault.RunnerProtocol},
		"NUL":     {endless{entries: []sandbox.DirEntry{{Name: "a\x00"}}}, sandbox.DefaultWalkBounds, fault.RunnerProtocol},
		"itself":  {endless{entries: []sandbox.DirEntry{{Name: ".", IsDir: true}}}, sandbox.DefaultWalkBounds, fault.RunnerProtocol},
		"both ends": {
			endless{entries: []sandbox.DirEntry{{Name: "d", IsDir: true}, {Name: "e", IsDir: true}}},
			sandbox.WalkBounds{Entries: 50, Depth: 64},
			fault.TreeTooLarge,
		},
	} {
		err := sandbox.WalkDir(t.Context(), c.s, sandbox.Root, walker, c.bounds, func(string, sandbox.DirEntry) error { return nil })
		if !fault.Is(err, c.code) {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
}

// TestCopyFromExpandsLinks (004 l38, l321–325): links become plain files and directories.
func TestCopyFromExpandsLinks(t *testing.T) {
	t.Parallel()
	dir, s := onDisk(t)
	plant(t, dir, map[string]string{"s/SKILL.md": "text", "s/lib/x.py": "x", "other/deep/y": "yy"})
	for at, to := range map[string]string{"s/file": "lib/x.py", "s/tree": "../other"} {
		if err := os.Symlink(to, filepath.Join(dir, at)); err != nil {
			t.Fatal(err)
		}
	}
	got, to := copied(t)
	done, err := sandbox.CopyFrom(t.Context(), s, "/workspace/s", walker, to, copyBounds, nil)
	if err != nil || done != (sandbox.Copied{Files: 4, Bytes: 8}) {
		t.Fatalf("%+v %v", done, err)
	}
	for name, content := range map[string]string{"SKILL.md": "text", "lib/x.py": "x", "file": "x", "tree/deep/y": "yy"} {
		if is, err := os.ReadFile(filepath.Join(got, name)); string(is) != content || err != nil {
			t.Errorf("%s: %q %v", name, is, err)
		}
		if fi, err := os.Lstat(filepath.Join(got, name)); err != nil || !fi.Mode().IsRegular() {
			t.Errorf("%s: %v %v", name, fi, err)
		}
	}
}

// TestCopyFromKeepsExecutable: what is executable stays so, and programs become so.
func TestCopyFromKeepsExecutable(t *testing.T) {
	t.Parallel()
	dir, s := onDisk(t)
	modes := map[string]fs.FileMode{"run.sh": 0o755, "new.sh": 0o644, "tool": 0o755, "private": 0o700, "text": 0o600, "windows.sh": 0o666, "windows.txt": 0o666}
	for name, mode := range modes {
		content := "text"
		if strings.HasSuffix(name, ".sh") {
			content = "#!/bin/sh\n"
		}
		plant(t, dir, map[string]string{"s/" + name: content})
		if err := os.Chmod(filepath.Join(dir, "s", name), mode); err != nil {
			t.Fatal(err)
		}
	}
	got, to := copied(t)
	if _, err := sandbox.CopyFrom(t.Context(), s, "/workspace/s", walker, to, copyBounds, nil); err != nil {
		t.Fatal(err)
	}
	for name := range modes {
		want := fs.FileMode(0o644)
		if strings.HasSuffix(name, ".sh") || name == "tool" || name == "private" {
			want = 0o755
		}
		if fi, err := os.Lstat(filepath.Join(got, name)); err != nil || fi.Mode() != want {
			t.Errorf("%s: %v %v, want %v", name, fi, err, want)
		}
	}
}

var copyBounds = sandbox.CopyBounds{WalkBounds: sandbox.WalkBounds{Entries: 100, Depth: 8, Time: time.Minute}, Bytes: 1 << 20}

func copied(t *testing.T) (string, *os.Root) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return dir, root
}

func TestCopyFromRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(at string) error
		is   func(error) bool
	}{
		"a FIFO": {func(at string) error { return syscall.Mkfifo(at, 0o644) }, func(err error) bool { return errors.Is(err, fs.ErrInvalid) }},
		"a link to a FIFO": {func(at string) error {
			return errors.Join(syscall.Mkfifo(at+"-pipe", 0o644), os.Symlink("bad-pipe", at))
		}, func(err error) bool { return errors.Is(err, fs.ErrInvalid) }},
		"a link to /etc/passwd": {
			func(at string) error { return os.Symlink("/etc/passwd", at) },
			func(err error) bool { return errors.Is(err, fs.ErrPermission) },
		},
		"a link to /etc": {
			func(at string) error { return os.Symlink("/etc", at) },
			func(err error) bool { return errors.Is(err, fs.ErrPermission) },
		},
		"a link out of the workspace": {
			func(at string) error { return os.Symlink("../../..", at) },
			func(err error) bool { return errors.Is(err, fs.ErrPermission) },
		},
		"a link to nothing": {
			func(at string) error { return os.Symlink("nothing", at) },
			func(err error) bool { return errors.Is(err, fs.ErrNotExist) },
		},
		"a link to a directory above": {
			func(at string) error { return os.Symlink(".", at) },
			func(err error) bool { return fault.Is(err, fault.TreeTooLarge) || errors.Is(err, fs.ErrInvalid) },
		},
		"a file of more than the bound": {
			func(at string) error { return os.WriteFile(at, make([]byte, 1<<20+1), 0o644) },
			func(err error) bool { return fault.Is(err, fault.TreeTooLarge) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, s := onDisk(t)
			plant(t, dir, map[string]string{"s/SKILL.md": "text"})
			if err := c.make(filepath.Join(dir, "s/bad")); err != nil {
				t.Fatal(err)
			}
			_, to := copied(t)
			if _, err := sandbox.CopyFrom(t.Context(), s, "/workspace/s", walker, to, copyBounds, nil); !c.is(err) {
				t.Error(err)
			}
		})
	}
}

// liar lists a file of 1 byte and sends content without end.
type liar struct{ endless }

func (liar) ReadFileTo(_ context.Context, _ string, w io.Writer, _ sandbox.User) (n int64, err error) {
	for {
		k, err := w.Write(make([]byte, 64<<10))
		if n += int64(k); err != nil {
			return n, err
		}
	}
}

func TestCopyFromCountsBytesItself(t *testing.T) {
	t.Parallel()
	at, to := copied(t)
	s := liar{endless{entries: []sandbox.DirEntry{{Name: "f", Size: 1}}}}
	if _, err := sandbox.CopyFrom(t.Context(), s, sandbox.Root, walker, to, copyBounds, nil); !fault.Is(err, fault.TreeTooLarge) {
		t.Error(err)
	}
	if fi, err := os.Stat(filepath.Join(at, "f")); err != nil || fi.Size() > copyBounds.Bytes {
		t.Errorf("%v %v", fi, err)
	}
}

// order records the files written.
type order struct {
	sandbox.Backend
	files []string
}

func (o *order) WriteFileFrom(ctx context.Context, path string, r io.Reader, perm fs.FileMode, user sandbox.User) (int64, error) {
	o.files = append(o.files, strings.TrimPrefix(path, sandbox.Root+"/s/"))
	return o.Backend.WriteFileFrom(ctx, path, r, perm, user)
}

// TestCopyToWritesLast: SKILL.md comes last, and no links are made.
func TestCopyToWritesLast(t *testing.T) {
	t.Parallel()
	dir, s := onDisk(t)
	from := fstest.MapFS{
		"SKILL.md": {Data: []byte("text")}, "a": {Data: []byte("#!/bin/sh\n")}, "z/zz": {Data: nil},
		"link": {Data: []byte("/etc"), Mode: fs.ModeSymlink | 0o777},
	}
	o := &order{Backend: s}
	done, err := sandbox.CopyTo(t.Context(), from, o, "/workspace/s", walker, "SKILL.md", map[string]bool{"a": true})
	if err != nil || done != (sandbox.Copied{Files: 3, Bytes: 14}) || !slices.Equal(o.files, []string{"a", "z/zz", "SKILL.md"}) {
		t.Errorf("%+v %v %q", done, err, o.files)
	}
	for name, perm := range map[string]fs.FileMode{"a": 0o755, "SKILL.md": 0o644, "z/zz": 0o644} {
		if fi, err := os.Lstat(filepath.Join(dir, "s", name)); err != nil || fi.Mode() != perm {
			t.Errorf("%s: %v %v", name, fi, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "s/link")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a link was created: %v", err)
	}
}
