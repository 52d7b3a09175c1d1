package witness_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"secbox/audit/translog/witness"
	"secbox/fault"
)

func TestWitnessKeepsWhatExtends(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := newLog(t, "secbox/a")
	w := open(t, dir, l)
	if err := w.Check(t.Context()); !fault.Is(err, fault.NotLogged) {
		t.Errorf("an empty log: %v", err)
	}
	for _, n := range []int{1, 2, 0, 253, 1, 300, 0} { // tiles have 256 hashes
		if err := w.Check(t.Context()); l.grow(t, n, "e").size > int64(n) && err != nil {
			t.Fatalf("%d entries: %v", l.size, err)
		}
	}
	if err := w.Check(t.Context()); err != nil || w.Latest().Tree.N != 557 {
		t.Fatalf("%s, %v", w.Latest(), err)
	}
	verifier := w.Verifier()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir, l)
	if again.Verifier() != verifier || again.Latest().Tree.N != 557 {
		t.Errorf("after a restart: %s, %s", again.Verifier(), again.Latest())
	}
	if err := again.Check(t.Context()); err != nil {
		t.Error(err)
	}
	kept, err := os.ReadFile(filepath.Join(dir, witness.CheckpointsFile))
	if n := strings.Count(string(kept), "secbox/a\n"); n != 5 || strings.Count(string(kept), "— test/w ") != 5 || err != nil {
		t.Errorf("%d checkpoints, %v:\n%s", n, err, kept)
	}
	if info, err := os.Stat(filepath.Join(dir, "witness.key")); err != nil || runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestFindings shows a witness that has seen 300 entries another log.
func TestFindings(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		show func(t *testing.T, l *fakeLog) *fakeLog
		kind witness.Kind
	}{
		"rolled back":                   {func(t *testing.T, l *fakeLog) *fakeLog { return l.again().grow(t, 290, "e") }, witness.Cut},
		"rolled back, and continued":    {func(t *testing.T, l *fakeLog) *fakeLog { return l.again().grow(t, 290, "e").grow(t, 20, "other") }, witness.Forked},
		"empty":                         {func(t *testing.T, l *fakeLog) *fakeLog { return l.again() }, witness.Cut},
		"rebuilt with the same key":     {func(t *testing.T, l *fakeLog) *fakeLog { return l.again().grow(t, 300, "x") }, witness.Forked},
		"rebuilt and larger":            {func(t *testing.T, l *fakeLog) *fakeLog { return l.again().grow(t, 700, "x") }, witness.Forked},
		"rebuilt with another key":      {func(t *testing.T, l *fakeLog) *fakeLog { return newLog(t, l.origin).grow(t, 300, "e") }, witness.OtherKey},
		"another installation":          {func(t *testing.T, l *fakeLog) *fakeLog { return newLog(t, "secbox/b").grow(t, 300, "e") }, witness.Foreign},
		"a signature that does not fit": {changed, witness.Signature},
		"altered tiles": {func(t *testing.T, l *fakeLog) *fakeLog {
			l.grow(t, 10, "e").tiles = func(_ string, data []byte) ([]byte, error) {
				data = bytes.Clone(data)
				data[0] ^= 1
				return data, nil
			}
			return l
		}, witness.Hashes},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			l := newLog(t, "secbox/a").grow(t, 300, "e")
			w := open(t, dir, l)
			if err := w.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			kept := w.Latest().Signed
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			cfg := config(t, dir, l)
			cfg.Get = tc.show(t, l).get(t)
			for range 2 { // a service manager may start it again
				w, err := witness.Open(cfg)
				if err != nil {
					t.Fatal(err)
				}
				finding := (*witness.Finding)(nil)
				if err := w.Follow(t.Context(), time.Hour); !errors.As(err, &finding) || finding.Kind != tc.kind {
					t.Fatalf("%v", err)
				}
				evidence, err := os.ReadFile(finding.File)
				if err != nil || !strings.Contains(string(evidence), kept) || finding.Shown == "" || !strings.Contains(string(evidence), finding.Shown) {
					t.Errorf("%v:\n%s", err, evidence)
				}
				if w.Latest().Signed != kept {
					t.Errorf("it keeps %s", w.Latest())
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if files, err := os.ReadDir(filepath.Join(dir, "evidence")); len(files) != 1 || err != nil {
				t.Errorf("%v, %v", files, err)
			}
		})
	}
}

