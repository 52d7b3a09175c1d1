//go:build unix

package workspace_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"secbox/fault"
	"secbox/pathadapter"
	"secbox/workspace"
)

func in(pairs ...string) (list []workspace.Input) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, workspace.Input{Path: pairs[i], Content: []byte(pairs[i+1])})
	}
	return list
}

func wantField(t testing.TB, err error, code fault.Code, field string) {
	t.Helper()
	wantCode(t, err, code)
	if e := fault.From(err); err != nil && (len(e.Fields) != 1 || e.Fields[0].Field != field || e.Fields[0].Reason == "" ||
		!strings.Contains(e.Message, field)) {
		t.Errorf("got %q with fields %+v, want the field %s", e.Message, e.Fields, field)
	}
}

// staging returns the number of files beside inputs/.
func (f *fixture) staging(t testing.TB) int {
	t.Helper()
	if _, err := os.Stat(f.dir + "/.staging"); os.IsNotExist(err) {
		return 0
	}
	return count(t, f.dir+"/.staging")
}

func TestPutInputs(t *testing.T) {
	// Not parallel: the umask is the whole process's.
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	f := setUp(t)
	inputs := append(in("main.py", "print(1)", "./data//deep/x.csv", "1,2\n", "data/empty", ""),
		workspace.Input{Path: "run", Content: []byte("x"), Executable: true})
	release, err := f.project.PutInputs(execID, inputs)
	must(t, err)
	for path, mode := range map[string]fs.FileMode{
		"main.py": 0o644, "data": fs.ModeDir | 0o755, "data/deep": fs.ModeDir | 0o755, "data/deep/x.csv": 0o644,
		"run": 0o755,
	} {
		fi, err := os.Lstat(filepath.Join(f.dir, "inputs", path))
		must(t, err)
		if fi.Mode() != mode {
			t.Errorf("%s has the mode %v", path, fi.Mode())
		}
	}
	if got := read(t, f.dir+"/inputs/data/deep/x.csv"); got != "1,2\n" {
		t.Errorf("got %q", got)
	}
	if n := f.staging(t); n != 0 {
		t.Errorf("%d files stayed in .staging", n)
	}
	_, err = f.project.PutInputs(execID, in("run", "x"))
	wantField(t, err, fault.InputInUse, "inputs[0].path")
	release()
	release()
	release, err = f.project.PutInputs(execID, in("run", "x"))
	must(t, err)
	if fi, err := os.Lstat(f.dir + "/inputs/run"); err != nil || fi.Mode() != 0o644 {
		t.Errorf("the mode has not changed: %v %v", fi, err)
	}
	release()

	release, err = f.project.PutInputs(execID, nil)
	must(t, err)
	release()
}

// TestBadInputsChangeNothing: one bad path among good ones, and nothing is written anywhere.
func TestBadInputsChangeNothing(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	before := count(t, f.root)
	for _, path := range badInputPaths {
		_, err := f.project.PutInputs(execID, in("good", "x", path, "evil", "also/good", "x"))
		wantField(t, err, fault.InvalidRequest, "inputs[1].path")
	}
	for _, pair := range [][2]string{
		{"a", "a"},
		{"a", "./a"},
		{"a/b", "a//b"},
		{"Main.py", "main.py"},
		{"stra\u00dfe", "stra\u1e9ee"},
		{"\u212a", "k"},
		{"caf\u00e9", "cafe\u0301"},
		{"CAF\u00c9", "cafe\u0301"},
		{"a", "a/b"},
		{"a/b", "a"},
		{"a/b/c", "a"},
		{"a/B", "a/b/c"},
		{"a/b/c", "A/B"},
		{"a/x", "A/y"},
		{"a/b/x", "a/B/y"},
	} {
		_, err := f.project.PutInputs(execID, in(pair[0], "1", pair[1], "2"))
		wantField(t, err, fault.InvalidRequest, "inputs[1].path")
	}
	_, err := f.project.PutInputs(execID, make([]workspace.Input, workspace.MaxInputs+1))
	wantField(t, err, fault.InvalidRequest, "inputs")
	if after := count(t, f.root); after != before {
		t.Errorf("%d entries became %d", before, after)
	}
}

