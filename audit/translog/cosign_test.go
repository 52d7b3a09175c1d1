package translog_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"secbox/audit/translog"
	"secbox/audit/translog/checkpoint"
	"secbox/audit/translog/proof"
	"secbox/audit/translog/witness"
	"secbox/fault"
)

// get reads the log as GET /audit/log/ does.
func (in *installation) get(ctx context.Context, path string, _ int64) ([]byte, error) {
	if tile, ok := strings.CutPrefix(path, "tile/"); ok {
		return in.log.Tile(ctx, tile)
	}
	point, err := in.log.Checkpoint(ctx)
	return []byte(point), err
}

// testWitness is a witness that serves, and as the settings name it.
type testWitness struct {
	*witness.Witness
	setting checkpoint.Witness
}

// witnessOf starts a witness; answer may replace its answers.
func witnessOf(t *testing.T, in *installation, name string, answer func(next http.Handler) http.Handler) testWitness {
	t.Helper()
	w, err := witness.Open(witness.Config{Dir: t.TempDir(), Key: in.key.Verifier, Name: name, Get: in.get, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	handler := w.Handler()
	if answer != nil {
		handler = answer(handler)
	}
	web := httptest.NewServer(http.StripPrefix("/prefix", handler))
	t.Cleanup(func() {
		web.Close()
		_ = w.Close()
	})
	setting, err := checkpoint.ParseWitness(w.Verifier() + " " + web.URL + "/prefix/")
	if err != nil {
		t.Fatal(err)
	}
	return testWitness{w, setting}
}

// cosign runs a cosigner until the test ends, and waits for its comparison with the witnesses.
func (in *installation) cosign(witnesses ...testWitness) *translog.Cosigner {
	in.t.Helper()
	var all []checkpoint.Witness
	for _, w := range witnesses {
		all = append(all, w.setting)
	}
	c := translog.NewCosigner(translog.CosignerConfig{
		Log: in.log, Origin: origin, Witnesses: all, Verifier: in.verifier, Conflict: in.q.Halt,
		Logger: slog.New(slog.DiscardHandler),
	})
	in.log.Cosigner = c
	ctx, stop := context.WithCancel(context.Background())
	ended, ready := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx, sync.OnceFunc(func() { close(ready) }))
	}()
	in.t.Cleanup(func() {
		stop()
		<-ended
	})
	<-ready
	return c
}

// cosigned waits until the checkpoint is signed by all these witnesses, and returns it.
func (in *installation) cosigned(witnesses ...testWitness) checkpoint.Checkpoint {
	in.t.Helper()
	var keys []note.Verifier
	for _, w := range witnesses {
		keys = append(keys, w.setting.Key)
	}
	key, err := in.verifier()
	if err != nil {
		in.t.Fatal(err)
	}
	var c checkpoint.Checkpoint
	eventually(in.t, "all witnesses have cosigned", func() bool {
		signed, err := in.log.Checkpoint(in.t.Context())
		if err != nil {
			in.t.Fatal(err)
		}
		if c, err = checkpoint.Open([]byte(signed), key, keys...); err != nil {
			in.t.Fatalf("%v:\n%s", err, signed)
		}
		return len(c.Sigs) == 1+len(witnesses)
	})
	return c
}

// eventually polls: a cosigner has no event for its tests.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not in a minute: ", what)
		}
	}
}

