package files_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/files"
)

// fixture is Files of an empty directory.
type fixture struct {
	*testing.T
	dir string
	*files.Files
}

func newFixture(t *testing.T, change ...func(*files.Config)) fixture {
	t.Helper()
	return fixtureIn(t, t.TempDir(), change...)
}

func fixtureIn(t *testing.T, dir string, change ...func(*files.Config)) fixture {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	cfg := files.Config{Root: root, UID: -1, GID: -1}
	for _, c := range change {
		c(&cfg)
	}
	return fixture{T: t, dir: dir, Files: files.New(cfg)}
}

func (f fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// content returns the content of a file on the disk.
func (f fixture) content(name string) string {
	f.Helper()
	content, err := os.ReadFile(filepath.Join(f.dir, name))
	f.must(err)
	return string(content)
}

func (f fixture) names(dir string) (names []string) {
	f.Helper()
	entries, err := os.ReadDir(filepath.Join(f.dir, dir))
	f.must(err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestWindowsNamesAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *files.Config) { c.Windows = true })
	ctx := t.Context()
	for _, name := range []string{"CON", "nul.txt", "a:b", "trailing.", "trailing ", "dir/COM1/x", `a\b`} {
		path := sandbox.Root + "/" + name
		_, readErr := f.ReadFile(ctx, path)
		_, statErr := f.Stat(ctx, path)
		_, listErr := f.ReadDir(ctx, path)
		_, _, dirErr := f.Dir(t.Context(), path)
		for what, err := range map[string]error{
			"ReadFile": readErr, "Stat": statErr, "ReadDir": listErr, "Dir": dirErr,
			"WriteFile": f.WriteFile(ctx, path, nil, 0o644), "MkdirAll": f.MkdirAll(ctx, path, 0o755),
			"Remove": f.Remove(ctx, path), "RemoveAll": f.RemoveAll(ctx, path),
		} {
			if !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("%s takes %q: %v", what, name, err)
			}
		}
	}
	f.must(f.WriteFile(ctx, sandbox.Root+"/console.txt", []byte("x"), 0o644))
	if got := f.names("."); len(got) != 1 {
		t.Errorf("there lie %q", got)
	}
}

func TestPendingContent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	path := sandbox.Root + "/file"
	f.must(f.WriteFile(t.Context(), path, []byte("old"), 0o640))

	p, err := f.Create(t.Context(), path, 0o600)
	f.must(err)
	for _, piece := range []string{"new ", "content"} {
		if n, err := p.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	if p.Size() != int64(len("new content")) || f.content("file") != "old" {
		t.Errorf("%d bytes, and the file is %q", p.Size(), f.content("file"))
	}
	list, err := f.ReadDir(t.Context(), sandbox.Root)
	if err != nil || len(list) != 1 {
		t.Errorf("a temporary file is listed: %v %v", list, err)
	}
	f.must(p.Commit(t.Context()))
	if err := p.Commit(t.Context()); err == nil {
		t.Error("committed twice")
	}
	if _, err := p.Write([]byte("x")); err == nil {
		t.Error("written to after its end")
	}
	p.Discard()
	if f.content("file") != "new content" || len(f.names(".")) != 1 {
		t.Errorf("%q, %q", f.content("file"), f.names("."))
	}

	if p, err = f.Create(t.Context(), path, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = p.Write([]byte("never"))
	f.must(err)
	p.Discard()
	p.Discard()
	if err := p.Commit(t.Context()); err == nil {
		t.Error("committed after it was discarded")
	}
	if f.content("file") != "new content" || len(f.names(".")) != 1 {
		t.Errorf("%q, %q", f.content("file"), f.names("."))
	}
}

// TestDirectoryAppearsBeforeCommit: a directory that was made at the path meanwhile stays, and
// Commit fails.
func TestDirectoryAppearsBeforeCommit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, err := f.Create(t.Context(), sandbox.Root+"/it", 0o600)
	f.must(err)
	defer p.Discard()
	f.must(os.Mkdir(filepath.Join(f.dir, "it"), 0o700))
	if err := p.Commit(t.Context()); !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrInvalid) {
		t.Error(err)
	}
	if got := f.names("."); len(got) != 1 {
		t.Errorf("there lie %q", got)
	}
}

