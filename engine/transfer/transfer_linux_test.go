package transfer_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"secbox/engine/transfer"
)

// TestRoundTrip: the container has what is here, and here is what the job left.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	past := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	e.put("inputs/in.txt", "input")
	e.put("work/a/b/kept", "kept")
	e.put("work/removed", "x")
	e.put("work/dir/in", "x")
	e.put("work/program", "#!")
	e.put("work/odd \xff name", "odd")
	must(t, os.Chmod(filepath.Join(e.here, "work/program"), 0o755))
	must(t, os.Chtimes(filepath.Join(e.here, "work/a/b/kept"), past, past))
	must(t, os.Symlink("/etc/passwd", filepath.Join(e.here, "work/out")))
	must(t, os.Link(filepath.Join(e.here, "work/program"), filepath.Join(e.here, "work/program2")))
	u := e.send()
	for path, want := range map[string]string{
		"inputs/in.txt": "input", "work/a/b/kept": "kept", "work/odd \xff name": "odd", "work/program": "#!", "work/program2": "#!",
	} {
		if got, err := os.ReadFile(filepath.Join(e.container, path)); err != nil || string(got) != want {
			t.Errorf("%q: %q %v", path, got, err)
		}
	}
	if fi, err := os.Stat(filepath.Join(e.container, "work/program")); err != nil || fi.Mode() != 0o755 {
		t.Errorf("%v %v", fi, err)
	}
	if fi, err := os.Stat(filepath.Join(e.container, "work/a/b/kept")); err != nil || !fi.ModTime().Equal(past) {
		t.Errorf("%v %v", fi, err)
	}
	for path, want := range map[string]fs.FileMode{"inputs": fs.ModeDir | 0o555, "inputs/in.txt": 0o444} {
		if fi, err := os.Stat(filepath.Join(e.container, path)); err != nil || fi.Mode() != want {
			t.Errorf("%s: %v %v", path, fi.Mode(), err)
		}
	}
	if to, err := os.Readlink(filepath.Join(e.container, "work/out")); err != nil || to != "/etc/passwd" {
		t.Errorf("%q %v", to, err)
	}

	e.in("work/new/deep/file", "new")
	e.in("work/odd \xff name", "changed")
	e.in("inputs/in.txt", "changed")
	must(t, os.Mkdir(filepath.Join(e.container, "work/empty"), 0o750))
	must(t, os.Remove(filepath.Join(e.container, "work/removed")))
	must(t, os.RemoveAll(filepath.Join(e.container, "work/dir")))
	must(t, os.Symlink("new", filepath.Join(e.container, "work/link")))
	must(t, os.Rename(filepath.Join(e.container, "work/a/b/kept"), filepath.Join(e.container, "work/moved")))
	report := e.back(u)
	if report.Files != 3 || report.Removed != 4 || report.LeftOut != 0 {
		t.Errorf("%+v", report)
	}
	for path, want := range map[string]string{
		"work/new/deep/file": "new", "work/odd \xff name": "changed", "inputs/in.txt": "input", "work/removed": "", "work/dir": "",
		"work/moved": "kept", "work/a/b/kept": "",
	} {
		e.has(path, want)
	}
	if fi, err := os.Stat(filepath.Join(e.here, "work/empty")); err != nil || fi.Mode() != fs.ModeDir|0o750 {
		t.Errorf("%v %v", fi, err)
	}
	if fi, err := os.Stat(filepath.Join(e.here, "work/moved")); err != nil || !fi.ModTime().Equal(past) {
		t.Errorf("%v %v", fi, err)
	}
	if to, err := os.Readlink(filepath.Join(e.here, "work/link")); err != nil || to != "new" {
		t.Errorf("%q %v", to, err)
	}
}

// TestNothingChanged: what the job did not touch is not sent.
func TestNothingChanged(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	e.put("work/a/file", "content")
	must(t, os.Symlink("file", filepath.Join(e.here, "work/a/link")))
	u := e.send()
	if report := e.back(u); report != (transfer.Report{}) {
		t.Errorf("%+v", report)
	}
}

