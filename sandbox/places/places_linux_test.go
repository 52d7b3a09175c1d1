package places_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"secbox/engine"
	"secbox/fault"
	"secbox/pathadapter"
	"secbox/sandbox"
	"secbox/sandbox/inside"
	"secbox/sandbox/places"
	"secbox/sandbox/places/placestest"
	"secbox/workspace"
)

func TestMain(m *testing.M) {
	inside.Main() // this program is the sandbox-init of placestest.Here
	os.Exit(m.Run())
}

// fixture is a place: its files, the path of a directory in it, and that directory on this machine.
type fixture struct {
	places.Files
	path, dir string
}

// each runs a test for a session and a project.
func each(t *testing.T, test func(t *testing.T, f fixture)) {
	t.Run("session", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		test(t, fixture{places.Session{In: placestest.Here{}}, dir, dir})
	})
	t.Run("project", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		adapter, err := pathadapter.New(pathadapter.Config{Root: root})
		if err != nil {
			t.Fatal(err)
		}
		w, err := workspace.Open(workspace.Options{Adapter: adapter, UID: -1, GID: -1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close() })
		p, err := w.Project("p")
		if err != nil {
			t.Fatal(err)
		}
		test(t, fixture{places.Project{Of: p}, "/workspace/work", filepath.Join(root, "projects", "p", "work")})
	})
}

