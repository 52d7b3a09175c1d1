package inputstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"secbox/audit"
	"secbox/fault"
)

// fixture is a store with a clock of the test's.
type fixture struct {
	*Store
	t    *testing.T
	root string

	mu  sync.Mutex
	now time.Time
}

func setUp(t *testing.T, most, perToken int64) *fixture {
	t.Helper()
	f := &fixture{t: t, root: t.TempDir(), now: time.Now()}
	f.reopen(most, perToken)
	return f
}

// reopen opens the store as another process would.
func (f *fixture) reopen(most, perToken int64) {
	f.t.Helper()
	s, err := Open(Config{Root: f.root, MaxBytes: most, MaxBytesPerToken: perToken, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.now
	}})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { s.Close() })
	f.Store = s
}

func (f *fixture) pass(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

func (f *fixture) keep(token string, want audit.InputsKept, contents ...string) {
	f.t.Helper()
	var all []Content
	for _, c := range contents {
		all = append(all, content(c))
	}
	if got := f.Keep(token, all); got != want {
		f.t.Errorf("Keep: %q, want %q", got, want)
	}
}

func (f *fixture) has(token, content string) {
	f.t.Helper()
	if got, err := f.Get(token, input(content)); err != nil || string(got) != content {
		f.t.Errorf("%.20q: %.20q, %v", content, got, err)
	}
}

func (f *fixture) misses(token, content string, code fault.Code) {
	f.t.Helper()
	if got, err := f.Get(token, input(content)); !fault.Is(err, code) || got != nil {
		f.t.Errorf("%.20q: %.20q, %v; want %s", content, got, err, code)
	}
}

// file is the path of a content.
func (f *fixture) file(token, content string) string {
	return filepath.Join(f.root, dirName, tokenDir(token), place(input(content).SHA256))
}

func input(content string) audit.Input {
	sum := sha256.Sum256([]byte(content))
	return audit.Input{Path: "in.txt", Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
}

func content(text string) Content { return Content{SHA256: input(text).SHA256, Data: []byte(text)} }

func TestKeep(t *testing.T) {
	t.Parallel()
	f := setUp(t, 1<<20, 1<<20)
	f.keep("a", audit.Kept, "one", "two", "one", "", "../../loopback")
	for _, c := range []string{"one", "two", "", "../../loopback"} {
		f.has("a", c)
	}
	if used := f.Used(); used != 4*block {
		t.Errorf("%d bytes are used, want four blocks", used)
	}
	f.keep("a", audit.Kept, "two", "one")
	if used := f.Used(); used != 4*block {
		t.Errorf("the same again: %d bytes", used)
	}
	f.misses("b", "one", fault.NotReplayable) // each token has its own
	f.misses("a", "three", fault.NotReplayable)
	f.keep("../b", audit.Kept, "one")
	f.has("../b", "one")
	bad := input("one")
	bad.SHA256 = "../../../../etc/passwd"
	if _, err := f.Get("a", bad); !fault.Is(err, fault.NotReplayable) {
		t.Errorf("no digest: %v", err)
	}
	if fi, err := os.Stat(filepath.Join(f.root, dirName)); err != nil || runtime.GOOS != "windows" && fi.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", fi, err)
	}
	if err := f.Measure(t.Context()); err != nil || f.Used() != 5*block {
		t.Errorf("measured %d bytes, %v", f.Used(), err)
	}
}

// TestBounds: over a bound, none of an exec's inputs are kept, and others can go on.
func TestBounds(t *testing.T) {
	t.Parallel()
	f := setUp(t, 4*block, 2*block)
	f.keep("a", audit.KeptShare, "1", "2", "3")
	f.misses("a", "1", fault.NotReplayable)
	f.keep("a", audit.Kept, "1", "2")
	f.keep("a", audit.Kept, "2", "1")
	f.keep("a", audit.KeptShare, "1", "3")
	f.keep("b", audit.Kept, "1", string(bytes.Repeat([]byte("x"), block)))
	f.keep("c", audit.KeptNoRoom, "1")
	f.reopen(4*block, 2*block)
	if err := f.Measure(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.keep("c", audit.KeptNoRoom, "1")
	f.reopen(0, 0)
	f.keep("a", audit.KeptOff, "1")
	f.has("a", "1")
	f.reopen(16*block, 0)
	f.keep("d", audit.KeptShare, "1", "2", "3", "4", "5") // a quarter
}

// TestAltered: an altered content is named and not used, and is replaced when the exec comes again.
func TestAltered(t *testing.T) {
	t.Parallel()
	for name, alter := range map[string]func(path string) error{
		"other content": func(path string) error { return os.WriteFile(path, []byte("eno"), 0o600) },
		"shorter":       func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"longer":        func(path string) error { return os.WriteFile(path, []byte("one and more"), 0o600) },
		"a link": func(path string) error {
			return errors.Join(os.WriteFile(path+"x", []byte("one"), 0o600), os.Remove(path), os.Symlink(path+"x", path))
		},
		"a directory": func(path string) error {
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o700), os.WriteFile(path+"/x", nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t, 1<<20, 0)
			f.keep("a", audit.Kept, "one")
			if err := alter(f.file("a", "one")); err != nil {
				t.Fatal(err)
			}
			f.misses("a", "one", fault.ArtifactAltered)
			f.keep("a", audit.Kept, "one")
			f.has("a", "one")
		})
	}
}

