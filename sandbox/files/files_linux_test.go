package files_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/files"
)

// TestOwnerOfNewFiles: new files and directories belong to the user of the containers, and existing
// ones keep their owner.
func TestOwnerOfNewFiles(t *testing.T) {
	t.Parallel()
	asRoot(t)
	const uid, gid = 12345, 23456
	f := newFixture(t, func(c *files.Config) { c.UID, c.GID = uid, gid })
	outside := filepath.Join(t.TempDir(), "outside")
	f.must(os.WriteFile(outside, nil, 0o600))
	f.must(os.Mkdir(filepath.Join(f.dir, "ours"), 0o755))
	f.must(os.Symlink(outside, filepath.Join(f.dir, "link")))
	ctx := t.Context()
	f.must(f.WriteFile(ctx, sandbox.Root+"/file", []byte("x"), 0o4755))
	f.must(f.MkdirAll(ctx, sandbox.Root+"/ours/a/b", 0o750))
	if err := f.WriteFile(ctx, sandbox.Root+"/link", nil, 0o600); !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
	for path, want := range map[string]struct {
		uid, gid uint32
		mode     fs.FileMode
	}{
		filepath.Join(f.dir, "file"): {uid, gid, 0o755}, filepath.Join(f.dir, "ours"): {0, 0, 0o755},
		filepath.Join(f.dir, "ours/a"): {uid, gid, 0o750}, filepath.Join(f.dir, "ours/a/b"): {uid, gid, 0o750}, outside: {0, 0, 0o600},
	} {
		var st unix.Stat_t
		f.must(unix.Lstat(path, &st))
		if st.Uid != want.uid || st.Gid != want.gid || fs.FileMode(st.Mode&0o7777) != want.mode {
			t.Errorf("%s is %d:%d %o", path, st.Uid, st.Gid, st.Mode&0o7777)
		}
	}
}

// inMemory returns a fixture on a tmpfs, where many entries are fast.
func inMemory(t *testing.T) fixture {
	t.Helper()
	asRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return fixtureIn(t, dir)
}

func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this needs root: run the tests as root")
	}
}