func (f fixture) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func digest(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

func free(int64) error { return nil }

func (f fixture) reads(t *testing.T, name, want string) {
	t.Helper()
	got, err := f.Read(t.Context(), f.path+"/"+name, 1<<20, free)
	if err != nil || string(got) != want {
		t.Errorf("%s: %q %v, want %q", name, got, err, want)
	}
}

func TestWrites(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f fixture) {
		write := func(name, content, was, before string) {
			t.Helper()
			got, err := f.Write(t.Context(), f.path+"/"+name, strings.NewReader(content), was)
			if err != nil || got != before {
				t.Errorf("%s: %q %v, want %q", name, got, err, before)
			}
			f.reads(t, name, content)
		}
		write("a/b/c.txt", "one", "", sandbox.Absent)
		write("a/b/c.txt", "two", "", digest("one"))
		write("a/b/c.txt", "three", digest("two"), digest("two"))
		write("new", "", sandbox.Absent, sandbox.Absent)
		large := strings.Repeat("0123456789abcdef", 40_000)
		write("large", large, "", sandbox.Absent)
		write("caf%E9\n", "text", "", sandbox.Absent)
		for was, content := range map[string]string{digest("other"): "x", sandbox.Absent: "y"} {
			if _, err := f.Write(t.Context(), f.path+"/a/b/c.txt", strings.NewReader(content), was); !fault.Is(err, fault.FileChanged) {
				t.Errorf("%s: %v", was, err)
			}
		}
		// Content that is cut off changes nothing, and leaves nothing.
		cut := errors.New("cut off")
		if _, err := f.Write(t.Context(), f.path+"/a/b/c.txt", io.MultiReader(strings.NewReader(large), failing{cut}), ""); !errors.Is(err, cut) {
			t.Errorf("%v", err)
		}
		f.reads(t, "a/b/c.txt", "three")
		if left, err := os.ReadDir(f.dir + "/a/b"); err != nil || len(left) != 1 {
			t.Errorf("%v %v", left, err)
		}
		opened, err := f.Open(t.Context(), f.path+"/large")
		if err != nil {
			t.Fatal(err)
		}
		defer opened.Close()
		for _, at := range []int64{0, 16, int64(len(large)) - 5, int64(len(large))} {
			if _, err := opened.Seek(at, io.SeekStart); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(opened); err != nil || string(got) != large[at:] {
				t.Errorf("from %d: %d bytes, %v", at, len(got), err)
			}
		}
		if _, err := f.Read(t.Context(), f.path+"/large", 1000, free); !fault.Is(err, fault.FileTooLarge) {
			t.Errorf("%v", err)
		}
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestLists(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f fixture) {
		all := []string{"a\nb", "bad\xff", "c", "d"}
		for _, name := range all[:3] {
			f.write(t, name, "12345")
		}
		if err := os.Symlink("c", filepath.Join(f.dir, "d")); err != nil {
			t.Fatal(err)
		}
		var got []string
		for after := ""; ; {
			l, err := f.List(t.Context(), f.path, after, 3)
			if err != nil || !l.Mode.IsDir() {
				t.Fatal(l, err)
			}
			for _, e := range l.Entries {
				got = append(got, e.Name)
				if e.Name != "d" && (e.Size != 5 || !e.Mode.IsRegular() || e.Modified.IsZero()) || e.Name == "d" && e.Mode&fs.ModeSymlink == 0 {
					t.Errorf("%+v", e)
				}
			}
			if after = l.Next; after == "" {
				break
			}
		}
		if !slices.Equal(got, all) {
			t.Errorf("%q", got)
		}
		f.reads(t, "bad%FF", "12345")
		if l, err := f.List(t.Context(), f.path+"/d", "", 10); err != nil || l.Size != 5 || l.Entries != nil {
			t.Errorf("%+v %v", l, err)
		}
		if _, err := f.List(t.Context(), f.path+"/missing", "", 10); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
}

func TestMovesAndRemovals(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f fixture) {
		ctx := t.Context()
		for range 2 {
			if err := f.MakeDir(ctx, f.path+"/dir/below"); err != nil {
				t.Fatal(err)
			}
		}
		f.write(t, "a", "a")
		f.write(t, "b", "b")
		if err := f.Move(ctx, f.path+"/a", f.path+"/b", false); !errors.Is(err, fs.ErrExist) {
			t.Error(err)
		}
		if err := f.Move(ctx, f.path+"/a", f.path+"/b", true); err != nil {
			t.Error(err)
		}
		if err := f.Move(ctx, f.path+"/b", f.path+"/dir/below/c", false); err != nil {
			t.Error(err)
		}
		f.reads(t, "dir/below/c", "a")
		if err := f.Move(ctx, f.path+"/missing", f.path+"/x", false); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		f.write(t, "d", "d")
		for _, c := range []struct{ from, to, names string }{ // the path that is the cause
			{"missing", "x", "missing"}, {"d", "nope/deep/x", "nope/deep"}, {"d", "dir", "dir"}, {"dir", "d", "d"},
		} {
			err := f.Move(ctx, f.path+"/"+c.from, f.path+"/"+c.to, false)
			if at, ok := errors.AsType[*fs.PathError](err); !ok || at.Path != f.path+"/"+c.names {
				t.Errorf("%s to %s: %v", c.from, c.to, err)
			}
		}
		_, err := f.Write(ctx, f.path+"/d/under", strings.NewReader("x"), "")
		for _, err := range []error{err, f.MakeDir(ctx, f.path+"/d/under")} {
			if !errors.Is(err, fs.ErrExist) {
				t.Errorf("under a file: %v", err)
			}
		}
		if got := places.Before(ctx, f, f.path+"/dir/below/c"); got != digest("a") {
			t.Errorf("%q", got)
		}
		if err := f.Remove(ctx, f.path+"/dir", false); !fault.Is(err, fault.InputConflict) {
			t.Error(err)
		}
		if err := f.Remove(ctx, f.path+"/dir", true); err != nil {
			t.Error(err)
		}
		for _, all := range []bool{false, true} {
			if err := f.Remove(ctx, f.path+"/dir", all); !errors.Is(err, fs.ErrNotExist) {
				t.Error(all, err)
			}
		}
	})
}