// changed shows a larger checkpoint with the signature of a smaller one.
func changed(t *testing.T, l *fakeLog) *fakeLog {
	small := l.at(t, 300)
	large := l.grow(t, 5, "e").at(t, 305)
	_, signature, _ := bytes.Cut(small, []byte("\n\n"))
	text, _, _ := bytes.Cut(large, []byte("\n\n"))
	l.shown = func() ([]byte, error) { return bytes.Join([][]byte{text, signature}, []byte("\n\n")), nil }
	return l
}

// TestCannotCheck: what is no checkpoint proves nothing.
func TestCannotCheck(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]func(l *fakeLog){
		"a page":   func(l *fakeLog) { l.shown = func() ([]byte, error) { return []byte("<html>\n\nhello\n"), nil } },
		"nothing":  func(l *fakeLog) { l.shown = func() ([]byte, error) { return nil, nil } },
		"too much": func(l *fakeLog) { l.shown = func() ([]byte, error) { return bytes.Repeat([]byte("x\n"), 1<<20), nil } },
		"no answer": func(l *fakeLog) {
			l.shown = func() ([]byte, error) { return nil, fault.New(fault.UpstreamFailed, "away") }
		},
		"no tiles": func(l *fakeLog) {
			l.tiles = func(string, []byte) ([]byte, error) { return nil, fault.New(fault.UnknownFile, "none") }
		},
		"tiles cut short":  func(l *fakeLog) { l.tiles = func(_ string, data []byte) ([]byte, error) { return data[1:], nil } },
		"tiles of nothing": func(l *fakeLog) { l.tiles = func(string, []byte) ([]byte, error) { return nil, nil } },
	} {
		l := newLog(t, "secbox/a").grow(t, 300, "e")
		dir := t.TempDir()
		w := open(t, dir, l)
		if err := w.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		tc(l.grow(t, 5, "e"))
		finding := (*witness.Finding)(nil)
		if err := w.Check(t.Context()); err == nil || errors.As(err, &finding) {
			t.Errorf("%s: %v", name, err)
		}
		l.shown, l.tiles = nil, nil
		if err := w.Check(t.Context()); err != nil || w.Latest().Tree.N != 305 {
			t.Errorf("%s: afterwards: %s, %v", name, w.Latest(), err)
		}
	}
}

// TestFollowOutlivesFailures: the server is away for some time.
func TestFollowOutlivesFailures(t *testing.T) {
	t.Parallel()
	l := newLog(t, "secbox/a").grow(t, 3, "e")
	w := open(t, t.TempDir(), l)
	l.asked = make(chan string)
	l.shown = func() ([]byte, error) { return nil, fault.New(fault.UpstreamFailed, "away") }
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.Follow(ctx, time.Millisecond) }()
	for range 3 {
		<-l.asked
	}
	l.mu.Lock()
	l.shown = nil
	l.mu.Unlock()
	<-l.asked // either look may see the log again
	<-l.asked
	<-l.asked
	stop()
	for {
		select {
		case <-l.asked:
		case err := <-ended:
			if err != nil || w.Latest().Tree.N != 3 {
				t.Errorf("%s, %v", w.Latest(), err)
			}
			return
		}
	}
}