// TestCosigning asks two witnesses and proves an exec to a client that trusts only both together.
// One witness also follows the log.
func TestCosigning(t *testing.T) {
	t.Parallel()
	in := install(t, newKey(t))
	in.exec(3, "e")
	one, two := witnessOf(t, in, "w/1", nil), witnessOf(t, in, "w/2", nil)
	if err := one.Check(t.Context()); err != nil { // so that it has a checkpoint that core-api does not know of
		t.Fatal(err)
	}
	c := in.cosign(one, two)
	in.cosigned(one, two)
	r := in.exec(200, "e")
	if point := in.cosigned(one, two); point.Tree.N != 406 || one.Latest().Tree != point.Tree || two.Latest().Tree != point.Tree {
		t.Errorf("%s; the witnesses have %s and %s", point, one.Latest(), two.Latest())
	}
	if err := one.Check(t.Context()); err != nil {
		t.Error(err)
	}
	for _, s := range c.Status() {
		if s.Entries != 406 || s.Problem != nil || s.Root != one.Latest().Tree.Hash.String() || s.Since.IsZero() || s.CosignedAt.Before(s.Since) {
			t.Errorf("%+v", s)
		}
	}
	record, err := in.db.Audit().Get(t.Context(), r.ExecID)
	if err != nil {
		t.Fatal(err)
	}
	file, err := in.log.Prove(t.Context(), record)
	if err != nil {
		t.Fatal(err)
	}
	result, err := proof.Check(file, in.key.Verifier, one.Verifier(), two.Verifier())
	if err != nil || len(result.Cosigned) != 2 || result.Cosigned[0].At.IsZero() {
		t.Errorf("%+v, %v", result.Cosigned, err)
	}
	if len(result.Unchecked) != 0 {
		t.Errorf("unchecked: %q", result.Unchecked)
	}
	if result, err := proof.Check(file, in.key.Verifier, two.Verifier(), two.Verifier()); err != nil || !slices.Equal(result.Unchecked, []string{"w/1"}) {
		t.Errorf("with one key: unchecked %q, %v", result.Unchecked, err)
	}
	standing, err := in.log.Standing(t.Context(), record)
	if err != nil || len(standing.Witnesses) != 2 {
		t.Fatalf("%+v, %v", standing, err)
	}
	for i, w := range standing.Witnesses {
		want := translog.Witnessed{Name: result.Cosigned[i].Witness, Has: true, Entries: 406, At: result.Cosigned[i].At}
		want.Key = []testWitness{one, two}[i].Verifier()
		if w != want {
			t.Errorf("%+v, want %+v", w, want)
		}
	}
	other := witnessOf(t, in, "w/3", nil)
	if _, err := proof.Check(file, in.key.Verifier, other.Verifier()); !fault.Is(err, fault.InvalidProof) || !strings.Contains(err.Error(), "w/3") {
		t.Errorf("without a cosignature: %v", err)
	}
}

// TestWrongWitnesses do not stop the log, nor each other.
func TestWrongWitnesses(t *testing.T) {
	t.Parallel()
	in := install(t, newKey(t))
	in.exec(3, "e")
	hangs := make(chan struct{})
	t.Cleanup(func() { close(hangs) }) // before the servers close, which wait for it
	answers := func(status int, kind, body string) func(http.Handler) http.Handler {
		return func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					http.NotFound(w, r)
					return
				}
				w.Header().Set("Content-Type", kind)
				w.WriteHeader(status)
				_, _ = io.WriteString(w, body)
			})
		}
	}
	other := witnessOf(t, in, "w/other", nil)
	good := witnessOf(t, in, "w/good", nil)
	wrong := map[string]struct {
		answer func(http.Handler) http.Handler
		says   string
	}{
		"refuses": {answers(422, "text/plain", "no"), "does not extend"},
		"unknown": {answers(404, "text/plain", "no"), "does not know the log"},
		"larger":  {answers(409, "text/x.tlog.size", "1000\n"), "has 1000 entries"},
		"garbage": {answers(409, "text/x.tlog.size", "x\n"), "does not say how many"},
		"huge":    {answers(409, "text/x.tlog.size", strings.Repeat("9", 60_000)), "does not say how many"},
		"largest": {answers(409, "text/x.tlog.size", "9223372036854775807\n"), "does not say how many"},
		"page":    {answers(200, "text/html", "<html>"), "no valid cosignature"},
		"endless": {answers(200, "text/plain", strings.Repeat("— w AAAAAAAA\n", 10_000)), "too long"},
		"away": {func(http.Handler) http.Handler {
			return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		}, "does not answer"},
		"redirects": {func(http.Handler) http.Handler {
			return http.RedirectHandler(good.setting.URL.String(), http.StatusTemporaryRedirect)
		}, "answered 307"},
		"another": {func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.URL.Path = strings.TrimPrefix(r.URL.Path, "/prefix")
				other.Handler().ServeHTTP(w, r)
			})
		}, "no valid cosignature"},
	}
	all := []testWitness{good}
	for name, tc := range wrong {
		all = append(all, witnessOf(t, in, "w/"+name, tc.answer))
	}
	all = append(all, witnessOf(t, in, "w/hangs", func(http.Handler) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				<-hangs
			}
		})
	}))
	c := in.cosign(all...)
	in.exec(3, "e")
	if point := in.cosigned(good); point.Tree.N != 12 {
		t.Errorf("%s", point)
	}
	eventually(t, "each wrong witness is named", func() bool {
		for _, s := range c.Status() {
			if s.Problem != nil && len(s.Problem.Error()) > 500 {
				t.Fatalf("%s: %d bytes", s.Name, len(s.Problem.Error()))
			}
			if tc, ok := wrong[strings.TrimPrefix(s.Name, "w/")]; ok && (s.Problem == nil || !strings.Contains(s.Problem.Error(), tc.says)) {
				return false
			}
		}
		return true
	})
	in.exec(3, "e")
	in.cosigned(good)
	if in.q.Halted() != nil {
		t.Errorf("the log stops: %v", in.q.Halted())
	}
}

