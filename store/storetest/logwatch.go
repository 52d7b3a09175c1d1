package storetest

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/audit/translog"
	"secbox/audit/translog/checkpoint"
	"secbox/audit/translog/witness"
)

// watch compares the log with the witness and the directory, as a server does at its start, and
// then has the newest checkpoint cosigned and anchored. It returns why the log must stop, if it
// must.
func watch(t *testing.T, f Fixture, keyFile, dir string, setting checkpoint.Witness) *translog.Conflict {
	t.Helper()
	l := translog.Log{Store: f.TransparencyLog(), Events: f.AdminEvents()}
	keys := translog.NewKeys(func(bool) (translog.Key, error) { return translog.ReadKey(keyFile, origin) })
	q := sequencer(t, l.Store, "n1", keyFile)
	anchor := translog.NewAnchor(translog.AnchorConfig{
		Log: l, Origin: origin, Dir: dir, Every: 1, Verifier: keys.Verifier,
		Conflict: q.Halt, Logger: discard,
	})
	anchor.Step(t.Context(), true)
	byAnchor := q.Halted()
	q = sequencer(t, l.Store, "n1", keyFile)
	l.Cosigner = translog.NewCosigner(translog.CosignerConfig{
		Log: l, Origin: origin, Witnesses: []checkpoint.Witness{setting}, Verifier: keys.Verifier, Conflict: q.Halt, Logger: discard,
	})
	ctx, stop := context.WithCancel(t.Context())
	ended, ready := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		l.Cosigner.Run(ctx, sync.OnceFunc(func() { close(ready) }))
	}()
	defer func() {
		stop()
		<-ended
	}()
	<-ready
	byWitness := q.Halted()
	if (byAnchor == nil) != (byWitness == nil) {
		t.Errorf("the anchor: %v; the witness: %v", byAnchor, byWitness)
	}
	if byWitness != nil {
		return byWitness
	}
	if s := anchor.Status(); s.Problem != nil || s.Entries == 0 {
		t.Errorf("%+v", s)
	}
	for deadline := time.Now().Add(time.Minute); !strings.Contains(mustCheckpoint(t, l), "— w/1 "); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not cosigned in a minute: %+v", l.Cosigner.Status())
		}
	}
	return nil
}

// logWatched rolls the database back and rebuilds the log, beside a witness and an anchor.
func logWatched(t *testing.T, f Fixture) {
	for _, table := range []string{"audit_log", "audit_log_sources"} {
		f.mustSQL(t, "CREATE TABLE first_"+table+" AS SELECT * FROM "+table)
	}
	e := newEvidence(t, f)
	e.unprotect(t)
	w, err := witness.Open(witness.Config{
		Dir: t.TempDir(), Key: e.key, Name: "w/1", Logger: slog.New(slog.DiscardHandler),
		Get: func(ctx context.Context, path string, _ int64) ([]byte, error) {
			return get(ctx, f.TransparencyLog())(path)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	web := httptest.NewServer(w.Handler())
	defer web.Close()
	setting, err := checkpoint.ParseWitness(w.Verifier() + " " + web.URL)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for range 2 {
		if why := watch(t, f, e.keyFile, dir, setting); why != nil {
			t.Fatal(why)
		}
		mustOpen(t, f.Audit(), record())
		logAll(t, sequencer(t, f.TransparencyLog(), "n1", e.keyFile))
	}
	if w.Latest().Tree.N != 14 { // the last two are not cosigned yet
		t.Fatal(w.Latest())
	}
	other, _ := logKey(t)
	for _, tc := range []struct {
		name, keyFile string
		rebuild       bool
		says          string
	}{
		{"rebuilt", e.keyFile, true, "it was rebuilt, or continued from an older copy"},
		{"rebuilt with another key", other, true, "under another key"},
		{"emptied", e.keyFile, false, "it was rolled back to an older copy, or cut"},
		{"emptied, and the key lost", other + ".none", false, "under another key"},
	} {
		f.mustSQL(t, "DELETE FROM audit_log_tiles")
		f.mustSQL(t, "DELETE FROM audit_log_entries")
		for _, table := range []string{"audit_log", "audit_log_sources"} {
			f.mustSQL(t, "DELETE FROM "+table)
			f.mustSQL(t, "INSERT INTO "+table+" SELECT * FROM first_"+table)
		}
		if tc.rebuild {
			logAll(t, sequencer(t, f.TransparencyLog(), "n1", tc.keyFile))
		}
		if why := watch(t, f, tc.keyFile, dir, setting); why == nil || !strings.Contains(why.Error(), tc.says) {
			t.Errorf("%s: %v", tc.name, why)
		}
	}
}
