package postgres_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"secbox/audit"
	"secbox/audit/translog"
	"secbox/store/storetest/planprobe"
)

// TestLateCommitsAreLogged commits events in another order than the order of their seq. The log
// must get each of them, and remember up to which seq it has all.
func TestLateCommitsAreLogged(t *testing.T) {
	t.Parallel()
	url := cluster.Migrated(t)
	db := open(t, url)
	store := db.TransparencyLog()
	key, err := translog.MakeKey(filepath.Join(t.TempDir(), translog.KeyFile), "secbox/test")
	if err != nil {
		t.Fatal(err)
	}
	q := translog.NewSequencer(translog.SequencerConfig{
		Store: store, Origin: "secbox/test", Holder: "n1", Logger: slog.New(slog.DiscardHandler), Key: func(bool) (translog.Key, error) { return key, nil },
	})
	execs := 0
	write := func() {
		t.Helper()
		execs++
		r := planprobe.Exec(execs, 1000)
		r.Status, r.EndedAt, r.ExitCode, r.ErrorReason = audit.Queued, time.Time{}, nil, ""
		if _, err := db.Audit().Open(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	step := func(want int) (floor int64) {
		t.Helper()
		if n, err := q.Step(t.Context()); n != want || err != nil {
			t.Fatalf("a step: %d, %v; want %d", n, err, want)
		}
		state, err := store.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return state.Floors[translog.Execs]
	}
	write()
	step(1)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	late, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var seq int64
	if err := late.QueryRow(t.Context(),
		"INSERT INTO sandbox_exec_events (exec_id, kind, at, node_id, data) VALUES ('late', 'created', now(), 'n', '{}') RETURNING seq").Scan(&seq); err != nil {
		t.Fatal(err)
	}
	for range 5 { // later seqs, committed and logged before
		write()
		if floor := step(1); floor >= seq {
			t.Fatalf("the floor is %d, and the event %d is not committed", floor, seq)
		}
	}
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	step(1)
	if events, err := store.History(t.Context(), "late"); err != nil || len(events) != 1 || events[0].Index != 6 {
		t.Errorf("%+v, %v", events, err)
	}
	// Other tests have transactions in the same cluster, so the floor may follow after some more
	// events.
	for floor := int64(0); floor <= seq; {
		write()
		floor = step(1)
		if execs == 10_000 {
			t.Fatalf("the floor stays at %d", floor)
		}
	}
}

// TestOldestOfChanges: until a transaction in progress has ended, which may make an earlier event
// visible, Oldest is below Next.
func TestOldestOfChanges(t *testing.T) {
	t.Parallel()
	url := cluster.Migrated(t)
	db, ctx := open(t, url), context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "BEGIN; SELECT pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	during, err := db.Audit().Changes(t.Context(), 0, 0)
	if err != nil || during.Oldest >= during.Next {
		t.Errorf("during a transaction: %+v, %v", during, err)
	}
	if _, err := conn.Exec(ctx, "COMMIT"); err != nil {
		t.Fatal(err)
	}
	for after := during; after.Oldest < during.Next; { // transactions of other databases of the cluster end, too
		if after, err = db.Audit().Changes(t.Context(), 0, 0); err != nil {
			t.Fatal(err)
		}
	}
}