// TestKeepAtOnce: the same contents by many execs at once are written once.
func TestKeepAtOnce(t *testing.T) {
	t.Parallel()
	f := setUp(t, 1<<30, 1<<30)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for n := range 20 {
				f.keep("a", audit.Kept, "shared", fmt.Sprintf("of round %d", n), fmt.Sprintf("of %d", i))
			}
		})
	}
	all.Wait()
	for n := range 20 {
		f.has("a", fmt.Sprintf("of round %d", n))
	}
	counted := f.Used()
	if err := f.Measure(t.Context()); err != nil || f.Used() != 37*block || counted != f.Used() {
		t.Errorf("%d bytes were counted, %d are there, %v", counted, f.Used(), err)
	}
	var left []string
	_ = filepath.WalkDir(f.root, func(path string, d fs.DirEntry, _ error) error {
		if filepath.Ext(path) == "" && len(d.Name()) > 4 && d.Name()[:5] == newPrefix {
			left = append(left, path)
		}
		return nil
	})
	if len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	f := setUp(t, 1<<20, 1<<20)
	f.keep("a", audit.Kept, "named", "used again", "unnamed")
	f.keep("b", audit.Kept, "named")
	half := filepath.Join(f.root, dirName, tokenDir("a"), newPrefix+"x") // left by a crash
	if err := os.WriteFile(half, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	sweep := func(want int, named Named) {
		t.Helper()
		if removed, err := f.Sweep(t.Context(), named); err != nil || removed != want {
			t.Errorf("%d removed, %v; want %d", removed, err, want)
		}
	}
	none := func(context.Context, func(string, string)) error { return nil }
	sweep(0, func(context.Context, func(string, string)) error {
		t.Error("asked, and nothing is old")
		return nil
	})
	f.pass(grace + time.Hour)
	f.keep("a", audit.Kept, "used again")
	lost := errors.New("the database is away")
	if removed, err := f.Sweep(t.Context(), func(context.Context, func(string, string)) error { return lost }); removed > 0 || !errors.Is(err, lost) {
		t.Errorf("%d removed, %v", removed, err)
	}
	sweep(2, func(_ context.Context, each func(token, digest string)) error {
		each("a", input("named").SHA256)
		each("c", input("unnamed").SHA256)
		each("a", "no digest")
		return nil
	})
	f.has("a", "named")
	f.has("a", "used again")
	f.misses("a", "unnamed", fault.NotReplayable)
	f.misses("b", "named", fault.NotReplayable)
	if _, err := os.Lstat(half); !errors.Is(err, fs.ErrNotExist) || f.Used() != 2*block {
		t.Errorf("%v, %d bytes", err, f.Used())
	}
	f.pass(grace + time.Hour)
	sweep(2, none)
	if f.Used() != 0 {
		t.Errorf("%d bytes", f.Used())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	f.keep("a", audit.Kept, "one")
	if _, err := f.Sweep(ended, none); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

// TestNotWritable: what cannot be written is not kept, and not counted.
func TestNotWritable(t *testing.T) {
	t.Parallel()
	f := setUp(t, 1<<20, 0)
	if err := os.WriteFile(filepath.Join(f.root, dirName, tokenDir("a")), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.keep("a", audit.KeptFailed, "one")
	f.keep("b", audit.Kept, "one")
	if err := os.WriteFile(filepath.Join(f.root, dirName, tokenDir("b"), input("two").SHA256[:2]), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.keep("b", audit.KeptFailed, "two")
	if f.Used() != block {
		t.Errorf("%d bytes are counted", f.Used())
	}
	if err := f.Measure(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestKept: what is kept is told without reading it, and nothing outside the store is looked at.
func TestKept(t *testing.T) {
	t.Parallel()
	f := setUp(t, 1<<20, 1<<20)
	f.keep("a", audit.Kept, "one", "two", "folder", "link")
	for _, c := range []string{"folder", "link"} {
		if err := os.Remove(f.file("a", c)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(f.file("a", "folder"), 0o700), os.Symlink(f.file("a", "one"), f.file("a", "link"))); err != nil {
		t.Fatal(err)
	}
	resized, odd := input("two"), input("one")
	resized.Size++
	odd.SHA256 = "../../../../etc/passwd"
	inputs := []audit.Input{input("one"), input("none"), input("two"), resized, odd, input("folder"), input("link"), {}}
	got, err := f.Kept(t.Context(), "a", inputs)
	if want := []bool{true, false, true, false, false, false, false, false}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if got, err := f.Kept(t.Context(), "b", inputs); err != nil || slices.Contains(got, true) || len(got) != len(inputs) {
		t.Errorf("another token: %v, %v", got, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Kept(gone, "a", inputs); err == nil {
		t.Error("it goes on without its client")
	}
}