// TestHiddenChange: a job that sets the old time and keeps the size does not hide a change, even in
// the moment after the unpack.
func TestHiddenChange(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	const files = 50
	for i := range files {
		e.put(fmt.Sprintf("work/%d", i), "old")
	}
	u := e.send()
	for i := range files {
		path := filepath.Join(e.container, fmt.Sprintf("work/%d", i))
		fi, err := os.Stat(path)
		must(t, err)
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		must(t, err)
		_, err = f.WriteString("new")
		must(t, errors.Join(err, f.Close()))
		must(t, os.Chtimes(path, fi.ModTime(), fi.ModTime()))
	}
	e.back(u)
	for i := range files {
		e.has(fmt.Sprintf("work/%d", i), "new")
	}
}

// TestTypeChanges: each of file, directory and link becomes each of the others.
func TestTypeChanges(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	kinds := map[string]func(path string) error{
		"file": func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
		"dir": func(path string) error {
			return errors.Join(os.Mkdir(path, 0o700), os.WriteFile(path+"/in", []byte("x"), 0o600))
		},
		"link": func(path string) error { return os.Symlink("somewhere", path) },
	}
	for from, mk := range kinds {
		for to := range kinds {
			must(t, mk(filepath.Join(e.here, "work", from+"-"+to)))
		}
	}
	u := e.send()
	for from := range kinds {
		for to, mk := range kinds {
			path := filepath.Join(e.container, "work", from+"-"+to)
			must(t, os.RemoveAll(path))
			must(t, mk(path))
		}
	}
	if report := e.back(u); report.LeftOut > 0 {
		t.Errorf("%+v", report)
	}
	for from := range kinds {
		for to := range kinds {
			path := filepath.Join(e.here, "work", from+"-"+to)
			fi, err := os.Lstat(path)
			must(t, err)
			want := map[string]fs.FileMode{"file": 0, "dir": fs.ModeDir, "link": fs.ModeSymlink}[to]
			if fi.Mode().Type() != want {
				t.Errorf("%s is %v", path, fi.Mode())
			}
			if _, err := os.Lstat(path + "/in"); (err == nil) != (to == "dir") {
				t.Errorf("%s/in: %v", path, err)
			}
		}
	}
}

// TestExecsAtTheSameTime: the last one wins for each file that it has changed, and no exec loses a
// file of another one.
func TestExecsAtTheSameTime(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	e.put("work/dir/old", "old")
	e.put("work/both", "old")
	e.put("work/becomes", "old")
	first := e.send()
	firstContainer := e.container
	e.container = filepath.Join(t.TempDir(), "workspace")
	for i, name := range []string{"inputs", "work"} {
		e.dirs[i].Target = filepath.Join(e.container, name)
	}
	second := e.send()

	e.in("work/dir/second", "second")
	e.in("work/both", "second")
	must(t, os.Remove(filepath.Join(e.container, "work/becomes")))
	e.in("work/becomes/in", "second")
	e.back(second)

	e.container = firstContainer
	must(t, os.RemoveAll(filepath.Join(e.container, "work/dir")))
	e.in("work/dir", "a file now")
	e.in("work/both", "first")
	e.in("work/becomes", "first")
	report := e.back(first)
	e.has("work/dir/old", "")
	e.has("work/dir/second", "second")
	e.has("work/both", "first")
	e.has("work/becomes/in", "second")
	if report.LeftOut != 2 { // dir and becomes, whose places are taken
		t.Errorf("%+v", report)
	}
}

// TestSpecialFiles are left out and counted, in both directions, and never opened.
func TestSpecialFiles(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	must(t, unix.Mkfifo(filepath.Join(e.here, "work/fifo"), 0o600))
	var sent bytes.Buffer
	report, err := transfer.Send(&sent, e.dirs, wide)
	if err != nil || report.LeftOut != 1 || report.First != "fifo" {
		t.Errorf("%+v %v", report, err)
	}
	u, err := transfer.Unpack(&sent)
	must(t, err)
	must(t, unix.Mkfifo(filepath.Join(e.container, "work/fifo2"), 0o600))
	must(t, unix.Mknod(filepath.Join(e.container, "work/socket"), unix.S_IFSOCK|0o600, 0))
	if report := e.back(u); report.LeftOut != 2 || report.Entries != 0 {
		t.Errorf("%+v", report)
	}
	if fi, err := os.Lstat(filepath.Join(e.here, "work/fifo")); err != nil || fi.Mode().Type() != fs.ModeNamedPipe {
		t.Errorf("the FIFO here: %v %v", fi, err)
	}
}