// TestFilesOfOtherKinds: no operation waits for a FIFO, or opens a device.
func TestFilesOfOtherKinds(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f fixture) {
		if err := syscall.Mkfifo(filepath.Join(f.dir, "fifo"), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("nowhere", filepath.Join(f.dir, "dangling")); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{f.path, f.path + "/fifo"} {
			if _, err := f.Read(t.Context(), name, 10, free); !errors.Is(err, fs.ErrInvalid) {
				t.Error(name, err)
			}
			if _, err := f.Open(t.Context(), name); !errors.Is(err, fs.ErrInvalid) {
				t.Error(name, err)
			}
			if _, err := f.Write(t.Context(), name, strings.NewReader("x"), ""); !errors.Is(err, fs.ErrInvalid) {
				t.Error(name, err)
			}
		}
		if _, err := f.Write(t.Context(), f.path+"/fifo/x", strings.NewReader("x"), ""); err == nil {
			t.Error("wrote below a FIFO")
		}
		for _, name := range []string{"", "a", "/a/../b", "/a\x00", "/" + strings.Repeat("n", 256)} {
			if _, err := f.List(t.Context(), name, "", 1); err == nil {
				t.Errorf("%q is listed", name)
			}
		}
		if err := f.Remove(t.Context(), f.path+"/fifo", false); err != nil {
			t.Error(err)
		}
	})
}