// as runs f with a user's permissions for files.
func as(t *testing.T, uid int, f func()) {
	t.Helper()
	asRoot(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with its credentials
		if err := unix.Setfsuid(uid); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

func TestMissingPermissions(t *testing.T) {
	t.Parallel()
	const uid = 12345
	f := newFixture(t)
	f.must(os.Chmod(f.dir, 0o755))
	for _, name := range []string{"closed", "theirs"} {
		f.must(os.Mkdir(filepath.Join(f.dir, name), 0o755))
		f.must(os.WriteFile(filepath.Join(f.dir, name, "file"), []byte("x"), 0o644))
	}
	f.must(os.Chmod(filepath.Join(f.dir, "closed"), 0o700))
	f.must(os.Lchown(filepath.Join(f.dir, "theirs"), uid, uid))
	f.must(os.WriteFile(filepath.Join(f.dir, "theirs", "read-only"), []byte("x"), 0o444))
	f.must(os.Lchown(filepath.Join(f.dir, "theirs", "read-only"), uid, uid))
	f.must(os.MkdirAll(filepath.Join(f.dir, "theirs", "tree", "no-rights", "below"), 0o755))
	for _, name := range []string{"tree", "tree/no-rights", "tree/no-rights/below"} {
		f.must(os.Lchown(filepath.Join(f.dir, "theirs", name), uid, uid))
	}
	f.must(os.Chmod(filepath.Join(f.dir, "theirs", "tree", "no-rights"), 0))
	ctx := t.Context()
	as(t, uid, func() {
		_, readErr := f.ReadFile(ctx, sandbox.Root+"/closed/file")
		_, listErr := f.ReadDir(ctx, sandbox.Root+"/closed")
		for what, err := range map[string]error{
			"read": readErr, "list": listErr,
			"write without permission":      f.WriteFile(ctx, sandbox.Root+"/new", nil, 0o644),
			"replace another user's file":   f.WriteFile(ctx, sandbox.Root+"/theirs/file", nil, 0o644),
			"replace a read-only file":      f.WriteFile(ctx, sandbox.Root+"/theirs/read-only", nil, 0o644),
			"make without permission":       f.MkdirAll(ctx, sandbox.Root+"/new/dir", 0o755),
			"remove all without permission": f.RemoveAll(ctx, sandbox.Root+"/closed"),
			"remove a file where none may":  f.Remove(ctx, sandbox.Root+"/closed/file"),
		} {
			if !errors.Is(err, fs.ErrPermission) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := f.RemoveAll(ctx, sandbox.Root+"/theirs/tree"); err != nil {
			t.Errorf("a directory without rights: %v", err)
		}
	})
	if f.content("theirs/file") != "x" || f.content("theirs/read-only") != "x" || f.content("closed/file") != "x" {
		t.Error("a file was changed")
	}
}

// TestFullDisk writes to a file system of one megabyte.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	asRoot(t)
	f := newFixture(t)
	disk := filepath.Join(f.dir, "disk")
	f.must(os.Mkdir(disk, 0o755))
	f.must(unix.Mount("none", disk, "tmpfs", 0, "size=1m,nr_inodes=10"))
	t.Cleanup(func() { f.must(unix.Unmount(disk, unix.MNT_DETACH)) })
	ctx := t.Context()
	path := sandbox.Root + "/disk/file"
	f.must(f.WriteFile(ctx, path, []byte("old"), 0o644))
	if err := f.WriteFile(ctx, path, make([]byte, 2<<20), 0o644); !fault.Is(err, fault.DiskFull) {
		t.Error(err)
	}
	if f.content("disk/file") != "old" || len(f.names("disk")) != 1 {
		t.Errorf("there lie %q", f.names("disk"))
	}
	var err error
	for i := 0; err == nil; i++ { // until the inodes are used up
		err = f.MkdirAll(ctx, sandbox.Root+"/disk/"+string(rune('a'+i)), 0o755)
	}
	if !fault.Is(err, fault.DiskFull) {
		t.Error(err)
	}
	if err := f.WriteFile(ctx, path, []byte("new"), 0o644); !fault.Is(err, fault.DiskFull) {
		t.Error(err)
	}
}

func TestTooManyNames(t *testing.T) {
	t.Parallel()
	f := inMemory(t)
	for i := range sandbox.MaxDirEntries {
		f.must(os.Mkdir(filepath.Join(f.dir, strconv.Itoa(i)), 0o700))
	}
	if list, err := f.ReadDir(t.Context(), sandbox.Root); err != nil || len(list) != sandbox.MaxDirEntries {
		t.Errorf("%d names, %v", len(list), err)
	}
	f.must(os.Mkdir(filepath.Join(f.dir, "one more"), 0o700))
	if _, err := f.ReadDir(t.Context(), sandbox.Root); !fault.Is(err, fault.TreeTooLarge) {
		t.Error(err)
	}
}

// TestDeepTree removes a tree 20,000 directories deep, which exceeds every path and recursion
// limit.
func TestDeepTree(t *testing.T) {
	t.Parallel()
	f := inMemory(t)
	at, err := unix.Open(f.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	f.must(err)
	for range 20_000 {
		f.must(unix.Mkdirat(at, "d", 0o700))
		next, err := unix.Openat(at, "d", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		f.must(err)
		f.must(unix.Close(at))
		at = next
	}
	f.must(unix.Close(at))
	f.must(f.RemoveAll(t.Context(), sandbox.Root+"/d"))
	if got := f.names("."); len(got) != 0 {
		t.Errorf("there lie %q", got)
	}
}

// TestFileSwappedForFIFO exchanges a file and a FIFO all the time: an open that has checked the
// file must not block at the FIFO.
func TestFileSwappedForFIFO(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	file, fifo := filepath.Join(f.dir, "file"), filepath.Join(f.dir, "fifo")
	f.must(os.WriteFile(file, []byte("content"), 0o644))
	f.must(unix.Mkfifo(fifo, 0o644))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Microsecond): // else the swapper has a core to itself
				if err := unix.Renameat2(unix.AT_FDCWD, file, unix.AT_FDCWD, fifo, unix.RENAME_EXCHANGE); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	var read, refused int
	for i := 0; i < 3000 || read == 0 || refused == 0; i++ {
		got, err := f.ReadFile(t.Context(), sandbox.Root+"/file")
		switch {
		case err == nil && string(got) == "content":
			read++
		case errors.Is(err, fs.ErrInvalid):
			refused++
		default:
			t.Fatalf("%q %v", got, err)
		}
	}
}

// TestGrowingFile: a file that grows beyond the limit while it is read is an error.
func TestGrowingFile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	path := filepath.Join(f.dir, "file")
	f.must(os.WriteFile(path, nil, 0o644))
	f.must(os.Truncate(path, sandbox.MaxFileBytes)) // sparse
	if n, err := f.ReadFileTo(t.Context(), sandbox.Root+"/file", io.Discard); err != nil || n != sandbox.MaxFileBytes {
		t.Errorf("%d bytes, %v", n, err)
	}
	grown := false
	_, err := f.ReadFileTo(t.Context(), sandbox.Root+"/file", writer(func(p []byte) (int, error) {
		if !grown {
			grown = true
			return len(p), os.Truncate(path, sandbox.MaxFileBytes+1)
		}
		return len(p), nil
	}))
	if !fault.Is(err, fault.FileTooLarge) {
		t.Error(err)
	}
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