// TestModes: set-uid bits do not come back, and the owner can always read.
func TestModes(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	u := e.send()
	e.in("work/secret/file", "x")
	must(t, os.Chmod(filepath.Join(e.container, "work/secret/file"), 0o4000|fs.ModeSetuid))
	must(t, os.Chmod(filepath.Join(e.container, "work/secret"), 0|fs.ModeSetgid|fs.ModeSticky))
	e.back(u)
	e.has("work/secret/file", "x")
	for path, want := range map[string]fs.FileMode{"work/secret": fs.ModeDir | 0o700, "work/secret/file": 0o600} {
		if fi, err := os.Stat(filepath.Join(e.here, path)); err != nil || fi.Mode() != want {
			t.Errorf("%s: %v %v", path, fi.Mode(), err)
		}
	}
}

// TestOwner: what comes back belongs to the owner.
func TestOwner(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	u := e.send()
	e.in("work/dir/file", "x")
	must(t, os.Symlink("file", filepath.Join(e.container, "work/dir/link")))
	_, err := transfer.Receive(bytes.NewReader(e.changes(u)), e.dirs, wide, transfer.Owner{UID: 1234, GID: 1235})
	must(t, err)
	for _, path := range []string{"dir", "dir/file", "dir/link"} {
		fi, err := os.Lstat(filepath.Join(e.here, "work", path))
		must(t, err)
		if st := fi.Sys().(*syscall.Stat_t); st.Uid != 1234 || st.Gid != 1235 {
			t.Errorf("%s belongs to %d:%d", path, st.Uid, st.Gid)
		}
	}
}

// TestSparseFiles cost what they take on the disk.
func TestSparseFiles(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	u := e.send()
	path := filepath.Join(e.container, "work/sparse")
	f, err := os.Create(path)
	must(t, err)
	must(t, f.Truncate(100<<30))
	_, err = f.WriteAt([]byte("middle"), 50<<30)
	must(t, errors.Join(err, f.Close()))
	var back bytes.Buffer
	must(t, u.Changes(&back, transfer.Bounds{Bytes: 1 << 20, Entries: 10}))
	if back.Len() > 128<<10 {
		t.Errorf("%d bytes were sent", back.Len())
	}
	_, err = transfer.Receive(&back, e.dirs, transfer.Bounds{Bytes: 1 << 20, Entries: 10}, transfer.Owner{UID: -1})
	must(t, err)
	got, err := os.Open(filepath.Join(e.here, "work/sparse"))
	must(t, err)
	defer got.Close()
	fi, err := got.Stat()
	must(t, err)
	content := make([]byte, 6)
	_, err = got.ReadAt(content, 50<<30)
	if st := fi.Sys().(*syscall.Stat_t); err != nil || string(content) != "middle" || fi.Size() != 100<<30 || st.Blocks*512 > 1<<20 {
		t.Errorf("%q %v, %d bytes, %d blocks", content, err, fi.Size(), st.Blocks)
	}
}

// TestBounds: each bound is enforced by the sender, who says so, and by the receiver, who does not
// trust the sender.
func TestBounds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bounds transfer.Bounds
		within bool
	}{
		"within":   {transfer.Bounds{Bytes: 200_000, Entries: 3}, true},
		"bytes":    {transfer.Bounds{Bytes: 199_999, Entries: 3}, false},
		"entries":  {transfer.Bounds{Bytes: 200_000, Entries: 2}, false},
		"negative": {transfer.Bounds{Bytes: -1, Entries: -1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnds(t)
			u := e.send()
			e.in("work/dir/a", strings.Repeat("a", 100_000))
			e.in("work/dir/b", strings.Repeat("b", 100_000))
			all := e.changes(u)
			_, err := transfer.Receive(bytes.NewReader(all), e.dirs, c.bounds, transfer.Owner{UID: -1})
			if (err == nil) != c.within || err != nil && !errors.Is(err, transfer.ErrTooLarge) {
				t.Errorf("received: %v", err)
			}
			e.noTemps()
			var bounded bytes.Buffer
			must(t, u.Changes(&bounded, c.bounds))
			if _, err := e.receive(bounded.Bytes()); (err == nil) != c.within || err != nil && !errors.Is(err, transfer.ErrTooLarge) {
				t.Errorf("sent: %v", err)
			}
			if c.within {
				if _, err := transfer.Send(io.Discard, e.dirs, c.bounds); err != nil {
					t.Error(err)
				}
			} else if _, err := transfer.Send(io.Discard, e.dirs, c.bounds); name == "negative" && !errors.Is(err, transfer.ErrTooLarge) {
				t.Error(err)
			}
		})
	}
}

