//go:build unix

package translog_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"secbox/audit/admin"
	"secbox/audit/translog"
	"secbox/audit/translog/checkpoint"
)

const anchorFile = "secbox-test.checkpoints"

// anchor returns an anchor with a clock.
func (in *installation) anchor(dir string, every int, edit func(*translog.AnchorConfig)) (a *translog.Anchor, pass func(time.Duration)) {
	now := time.Now()
	cfg := translog.AnchorConfig{
		Log: in.log, Origin: origin, Dir: dir, Every: every, Verifier: in.verifier, Conflict: in.q.Halt, Logger: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return now },
	}
	if edit != nil {
		edit(&cfg)
	}
	return translog.NewAnchor(cfg), func(d time.Duration) { now = now.Add(d) }
}

// anchored returns the sizes of the checkpoints in the directory.
func (in *installation) anchored(dir string) []int64 {
	in.t.Helper()
	f, err := os.Open(filepath.Join(dir, anchorFile))
	if err != nil {
		in.t.Fatal(err)
	}
	defer f.Close()
	key, err := in.verifier()
	if err != nil {
		in.t.Fatal(err)
	}
	var sizes []int64
	for c, err := range checkpoint.All(f, key) {
		if err != nil {
			in.t.Fatal(err)
		}
		sizes = append(sizes, c.Tree.N)
	}
	return sizes
}

func sizesAre(t *testing.T, got []int64, want ...int64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("anchored %v, want %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("anchored %v, want %v", got, want)
		}
	}
}

func TestAnchorAppendsEveryNth(t *testing.T) {
	t.Parallel()
	in, dir := install(t, newKey(t)), t.TempDir()
	a, pass := in.anchor(dir, 3, nil)
	for range 7 {
		in.exec(1, "e")
		a.Step(t.Context(), false)
		pass(time.Second)
	}
	sizesAre(t, in.anchored(dir), 6, 12)
	pass(10 * time.Second)
	a.Step(t.Context(), false)
	sizesAre(t, in.anchored(dir), 6, 12, 14) // the last one before a pause
	in.exec(1, "e")
	a.Step(t.Context(), true)
	a.Step(t.Context(), true)
	sizesAre(t, in.anchored(dir), 6, 12, 14, 16) // the last one before the end
	if s := a.Status(); s.Problem != nil || s.Entries != 16 {
		t.Errorf("%+v", s)
	}
}

// TestAnchorFindsRollback: a database that was restored, cut or rebuilt is not extended.
func TestAnchorFindsRollback(t *testing.T) {
	t.Parallel()
	const otherKey = "another key, " + origin + "+"
	for name, tc := range map[string]struct {
		restore func(in *installation, key translog.Key, early translog.State) *installation
		says    string
	}{
		"rebuilt with another key": {func(in *installation, _ translog.Key, _ translog.State) *installation {
			out := install(in.t, newKey(in.t))
			out.exec(9, "x")
			return out
		}, otherKey},
		"new, with another key": {func(in *installation, _ translog.Key, _ translog.State) *installation {
			return install(in.t, newKey(in.t))
		}, otherKey},
		"new, with the key lost": {func(in *installation, _ translog.Key, _ translog.State) *installation {
			return install(in.t, translog.Key{})
		}, otherKey},
		"rolled back": {func(in *installation, key translog.Key, early translog.State) *installation {
			out := reopen(in.t, in.db, key)
			out.log.Store = rolledBack{in.log.Store, early}
			return out
		}, "it was rolled back to an older copy, or cut"},
		"empty": {func(in *installation, key translog.Key, _ translog.State) *installation { return install(in.t, key) }, "rolled back"},
		"rebuilt": {func(in *installation, key translog.Key, _ translog.State) *installation {
			out := install(in.t, key)
			out.exec(9, "x")
			return out
		}, "it was rebuilt"},
		"rebuilt and larger": {func(in *installation, key translog.Key, _ translog.State) *installation {
			out := install(in.t, key)
			out.exec(300, "x")
			return out
		}, "it was rebuilt"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, dir := newKey(t), t.TempDir()
			in := install(t, key)
			in.exec(5, "e")
			early := in.state()
			in.exec(4, "e")
			a, _ := in.anchor(dir, 1, nil)
			a.Step(t.Context(), false)
			sizesAre(t, in.anchored(dir), 18)
			late := tc.restore(in, key, early)
			b, _ := late.anchor(dir, 1, nil)
			b.Step(t.Context(), false)
			conflict := (*translog.Conflict)(nil)
			if err := b.Status().Problem; b.Status().Entries != 18 || !errors.As(err, &conflict) || !strings.Contains(err.Error(), tc.says) ||
				!strings.Contains(err.Error(), "18 entries") || !strings.Contains(conflict.Remedy, anchorFile) {
				t.Errorf("%v, %+v", err, conflict)
			}
			if !late.stops() {
				t.Error("the log is extended")
			}
			sizesAre(t, in.anchored(dir), 18)
		})
	}
}