// TestWitnessFindsRollback: the database is rolled back, or rebuilt with the same key, beside a
// witness.
func TestWitnessFindsRollback(t *testing.T) {
	t.Parallel()
	for name, restore := range map[string]func(in *installation, early translog.State) *installation{
		"rolled back": func(in *installation, early translog.State) *installation {
			out := reopen(in.t, in.db, in.key)
			out.log.Store = rolledBack{in.log.Store, early}
			return out
		},
		"rebuilt": func(in *installation, _ translog.State) *installation {
			out := install(in.t, in.key)
			out.exec(100, "x")
			return out
		},
		"rebuilt with another key": func(in *installation, _ translog.State) *installation {
			out := install(in.t, newKey(in.t))
			out.exec(100, "x")
			return out
		},
		"new, with another key":  func(in *installation, _ translog.State) *installation { return install(in.t, newKey(in.t)) },
		"new, with the key lost": func(in *installation, _ translog.State) *installation { return install(in.t, translog.Key{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := install(t, newKey(t))
			in.exec(5, "e")
			early := in.state()
			in.exec(4, "e")
			w := witnessOf(t, in, "w/1", nil)
			if err := w.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			late := restore(in, early)
			late.cosign(w)
			if !late.stops() {
				t.Fatal("the log is extended")
			}
			halted := late.q.Halted()
			if halted.Kept.Tree.N != 18 || !strings.Contains(halted.Error(), "the witness w/1 has a checkpoint of 18 entries") ||
				strings.Contains(name, "key") != strings.Contains(halted.Remedy, "audit key --replaces FILE") || !strings.Contains(halted.Remedy, "restart") {
				t.Errorf("%v; %s", halted, halted.Remedy)
			}
		})
	}
}

func TestParseWitness(t *testing.T) {
	t.Parallel()
	in := install(t, newKey(t))
	w := witnessOf(t, in, "w/1", nil)
	for _, text := range []string{
		"", w.Verifier(), w.Verifier() + " http://a http://b", in.key.Verifier + " http://a", w.Verifier()[:50] + " http://a", "x http://a",
		w.Verifier() + " a:80", w.Verifier() + " ftp://a", w.Verifier() + " http://u:p@a", w.Verifier() + " http://a?b",
		fmt.Sprintf("x%s http://a", w.Verifier()),
	} {
		if _, err := checkpoint.ParseWitness(text); !fault.Is(err, fault.InvalidSettings) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