func TestInputInUseKeepsItsContent(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	first, err := f.project.PutInputs("one", in("a/main.py", "1"))
	must(t, err)
	same, err := f.Project("demo")
	must(t, err)
	_, err = same.PutInputs("two", in("other", "x", "a/main.py", "2"))
	wantField(t, err, fault.InputInUse, "inputs[1].path")
	_, err = same.PutInputs("two", in("A/Main.py", "2"))
	wantField(t, err, fault.InputInUse, "inputs[0].path")
	gone(t, f.dir+"/inputs/other")

	second, err := same.PutInputs("two", in("a/main.py", "1"))
	must(t, err)
	first()
	first() // twice is once
	_, err = f.project.PutInputs("three", in("a/main.py", "3"))
	wantField(t, err, fault.InputInUse, "inputs[0].path")
	if got := read(t, f.dir+"/inputs/a/main.py"); got != "1" {
		t.Errorf("got %q", got)
	}
	second()
	third, err := f.project.PutInputs("three", in("a/main.py", "3"))
	must(t, err)
	defer third()
	if got := read(t, f.dir+"/inputs/a/main.py"); got != "3" {
		t.Errorf("got %q", got)
	}

	// Another project's path is another path.
	other, err := f.Project("other")
	must(t, err)
	fourth, err := other.PutInputs("four", in("a/main.py", "4"))
	must(t, err)
	fourth()
}

func TestVanishedInputIsRestored(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	first, err := f.project.PutInputs("one", in("a/x", "1"))
	must(t, err)
	defer first()
	must(t, os.RemoveAll(f.dir+"/inputs/a"))
	second, err := f.project.PutInputs("two", in("a/x", "1"))
	must(t, err)
	defer second()
	if got := read(t, f.dir+"/inputs/a/x"); got != "1" {
		t.Errorf("got %q", got)
	}
}

// TestInputsMeetOtherFiles: files, directories, links and FIFOs in inputs/ are not written through,
// and nothing else of the request is written.
func TestInputsMeetOtherFiles(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	inputs := f.dir + "/inputs"
	write(t, inputs+"/file", "old")
	write(t, inputs+"/dir/x", "old")
	must(t, os.Symlink(f.outside, inputs+"/out"))
	must(t, os.Symlink(f.outside+"/secret", inputs+"/secret"))
	must(t, os.Symlink(f.outside+"/new", inputs+"/dangling"))
	must(t, os.Symlink("dir", inputs+"/inside"))
	must(t, os.Symlink("../work", inputs+"/work"))
	must(t, os.Symlink("loop", inputs+"/loop"))
	must(t, unix.Mkfifo(inputs+"/fifo", 0o644))
	before := count(t, f.root)
	for _, path := range []string{
		"file/x", "file/x/y", "dir", "out", "out/x", "out/x/y", "secret", "secret/x", "dangling", "dangling/x", "inside", "inside/x", "work/x", "loop",
		"loop/x", "fifo", "fifo/x",
	} {
		_, err := f.project.PutInputs(execID, in("fresh/good", "x", path, "evil"))
		wantField(t, err, fault.InputConflict, "inputs[1].path")
	}
	if after := count(t, f.root); after != before {
		t.Errorf("%d entries became %d", before, after)
	}
	release, err := f.project.PutInputs(execID, in("file", "new", "dir/x", "new"))
	must(t, err)
	release()
	if read(t, inputs+"/file") != "new" || read(t, inputs+"/dir/x") != "new" {
		t.Error("a file was not replaced")
	}
}

// TestHardLinkInInputs: a rename puts a new file there and leaves the old one's other name alone.
func TestHardLinkInInputs(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	must(t, os.Link(f.outside+"/secret", f.dir+"/inputs/hard"))
	release, err := f.project.PutInputs(execID, in("hard", "new"))
	must(t, err)
	release()
	if read(t, f.outside+"/secret") != "secret" || read(t, f.dir+"/inputs/hard") != "new" {
		t.Error("the other name's file was written to")
	}
}