func TestAnchorOutlivesRestart(t *testing.T) {
	t.Parallel()
	key, dir := newKey(t), t.TempDir()
	in := install(t, key)
	for range 3 {
		in = reopen(t, in.db, key)
		in.execs = int(in.state().Size)
		in.exec(1, "e")
		a, _ := in.anchor(dir, 1, nil)
		a.Step(t.Context(), false)
		if err := a.Status().Problem; err != nil {
			t.Fatal(err)
		}
	}
	sizesAre(t, in.anchored(dir), 2, 4, 6)
}

// fullFile has room for some bytes only.
type fullFile struct {
	translog.AnchorFile
	room int
}

func (f fullFile) Write(p []byte) (int, error) {
	n, err := f.AnchorFile.Write(p[:min(len(p), f.room)])
	if err == nil && n < len(p) {
		err = syscall.ENOSPC
	}
	return n, err
}

// TestAnchorOnAFullDisk: the log goes on, and the anchor when there is room again.
func TestAnchorOnAFullDisk(t *testing.T) {
	t.Parallel()
	in, dir := install(t, newKey(t)), t.TempDir()
	room := 1 << 20
	a, pass := in.anchor(dir, 1, func(cfg *translog.AnchorConfig) {
		plain := translog.NewAnchor(*cfg)
		cfg.Open = func(ctx context.Context) (translog.AnchorFile, int64, error) {
			f, size, err := plain.OpenFile(ctx)
			return fullFile{f, room}, size, err
		}
	})
	in.exec(1, "e")
	a.Step(t.Context(), false)
	for _, room = range []int{0, 10, 100} { // nothing, or a part of a record, is written
		in.exec(1, "e")
		pass(time.Minute)
		a.Step(t.Context(), false)
		if err := a.Status().Problem; err == nil || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), dir) {
			t.Errorf("%v", err)
		}
		if in.q.Halted() != nil {
			t.Fatal("the log stops")
		}
	}
	room = 1 << 20
	pass(time.Minute)
	a.Step(t.Context(), false)
	if err := a.Status().Problem; err != nil {
		t.Error(err)
	}
	sizesAre(t, in.anchored(dir), 2, 8)
}

// TestAnchorRefuses what is no directory of its own.
func TestAnchorRefuses(t *testing.T) {
	t.Parallel()
	in, outside := install(t, newKey(t)), filepath.Join(t.TempDir(), "outside")
	in.exec(1, "e")
	for name, tc := range map[string]struct {
		make func(dir string) error
		says string
	}{
		"not mounted":       {os.Remove, "mount it"},
		"a link to outside": {func(dir string) error { return os.Symlink(outside, filepath.Join(dir, anchorFile)) }, "cannot use"},
		"a link to a file": {func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "x"), nil, 0o600), os.Symlink("x", filepath.Join(dir, anchorFile)))
		}, "cannot use"},
		"a directory": {func(dir string) error { return os.Mkdir(filepath.Join(dir, anchorFile), 0o700) }, "cannot use"},
		"a pipe":      {func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, anchorFile), 0o600) }, "no regular file"},
		"something else": {
			func(dir string) error { return os.WriteFile(filepath.Join(dir, anchorFile), []byte("hello\n"), 0o600) },
			"no checkpoint of this log",
		},
	} {
		dir := filepath.Join(t.TempDir(), "anchor")
		if err := errors.Join(os.Mkdir(dir, 0o700), tc.make(dir)); err != nil {
			t.Fatal(err)
		}
		a, _ := in.anchor(dir, 1, nil)
		a.Step(t.Context(), false)
		if err := a.Status().Problem; tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%s: %v", name, err)
		}
		if in.q.Halted() != nil {
			t.Fatalf("%s: the log stops", name)
		}
	}
	if _, err := os.Lstat(outside); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file outside: %v", err)
	}
}