// TestEachCauseIsNamed: a witness that cannot check says so once for each change of the cause.
// After a restart it still knows what was found.
func TestEachCauseIsNamed(t *testing.T) {
	t.Parallel()
	l := newLog(t, "secbox/a").grow(t, 3, "e")
	dir := t.TempDir()
	w := open(t, dir, l)
	if err := w.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	finding := (*witness.Finding)(nil)
	rolled := l.again().grow(t, 2, "e")
	if err := errors.Join(w.Close(), checkWith(t, dir, rolled)); !errors.As(err, &finding) || finding.Kind != witness.Cut {
		t.Fatal(err)
	}
	looks := 0
	ctx, stop := context.WithCancel(t.Context())
	l.shown = func() ([]byte, error) {
		looks++
		switch {
		case looks < 3:
			return nil, fault.New(fault.Unauthenticated, "the token is not valid")
		case looks < 5:
			return nil, fault.New(fault.UpstreamFailed, "away")
		}
		stop()
		return nil, fault.New(fault.Unauthenticated, "the token is not valid")
	}
	var said bytes.Buffer
	cfg := config(t, dir, l)
	cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
	w, err := witness.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Follow(ctx, time.Millisecond); !errors.As(err, &finding) || finding.Kind != witness.Cut || !strings.Contains(finding.Text(), "cut: ") ||
		!strings.Contains(err.Error(), finding.File) {
		t.Errorf("%v", err)
	}
	if n, m := strings.Count(said.String(), `reason="the token`), strings.Count(said.String(), "reason=away"); n != 1 || m != 1 {
		t.Errorf("%d and %d:\n%s", n, m, &said)
	}
	if err := os.RemoveAll(filepath.Join(dir, "evidence")); err != nil {
		t.Fatal(err)
	}
	l.shown = nil
	if err := errors.Join(w.Close(), checkWith(t, dir, l)); err != nil {
		t.Errorf("without the evidence: %v", err)
	}
}

// checkWith looks at a log once with the witness of this directory.
func checkWith(t *testing.T, dir string, l *fakeLog) error {
	t.Helper()
	w, err := witness.Open(config(t, dir, l))
	if err != nil {
		t.Fatal(err)
	}
	return errors.Join(w.Check(t.Context()), w.Close())
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	l := newLog(t, "secbox/a").grow(t, 3, "e")
	dir := t.TempDir()
	w := open(t, dir, l)
	if err := w.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, cfg witness.Config, code fault.Code) {
		t.Helper()
		if w, err := witness.Open(cfg); !fault.Is(err, code) {
			t.Errorf("%s: %v", what, err)
			if err == nil {
				_ = w.Close()
			}
		}
	}
	refused("a second process", config(t, dir, l), fault.StateDirInUse)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	refused("the key of another log", config(t, dir, newLog(t, "secbox/a")), fault.InvalidRequest)
	cfg := config(t, t.TempDir(), l)
	cfg.Key = "x"
	refused("no key", cfg, fault.InvalidRequest)
	cfg = config(t, t.TempDir(), l)
	cfg.Name = "two words"
	refused("a bad name", cfg, fault.InvalidRequest)
	if err := os.WriteFile(filepath.Join(dir, "witness.key"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("a damaged key", config(t, dir, l), fault.InvalidRequest)
}

// TestTornRecord: a crash or a full disk cuts the last record anywhere.
func TestTornRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, witness.CheckpointsFile)
	l := newLog(t, "secbox/a").grow(t, 3, "e")
	w := open(t, dir, l)
	var whole [2][]byte
	for i := range whole {
		if err := w.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		var err error
		if whole[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		l.grow(t, 3, "e")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for cut := len(whole[0]); cut < len(whole[1]); cut += 11 {
		if err := os.WriteFile(path, whole[1][:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		w := open(t, dir, l)
		if n := w.Latest().Tree.N; n != 3 && n != 6 {
			t.Fatalf("cut at %d: %d entries", cut, n)
		}
		if err := w.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if n := open(t, dir, l); n.Latest().Tree.N != 9 {
			t.Fatalf("cut at %d: %s is the last that is kept", cut, n.Latest())
		} else if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