// TestProjectIsConfined: of a project, only inputs/ and work/ are reached, whatever links say.
func TestProjectIsConfined(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f fixture) {
		if _, ok := f.Files.(places.Project); !ok {
			return
		}
		outside := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(outside, []byte("secret"), 0o644); err != nil {
			t.Fatal(err)
		}
		for name, target := range map[string]string{"abs": outside, "up": "../artifacts", "inputs": "../inputs"} {
			if err := os.Symlink(target, filepath.Join(f.dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		ctx := t.Context()
		if _, err := f.Read(ctx, f.path+"/abs", 100, free); !errors.Is(err, fs.ErrPermission) {
			t.Error(err)
		}
		for _, name := range []string{
			f.path + "/abs", f.path + "/up/x", f.path + "/inputs/x", "/workspace/inputs/x", "/workspace/artifacts/x", "/workspace/x", "/etc/x",
			"/workspace",
		} {
			if _, err := f.Write(ctx, name, strings.NewReader("x"), ""); !errors.Is(err, fs.ErrPermission) {
				t.Error(name, err)
			}
			if err := f.Remove(ctx, name+"/y", true); err == nil {
				t.Error(name)
			}
		}
		for _, name := range []string{f.path, "/workspace/inputs", "/workspace"} {
			if err := f.Remove(ctx, name, true); !errors.Is(err, fs.ErrPermission) {
				t.Error(name, err)
			}
		}
		l, err := f.List(ctx, "/workspace", "", 10)
		if err != nil || len(l.Entries) != 2 || l.Entries[0].Name != "inputs" || l.Entries[1].Name != "work" {
			t.Errorf("%+v %v", l, err)
		}
		if l, err = f.List(ctx, "/workspace", "inputs", 1); err != nil || len(l.Entries) != 1 || l.Entries[0].Name != "work" || l.Next != "" {
			t.Errorf("%+v %v", l, err)
		}
	})
}

// liar answers whatever a process of a session may answer.
type liar struct{ says func(stdout io.Writer) }

func (l liar) Run(ctx context.Context, _ engine.Job, stdout io.Writer) (engine.Exit, error) {
	l.says(stdout)
	return engine.Exit{}, nil
}

func (l liar) Watch(ctx context.Context, job engine.Job, stdout io.Writer) (engine.Exit, error) {
	return l.Run(ctx, job, stdout)
}

// TestLies: no answer is believed that cannot be true.
func TestLies(t *testing.T) {
	t.Parallel()
	text := func(s string) func(io.Writer) { return func(w io.Writer) { _, _ = io.WriteString(w, s) } }
	for name, says := range map[string]func(io.Writer){
		"nothing":     text(""),
		"not JSON":    text("no\n"),
		"no end":      text(`{"file": {}}`),
		"too long":    func(w io.Writer) { _, _ = w.Write(bytes.Repeat([]byte("x"), 3<<20)) },
		"no name":     text(`{"file": {"name": ""}}` + "\n"),
		"a slash":     text(`{"file": {"name": "YQ=="}, "entries": [{"name": "YS9i"}]}` + "\n"),
		"out of turn": text(`{"file": {"name": "YQ=="}, "entries": [{"name": "Yg=="}, {"name": "YQ=="}]}` + "\n"),
		"too many":    text(`{"file": {"name": "YQ=="}, "entries": [` + strings.Repeat(`{"name": "YQ=="},`, 20) + `{"name": "Yg=="}]}` + "\n"),
		"negative":    text(`{"file": {"name": "YQ==", "size": -1}}` + "\n"),
		"endless":     text(`{"file": {"name": "YQ=="}, "more": true, "entries": [{"name": "Yg=="}], "last": "YQ=="}` + "\n"),
		"other code":  text(`{"file": {"name": "YQ=="}, "code": "surprise"}` + "\n"),
	} {
		s := places.Session{In: liar{says}}
		if l, err := s.List(t.Context(), "/x", "", 10); err == nil {
			t.Errorf("%s: %+v", name, l)
		}
	}
	for name, says := range map[string]func(io.Writer){
		"no chunks":   text(`{"file": {"name": "YQ==", "size": 5}}` + "\n"),
		"no end":      text(`{"file": {"name": "YQ==", "size": 5}}` + "\n\x00\x00\x00\x05hello"),
		"more":        text(`{"file": {"name": "YQ==", "size": 4}}` + "\n\x00\x00\x00\x05hello\x00\x00\x00\x00"),
		"a big chunk": text(`{"file": {"name": "YQ==", "size": 5}}` + "\n\xff\x00\x00\x05hello\x00\x00\x00\x00"),
	} {
		s := places.Session{In: liar{says}}
		if content, err := s.Read(t.Context(), "/x", 100, free); err == nil {
			t.Errorf("%s: %q", name, content)
		}
	}
}

// TestWatch: changes are told as they come, and in directories below only if asked for.
func TestWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := places.Session{In: placestest.Here{}}
	for _, all := range []bool{false, true} {
		dir := filepath.Join(dir, fmt.Sprint(all))
		if err := os.MkdirAll(dir+"/old", 0o755); err != nil {
			t.Fatal(err)
		}
		act := func() {
			f := fixture{dir: dir}
			f.write(t, "a", "x")
			f.write(t, "old/b", "x")
			if err := os.MkdirAll(dir+"/new/deep", 0o755); err != nil {
				t.Error(err)
			}
			f.write(t, "new/deep/c", "x")
			away := dir + ".away"
			if err := errors.Join(os.MkdirAll(dir+"/left/deep", 0o755), os.Rename(dir+"/left", away)); err != nil {
				t.Error(err)
			}
			(fixture{dir: away}).write(t, "deep/elsewhere", "x")
			for _, err := range []error{os.Rename(dir+"/a", dir+"/z"), os.RemoveAll(dir)} {
				if err != nil {
					t.Error(err)
				}
			}
		}
		seen := map[string]bool{}
		err := s.Watch(t.Context(), dir, all, func() { go act() }, func(e places.Event) error {
			seen[e.Kind+" "+strings.TrimPrefix(e.Path, dir)] = true
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"created /a", "modified /a", "removed /a", "created /z", "created /new", "removed /new", "removed /old", "removed "}
		for one := range seen {
			if strings.Contains(one, "elsewhere") {
				t.Errorf("all %v: %s, which is in a directory that has left", all, one)
			}
		}
		below := []string{"created /old/b", "modified /old/b"}
		for _, one := range want {
			if !seen[one] {
				t.Errorf("all %v: %q was not told: %v", all, one, seen)
			}
		}
		for _, one := range below {
			if seen[one] != all {
				t.Errorf("all %v: %q was told: %v", all, one, seen[one])
			}
		}
	}
	if err := s.Watch(t.Context(), "/dev/null", false, func() {}, nil); !errors.Is(err, fs.ErrInvalid) {
		t.Error(err)
	}
}