// TestRollbackOfARunningServer: the process itself remembers what it has signed.
func TestRollbackOfARunningServer(t *testing.T) {
	t.Parallel()
	in := install(t, newKey(t))
	store := &switched{Store: in.log.Store}
	in.q = translog.NewSequencer(translog.SequencerConfig{
		Store: store, Origin: origin, Holder: "n", Logger: slog.New(slog.DiscardHandler),
		Key: func(bool) (translog.Key, error) { return in.key, nil },
	})
	in.exec(3, "e")
	early := in.state()
	in.exec(3, "e")
	store.Store = rolledBack{in.log.Store, early}
	if !in.stops() || !strings.Contains(in.q.Halted().Error(), "this process has a checkpoint of 12 entries") {
		t.Errorf("%v", in.q.Halted())
	}
}

type switched struct{ translog.Store }

// replace records that the key of a checkpoint was replaced by the installation's.
func (in *installation) replace(kept checkpoint.Checkpoint, old translog.Key) {
	in.t.Helper()
	err := admin.Record(in.t.Context(), in.db.AdminEvents(), admin.LogKeyReplaced, checkpoint.KeyID(old.Verifier), translog.Replacement{
		Key: in.key.Verifier, Entries: kept.Tree.N, Root: kept.Tree.Hash.String(), Checkpoint: kept.Signed, Reason: "lost",
	})
	if err != nil {
		in.t.Fatal(err)
	}
}

// TestReplacedKey: an operator says that the log goes on with another key. That is said of the
// checkpoints up to then only.
func TestReplacedKey(t *testing.T) {
	t.Parallel()
	dir, old := t.TempDir(), install(t, newKey(t))
	old.exec(3, "e")
	w := witnessOf(t, old, "w/1", nil)
	if err := w.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	accepted := w.Latest()
	a, _ := old.anchor(dir, 1, nil)
	a.Step(t.Context(), false)
	in := install(t, newKey(t))
	in.replace(accepted, old.key)
	in.exec(1, "x")
	in.cosign(w)
	b, passB := in.anchor(dir, 1, nil)
	for range 2 {
		b.Step(t.Context(), false)
		passB(time.Minute)
		in.exec(1, "x")
	}
	if err := b.Status().Problem; err != nil || in.q.Halted() != nil {
		t.Fatalf("%v, %v", err, in.q.Halted())
	}
	sizesAre(t, in.anchored(dir), 3, 5)
	sizesAre(t, old.anchored(dir), 6)

	// The former log goes on elsewhere, and has signed more than the operator knew.
	old.exec(1, "e")
	if err := w.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	in = reopen(t, in.db, in.key)
	in.cosign(w)
	if !in.stops() || !strings.Contains(in.q.Halted().Error(), "8 entries") {
		t.Errorf("%v", in.q.Halted())
	}
}

// TestNodeWithoutTheKey leaves the log to the node that has it.
func TestNodeWithoutTheKey(t *testing.T) {
	t.Parallel()
	dir, in := t.TempDir(), install(t, newKey(t))
	in.exec(3, "e")
	w := witnessOf(t, in, "w/1", nil)
	if err := w.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, _ := in.anchor(dir, 1, nil)
	a.Step(t.Context(), false)
	for _, key := range []translog.Key{{}, newKey(t)} {
		node := reopen(t, in.db, key)
		c := node.cosign(w)
		b, _ := node.anchor(dir, 1, nil)
		b.Step(t.Context(), false)
		if err := errors.Join(b.Status().Problem, c.Status()[0].Problem); err != nil || node.q.Halted() != nil {
			t.Errorf("%v, %v", err, node.q.Halted())
		}
	}
}

// TestWitnessOfAnotherKeyMustCosign: a checkpoint of another key that the witness has not cosigned
// stops nothing, since everyone can make one.
func TestWitnessOfAnotherKeyMustCosign(t *testing.T) {
	t.Parallel()
	other, in := install(t, newKey(t)), install(t, newKey(t))
	other.exec(3, "e")
	in.exec(3, "e")
	w := witnessOf(t, in, "w/1", func(http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, other.state().Checkpoint) })
	})
	c := in.cosign(w)
	if err := c.Status()[0].Problem; err == nil || !strings.Contains(err.Error(), "no cosignature of the witness") || in.q.Halted() != nil {
		t.Errorf("%v, %v", err, in.q.Halted())
	}
}