func TestInputsOrStagingThatIsALink(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"inputs", ".staging"} {
		for kind, target := range map[string]string{"outside": "../../../outside", "inside": "work"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				f := setUp(t)
				must(t, os.RemoveAll(filepath.Join(f.dir, name)))
				must(t, os.Symlink(target, filepath.Join(f.dir, name)))
				if _, err := f.project.PutInputs(execID, in("x", "x")); err == nil {
					t.Error("written through a link")
				}
				if n := count(t, f.dir+"/work"); n != 0 {
					t.Errorf("%d entries in work/", n)
				}
			})
		}
	}
}

// TestConcurrentPutsOfOnePath: one content is in use at a time, and the file always has all of it.
func TestConcurrentPutsOfOnePath(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	var holders, won atomic.Int64
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			content := strings.Repeat(fmt.Sprint(g), 100_000)
			for range 40 {
				release, err := f.project.PutInputs(fmt.Sprint("exec-", g), in("dir/shared", content, fmt.Sprintf("own/%d", g), content))
				if err != nil {
					wantCode(t, err, fault.InputInUse)
					continue
				}
				won.Add(1)
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d contents are in use at once", n)
				}
				data, err := os.ReadFile(f.dir + "/inputs/dir/shared")
				if err != nil || string(data) != content {
					t.Errorf("the file has other content: %.10q, %d bytes, %v", data, len(data), err)
				}
				holders.Add(-1)
				release()
			}
		})
	}
	group.Wait()
	if won.Load() == 0 {
		t.Error("no caller ever got it")
	}
	if n := f.staging(t); n != 0 {
		t.Errorf("%d files stayed in .staging", n)
	}
}

// TestOldStagingFilesAreRemoved: leftovers of a crash are removed with the first inputs an hour
// later; newer files stay.
func TestOldStagingFilesAreRemoved(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	write(t, f.dir+"/.staging/old", "x")
	write(t, f.dir+"/.staging/young", "x")
	now := time.Now()
	must(t, os.Chtimes(f.dir+"/.staging/old", now, now.Add(-2*time.Hour)))
	release, err := f.project.PutInputs(execID, in("x", "x"))
	must(t, err)
	release()
	gone(t, f.dir+"/.staging/old")
	if n := f.staging(t); n != 1 {
		t.Errorf("%d files in .staging", n)
	}

	// The clock is injected: a day later, for a new process, the other one is old too.
	adapter, err := pathadapter.New(pathadapter.Config{Root: f.root})
	must(t, err)
	later, err := workspace.Open(workspace.Options{Adapter: adapter, UID: -1, Now: func() time.Time { return now.Add(24 * time.Hour) }})
	must(t, err)
	defer later.Close()
	p, err := later.Project("demo")
	must(t, err)
	release, err = p.PutInputs(execID, in("x", "y"))
	must(t, err)
	release()
	if n := f.staging(t); n != 0 {
		t.Errorf("%d files in .staging", n)
	}
}

// TestEquivalentNames: a second spelling of a name in inputs/ is refused, unless both exist.
func TestEquivalentNames(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	put := func(path string) error {
		release, err := f.project.PutInputs(execID, in("fresh.txt", "x", path, "new"))
		if err == nil {
			release()
		}
		return err
	}
	must(t, put("A.txt"))
	must(t, put("d/Über/x"))
	for path, there := range map[string]string{
		"a.txt": `"A.txt"`, "D/y": `"d"`, "d/über/y": `"d/Über"`, "d/U\u0308ber/y": `"d/Über"`, "d/Über/X": `"d/Über/x"`, "a.TXT/below": `"A.txt"`,
	} {
		err := put(path)
		wantField(t, err, fault.InputConflict, "inputs[1].path")
		if err != nil && !strings.Contains(fault.From(err).Message, there) {
			t.Errorf("%s: %v does not name %s", path, err, there)
		}
	}
	must(t, put("A.txt"))
	must(t, put("d/Über/y"))
	write(t, f.dir+"/inputs/a.txt", "of an earlier version")
	must(t, put("a.txt"))
	must(t, put("A.txt"))
}