func TestLeftoverTempFiles(t *testing.T) {
	t.Parallel()
	now := time.Now()
	f := newFixture(t, func(c *files.Config) { c.Now = func() time.Time { return now } })
	f.must(os.Mkdir(filepath.Join(f.dir, "dir"), 0o700))
	old, fresh, foreign := ".secbox-"+strings.Repeat("A", 26)+".part", ".secbox-"+strings.Repeat("B", 26)+".part", ".secbox-mine.part"
	for name, age := range map[string]time.Duration{old: 61 * time.Minute, fresh: 59 * time.Minute, foreign: 1000 * time.Hour} {
		path := filepath.Join(f.dir, "dir", name)
		f.must(os.WriteFile(path, []byte("half"), 0o600))
		f.must(os.Chtimes(path, now.Add(-age), now.Add(-age)))
	}
	list, err := f.ReadDir(t.Context(), sandbox.Root+"/dir")
	if err != nil || len(list) != 1 || list[0].Name != foreign {
		t.Errorf("%v %v", list, err)
	}
	if got := f.names("dir"); len(got) != 2 || got[0] != fresh {
		t.Errorf("there lie %q", got)
	}
	// A directory with only a leftover looks empty to its user.
	f.must(os.Remove(filepath.Join(f.dir, "dir", foreign)))
	if err := f.Remove(t.Context(), sandbox.Root+"/dir"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a recent temporary file was removed: %v", err)
	}
	now = now.Add(2 * time.Minute)
	f.must(f.Remove(t.Context(), sandbox.Root+"/dir"))
}

func TestRoomIsChecked(t *testing.T) {
	t.Parallel()
	full := fault.New(fault.DiskFull, "no room")
	var answers []error // the last one repeats
	asked := 0
	f := newFixture(t, func(c *files.Config) {
		c.Room = func() error {
			asked++
			return answers[min(asked, len(answers))-1]
		}
	})
	path := sandbox.Root + "/file"
	answers = []error{full}
	if err := f.WriteFile(t.Context(), path, []byte("x"), 0o644); !fault.Is(err, fault.DiskFull) {
		t.Error(err)
	}
	if err := f.MkdirAll(t.Context(), sandbox.Root+"/dir", 0o755); !fault.Is(err, fault.DiskFull) {
		t.Error(err)
	}
	answers, asked = []error{nil, nil, full}, 0
	err := f.WriteFile(t.Context(), path, make([]byte, 100<<20), 0o644)
	if !fault.Is(err, fault.DiskFull) || asked != 3 {
		t.Errorf("%v, asked %d times", err, asked)
	}
	if got := f.names("."); len(got) != 0 {
		t.Errorf("there lie %q", got)
	}
}

func TestDir(t *testing.T) {
	t.Parallel()
	tools := sandbox.ReadOnlyRoot{Path: "/opt/tools", Dir: t.TempDir()}
	f := newFixture(t, func(c *files.Config) { c.ReadOnly = []sandbox.ReadOnlyRoot{tools} })
	f.must(os.MkdirAll(filepath.Join(f.dir, "a/b"), 0o700))
	f.must(os.MkdirAll(filepath.Join(tools.Dir, "bin"), 0o700))
	f.must(os.WriteFile(filepath.Join(f.dir, "file"), nil, 0o600))
	for path, want := range map[string][2]string{
		"": {"", "."}, sandbox.Root: {"", "."}, sandbox.Root + "/a/b/": {"", "a/b"},
		tools.Path: {tools.Dir, "."}, tools.Path + "/bin": {tools.Dir, "bin"},
	} {
		if shared, below, err := f.Dir(t.Context(), path); err != nil || shared.Dir != want[0] || below != want[1] {
			t.Errorf("%q: %+v %q %v", path, shared, below, err)
		}
	}
	for path, want := range map[string]error{
		"a": fs.ErrInvalid, sandbox.Root + "/no": fs.ErrNotExist, sandbox.Root + "/file": fs.ErrInvalid, sandbox.Root + "/file/x": fs.ErrNotExist,
		"/opt": fs.ErrPermission, "/opt/tools/no": fs.ErrNotExist,
	} {
		if shared, below, err := f.Dir(t.Context(), path); !errors.Is(err, want) {
			t.Errorf("%q: %+v %q %v", path, shared, below, err)
		}
	}
}

func TestDirOfLinkIsConfined(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.must(os.Symlink(t.TempDir(), filepath.Join(f.dir, "out")))
	if shared, below, err := f.Dir(t.Context(), sandbox.Root+"/out"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%+v %q %v", shared, below, err)
	}
}
