package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"secbox/audit/translog"
	"secbox/audit/translog/logtest"
)

// logRace runs sequencers that all believe that the lease is theirs, beside execs. The log must
// have each event once.
func logRace(t *testing.T, f Fixture) {
	file, key := logKey(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	var mu sync.Mutex
	var points [][]byte
	for i := range 3 {
		s := f.TransparencyLog()
		if f.Kind() == "postgres" { // a process each; SQLite has one
			s = f.Reopen(t).TransparencyLog()
		}
		running.Go(func() {
			q := sequencer(t, unleased{s}, fmt.Sprint("n", i), file)
			for ctx.Err() == nil {
				if _, err := q.Step(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
				if point, err := (translog.Log{Store: s}).Checkpoint(ctx); err == nil {
					mu.Lock()
					points = append(points, []byte(point))
					mu.Unlock()
				}
			}
		})
	}
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range 40 {
				r := record()
				if _, err := f.Audit().Open(ctx, r); err != nil {
					t.Error(err)
				}
				if _, err := f.Audit().Close(ctx, ended(r)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	stop()
	running.Wait()
	logAll(t, sequencer(t, unleased{f.TransparencyLog()}, "n9", file))
	entries := verifyLog(t, f.TransparencyLog(), key)
	if want := 4 * 40 * 3; len(entries) != want {
		t.Errorf("the log has %d entries, want %d", len(entries), want)
	}
	for _, point := range slices.CompactFunc(points, func(a, b []byte) bool { return string(a) == string(b) }) {
		if err := logtest.Consistent(key, point, entries); err != nil {
			t.Fatal(err)
		}
	}
	checkLogged(t, f)
}

// checkLogged reports events that the log does not have exactly once.
func checkLogged(t *testing.T, f Fixture) {
	t.Helper()
	for statement, want := range map[string]string{
		"SELECT CAST(count(*) AS text) FROM sandbox_exec_events AS e WHERE NOT EXISTS (SELECT 1 FROM audit_log_entries AS l WHERE " +
			"l.event_seq = e.seq)": "0",
		"SELECT CAST(count(*) AS text) FROM audit_log_entries AS l WHERE NOT EXISTS (SELECT 1 FROM sandbox_exec_events AS e WHERE " +
			"l.event_seq = e.seq)": "0",
		"SELECT CAST(count(*) - count(DISTINCT event_seq) AS text) FROM audit_log_entries": "0",
	} {
		if got, err := f.SQL(statement); err != nil || got != want {
			t.Errorf("%s: %q, %v", statement, got, err)
		}
	}
}

// unleased is a store whose lease is always free to the one who asks, as it looks to a process that
// was stopped for longer than its lease.
type unleased struct{ translog.Store }

func (s unleased) State(ctx context.Context) (translog.State, error) {
	state, err := s.Store.State(ctx)
	state.Leased = false
	return state, err
}

func (s unleased) Append(ctx context.Context, a translog.Append) (bool, error) {
	a.Lease = -time.Hour
	return s.Store.Append(ctx, a)
}

// logAppend is the contract of Append itself.
func logAppend(t *testing.T, f Fixture) {
	s := f.TransparencyLog()
	empty, err := s.State(t.Context())
	if err != nil || empty.Size != 0 || empty.Checkpoint != "" || empty.Leased || empty.Floors[translog.Execs] != 0 {
		t.Fatalf("a new database: %+v, %v", empty, err)
	}
	change := func(old translog.State, holder string, seq int64) translog.Append {
		return translog.Append{
			Old: old, Floors: translog.Floors{translog.Execs: seq},
			Entries:  []translog.Entry{{Source: translog.Execs, Seq: seq, Salt: make([]byte, 32), Hash: [32]byte{byte(seq)}}},
			LoggedAt: base,
			Tiles:    []translog.Tile{{Level: 0, N: 0, Hashes: make([]byte, 32*seq)}}, Root: [32]byte{byte(seq)},
			Checkpoint: fmt.Sprint("c", seq), VerifierKey: "k",
			Holder: holder, Lease: translog.MaxLease / 2,
		}
	}
	try := func(what string, a translog.Append, want bool) {
		t.Helper()
		if done, err := s.Append(t.Context(), a); done != want || err != nil {
			t.Errorf("%s: %v, %v", what, done, err)
		}
	}
	try("the first", change(empty, "n1", 1), true)
	try("the first once more", change(empty, "n1", 1), false)
	one, err := s.State(t.Context())
	if err != nil || one.Size != 1 || one.Root != [32]byte{1} || one.Checkpoint != "c1" || one.VerifierKey != "k" || one.Holder != "n1" ||
		one.Fence != 1 || !one.Leased ||
		one.SignedAt.IsZero() {
		t.Fatalf("after the first: %+v, %v", one, err)
	}
	try("another holder within the lease", change(one, "n2", 2), false)
	wrong := change(one, "n1", 2)
	wrong.Old.Root = [32]byte{9}
	try("another root", wrong, false)
	wrong = change(one, "n1", 2)
	wrong.Old.Fence = 0
	try("another fence", wrong, false)
	wrong = change(one, "n1", 2)
	wrong.VerifierKey = "other"
	try("another key", wrong, false)
	second := change(one, "n1", 2)
	second.Lease = -time.Hour
	try("the second, which ends the lease", second, true)
	two, _ := s.State(t.Context())
	if two.Leased || two.Fence != 1 {
		t.Errorf("after the second: %+v", two)
	}
	doubled := change(two, "n1", 3)
	doubled.Entries[0].Seq = 1
	if done, err := s.Append(t.Context(), doubled); done || err == nil {
		t.Errorf("an event twice: %v, %v", done, err)
	}
	try("another holder after the lease", change(two, "n2", 3), true)
	three, _ := s.State(t.Context())
	if three.Holder != "n2" || three.Fence != 2 || three.Size != 3 {
		t.Errorf("after the third: %+v", three)
	}
	entries, err := s.Entries(t.Context(), 1, 5)
	if err != nil || len(entries) != 2 || entries[0] != [32]byte{2} || entries[1] != [32]byte{3} {
		t.Errorf("entries: %v, %v", entries, err)
	}
	if hashes, err := s.Tile(t.Context(), 0, 0); err != nil || len(hashes) != 96 {
		t.Errorf("the tile: %d bytes, %v", len(hashes), err)
	}
	if hashes, err := s.Tile(t.Context(), 0, 1); err != nil || hashes != nil {
		t.Errorf("a tile that does not exist: %v, %v", hashes, err)
	}
}

// immutableEntries: not even a salt goes without a tombstone.
func immutableEntries(t *testing.T, f Fixture) {
	file, key := logKey(t)
	mustOpen(t, f.Audit(), record())
	logAll(t, sequencer(t, f.TransparencyLog(), "n1", file))
	statements := []string{
		"UPDATE audit_log_entries SET entry = salt", "UPDATE audit_log_entries SET event_seq = event_seq + 10",
		"UPDATE audit_log_entries SET idx = idx + 10",
		"UPDATE audit_log_entries SET salt = entry", "UPDATE audit_log_entries SET salt = NULL",
		"UPDATE audit_log_entries SET salt = NULL, entry = salt", "DELETE FROM audit_log_entries",
	}
	if f.Kind() == "postgres" {
		statements = append(statements, "TRUNCATE audit_log_entries")
	} else {
		statements = append(statements, "INSERT OR REPLACE INTO audit_log_entries SELECT * FROM audit_log_entries",
			"UPDATE OR REPLACE audit_log_entries SET idx = 0 WHERE idx = 1")
	}
	for _, statement := range statements {
		if _, err := f.SQL(statement); err == nil {
			t.Errorf("%s was not refused", statement)
		}
	}
	if entries := verifyLog(t, f.TransparencyLog(), key); len(entries) != 2 {
		t.Errorf("%d entries", len(entries))
	}
}

// errKilled is what the process that died would have answered.
var errKilled = errors.New("killed")

// killed is a store whose process dies before or after an append.
type killed struct {
	translog.Store
	after bool
}

func (s killed) Append(ctx context.Context, a translog.Append) (bool, error) {
	if s.after {
		if done, err := s.Store.Append(ctx, a); !done || err != nil {
			return done, fmt.Errorf("not appended: %w", err)
		}
	}
	return false, errKilled
}

// logCrashes ends a sequencer between its steps, and another goes on.
func logCrashes(t *testing.T, f Fixture) {
	file, key := logKey(t)
	s := f.TransparencyLog()
	for i := range 30 {
		r := record()
		mustOpen(t, f.Audit(), r)
		if i%3 == 0 {
			if _, err := f.Audit().Close(t.Context(), ended(r)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := sequencer(t, killed{s, i%2 == 0}, "n1", file).Step(t.Context()); !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
	}
	logAll(t, sequencer(t, s, "n1", file))
	if entries := verifyLog(t, s, key); len(entries) != 70 {
		t.Errorf("the log has %d entries", len(entries))
	}
	checkLogged(t, f)
}