// TestBackIntoABrokenPlace: nothing is written through a link that another program has put here.
func TestBackThroughALinkThatIsHere(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	e.put("work/dir/file", "old")
	outside := t.TempDir()
	u := e.send()
	e.in("work/dir/file", "new")
	e.in("work/dir/sub/other", "new")
	must(t, os.RemoveAll(filepath.Join(e.here, "work/dir")))
	must(t, os.Symlink(outside, filepath.Join(e.here, "work/dir")))
	if report := e.back(u); report.LeftOut != 3 || report.First != "dir/file" && report.First != "dir/sub" {
		t.Errorf("%+v", report)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
}

// TestReplacedWork: a job that replaces work/ does not remove the project's files, and brings no
// others.
func TestReplacedWork(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(work string) error{
		"by a link":    func(work string) error { return os.Symlink("/etc", work) },
		"by a file":    func(work string) error { return os.WriteFile(work, nil, 0o600) },
		"by nothing":   func(string) error { return nil },
		"by a FIFO":    func(work string) error { return unix.Mkfifo(work, 0o600) },
		"by a new dir": func(work string) error { return os.MkdirAll(work, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnds(t)
			e.put("work/file", "old")
			u := e.send()
			work := filepath.Join(e.container, "work")
			must(t, os.RemoveAll(work))
			must(t, replace(work))
			_, err := e.receive(e.changes(u))
			if name == "by a new dir" { // which is what rm -rf work; mkdir work is
				must(t, err)
				e.has("work/file", "")
				return
			}
			if err == nil || !strings.Contains(err.Error(), "replaced") {
				t.Error(err)
			}
			e.has("work/file", "old")
			if left, err := os.ReadDir(filepath.Join(e.here, "work")); err != nil || len(left) != 1 {
				t.Errorf("%v %v", left, err)
			}
		})
	}
}

// TestSendWhileFilesChange sends a tree in which everything is replaced all the time: by links to
// outside, FIFOs, directories, shorter and longer files. No content from outside is sent.
func TestSendWhileFilesChange(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	outside := t.TempDir()
	e.write(filepath.Join(outside, "secret"), "secret of another project")
	work := filepath.Join(e.here, "work")
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			for _, name := range []string{"a", "b", "c"} {
				path, temp := filepath.Join(work, name), filepath.Join(work, ".temp")
				_ = os.RemoveAll(path)
				switch i % 6 {
				case 0:
					_ = os.Symlink(outside, path)
				case 1:
					_ = os.Symlink(filepath.Join(outside, "secret"), path)
				case 2:
					_ = unix.Mkfifo(path, 0o600)
				case 3:
					_ = os.Mkdir(path, 0o700)
					_ = os.Symlink(filepath.Join(outside, "secret"), path+"/secret")
				case 4:
					_ = os.WriteFile(temp, bytes.Repeat([]byte("x"), i%200_000), 0o600)
					_ = os.Rename(temp, path)
				case 5:
					_ = os.Mkdir(path, 0o700)
					_ = os.WriteFile(path+"/secret", []byte("mine"), 0o600)
				}
			}
		}
	}()
	for range 500 {
		var sent bytes.Buffer
		if _, err := transfer.Send(&sent, e.dirs, wide); err != nil {
			t.Error(err)
			break
		}
		if bytes.Contains(sent.Bytes(), []byte("another project")) {
			t.Error("a link was followed")
			break
		}
	}
	close(done)
	<-stopped
}

// TestDeepTrees: what lies too deep is left out, and handles stay bounded.
func TestDeepTrees(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	u := e.send()
	dir, err := os.OpenRoot(filepath.Join(e.container, "work"))
	must(t, err)
	for range 3_000 {
		must(t, dir.Mkdir("d", 0o700))
		next, err := dir.OpenRoot("d")
		must(t, err)
		dir.Close()
		dir = next
	}
	dir.Close()
	if report := e.back(u); report.LeftOut != 1 || report.Entries != 128 {
		t.Errorf("%+v", report)
	}
	if report, err := transfer.Send(io.Discard, e.dirs, wide); err != nil || report.Entries != 128 {
		t.Errorf("%+v %v", report, err)
	}
}
