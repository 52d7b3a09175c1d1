package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit"
	"secbox/audit/translog"
	"secbox/audit/translog/logtest"
	"secbox/audit/translog/proof"
	"secbox/fault"
)

const origin = "secbox/test"

// sequencer returns a sequencer of the store with the key in the file.
func sequencer(t *testing.T, s translog.Store, holder, keyFile string) *translog.Sequencer {
	t.Helper()
	return translog.NewSequencer(translog.SequencerConfig{
		Store: s, Origin: origin, Holder: holder, Logger: discard,
		Key: func(bool) (translog.Key, error) { return translog.ReadKey(keyFile, origin) },
	})
}

// logKey makes a key and returns its file and its public half.
func logKey(t *testing.T) (file, public string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), translog.KeyFile)
	key, err := translog.MakeKey(file, origin)
	if err != nil {
		t.Fatal(err)
	}
	return file, key.Verifier
}

// logAll takes steps until the log has all events.
func logAll(t *testing.T, q *translog.Sequencer) {
	t.Helper()
	for {
		if n, err := q.Step(t.Context()); err != nil {
			t.Fatal(err)
		} else if n == 0 {
			return
		}
	}
}

// verifyLog returns the entries of the log after an independent verification.
func verifyLog(t *testing.T, s translog.Store, key string) [][]byte {
	t.Helper()
	entries, err := logtest.Verify(key, get(t.Context(), s))
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// get reads the log by the paths of tlog-tiles.
func get(ctx context.Context, s translog.Store) func(path string) ([]byte, error) {
	l := translog.Log{Store: s}
	return func(path string) ([]byte, error) {
		if tile, ok := strings.CutPrefix(path, "tile/"); ok {
			return l.Tile(ctx, tile)
		}
		point, err := l.Checkpoint(ctx)
		return []byte(point), err
	}
}

func logOfEvents(t *testing.T, f Fixture) {
	s, l := f.Audit(), translog.Log{Store: f.TransparencyLog()}
	file, key := logKey(t)
	_, foreign := logKey(t)
	q := sequencer(t, f.TransparencyLog(), "n1", file)
	if _, err := l.Checkpoint(t.Context()); !fault.Is(err, fault.NotLogged) {
		t.Errorf("checkpoint of an empty log: %v", err)
	}
	if n, err := q.Step(t.Context()); n != 0 || err != nil {
		t.Errorf("a step without events: %d, %v", n, err)
	}
	var ids []string
	for i := range 3 {
		for range 150 { // more than a tile and than a step
			r := record()
			mustOpen(t, s, r)
			if _, err := s.Close(t.Context(), ended(r)); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, r.ExecID)
		}
		if lag, err := l.Lag(t.Context(), time.Now()); err != nil || lag.Events != 450 || lag.Size != int64(450*i) {
			t.Errorf("lag before: %+v, %v", lag, err)
		}
		logAll(t, q)
		if lag, err := l.Lag(t.Context(), time.Now()); err != nil || lag.Events != 0 || lag.Age != 0 || lag.Size != int64(450*(i+1)) ||
			lag.SignedAt.IsZero() {
			t.Errorf("lag after: %+v, %v", lag, err)
		}
	}
	entries := verifyLog(t, l.Store, key)
	if len(entries) != 1350 {
		t.Errorf("the log has %d entries", len(entries))
	}
	for _, id := range []string{ids[0], ids[200], ids[449]} {
		r := mustGet(t, s, id)
		data, err := l.Prove(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		result, err := proof.Check(data, key)
		if err != nil || len(result.Events) != 3 || result.Record.ExecID != id || result.Size != 1350 {
			t.Errorf("%s: %+v, %v", id, result, err)
		}
		if standing, err := l.Standing(t.Context(), r); err != nil || standing.Index != result.Events[2].Index ||
			len(standing.Differences) > 0 {
			t.Errorf("%s: %+v, %v", id, standing, err)
		}
		r.ExitCode = new(7)
		if standing, err := l.Standing(t.Context(), r); err != nil || len(standing.Differences) != 1 ||
			standing.Differences[0].What != "exit_code" {
			t.Errorf("%s with another exit code: %+v, %v", id, standing, err)
		}
		if events, err := logtest.VerifyProof(key, data); err != nil || len(events) != 3 {
			t.Errorf("the independent verifier: %d events, %v", len(events), err)
		}
		if _, err := logtest.VerifyProof(key, bytes.ReplaceAll(data, []byte("echo"), []byte("ecko"))); err == nil {
			t.Error("the independent verifier accepts a changed event")
		}
		if _, err := logtest.VerifyProof(foreign, data); err == nil {
			t.Error("the independent verifier accepts a foreign key")
		}
	}
	if _, err := logtest.Verify(foreign, get(t.Context(), l.Store)); err == nil {
		t.Error("the independent verifier accepts a log with a foreign key")
	}
	for _, part := range []string{"checkpoint", "tile/0/003", "tile/0/005", "tile/1/000", "tile/entries/000"} {
		_, err := logtest.Verify(key, func(path string) ([]byte, error) {
			data, err := get(t.Context(), l.Store)(path)
			if strings.HasPrefix(path, part) {
				data = bytes.Clone(data)
				data[len(data)/2] ^= 1
			}
			return data, err
		})
		if err == nil {
			t.Errorf("the independent verifier accepts another %s", part)
		}
	}
	for _, path := range []string{
		"0/005", "0/005.p/71", "0/999", "1/000.p/6", "9/000", "entries/005.p/71", "data/000", "0/000.p/0", "0/0",
		"-1/000", "x/000", "", "0/000/../001",
	} {
		if _, err := l.Tile(t.Context(), path); !fault.Is(err, fault.UnknownFile) {
			t.Errorf("tile %q: %v", path, err)
		}
	}
	if tile, err := l.Tile(t.Context(), "0/000.p/7"); err != nil || len(tile) != 7*32 {
		t.Errorf("a part of a full tile: %d bytes, %v", len(tile), err)
	}
}

// logCover names the execs whose events are not in the log.
func logCover(t *testing.T, f Fixture) {
	s, l := f.Audit(), translog.Log{Store: f.TransparencyLog()}
	file, key := logKey(t)
	q := sequencer(t, l.Store, "n1", file)
	cover := func(patience time.Duration, wantSize int64, want ...string) {
		t.Helper()
		got := []string{}
		c, err := l.Cover(t.Context(), patience, func(ids []string) error {
			got = append(got, ids...)
			return nil
		})
		if err != nil || !slices.Equal(got, append([]string{}, want...)) || c.Size != wantSize || (c.Checkpoint == "") != (wantSize == 0) {
			t.Errorf("%+v, %v; lacking %d execs, want %d", c, err, len(got), len(want))
		}
	}
	cover(0, 0)
	var ids []string
	for range 200 { // with two events each, more than are read at once
		r := record()
		mustOpen(t, s, r)
		ids = append(ids, r.ExecID)
	}
	cover(0, 0, ids...)
	logAll(t, q)
	cover(0, 400)
	r := mustGet(t, s, ids[3])
	if _, err := s.Close(t.Context(), ended(r)); err != nil {
		t.Fatal(err)
	}
	cover(0, 400, ids[3])
	logged := make(chan error)
	go func() {
		_, err := q.Step(t.Context())
		logged <- err
	}()
	cover(time.Minute, 401)
	if err := <-logged; err != nil {
		t.Error(err)
	}
	if err := logtest.Consistent(key, []byte(mustCheckpoint(t, l)), verifyLog(t, l.Store, key)); err != nil {
		t.Error(err)
	}
	failed := errors.New("the reader is away")
	mustOpen(t, s, record())
	if _, err := l.Cover(t.Context(), 0, func([]string) error { return failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
}

func logAttest(t *testing.T, f Fixture) {
	s, l := f.Audit(), translog.Log{Store: f.TransparencyLog()}
	file, key := logKey(t)
	l.Key = func() (translog.Key, error) { return translog.ReadKey(file, origin) }
	r := record()
	mustOpen(t, s, r)
	if _, err := s.Close(t.Context(), ended(r)); err != nil {
		t.Fatal(err)
	}
	r = mustGet(t, s, r.ExecID)
	if _, err := l.Attest(t.Context(), r, nil); !fault.Is(err, fault.NotLogged) {
		t.Errorf("before the log has the events: %v", err)
	}
	logAll(t, sequencer(t, l.Store, "n1", file))
	attestation, err := l.Attest(t.Context(), r, []proof.Subject{proof.NewSubject("a", "bb")})
	if err != nil {
		t.Fatal(err)
	}
	if a, err := proof.CheckAttestation(attestation, key); err != nil || a.Record.ExecID != r.ExecID || len(a.Subjects) != 2 {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := f.SQL("UPDATE sandbox_execs SET manifest_digest = 'forged'"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Attest(t.Context(), mustGet(t, s, r.ExecID), nil); !fault.Is(err, fault.InvalidProof) ||
		!strings.Contains(err.Error(), "manifest_digest") {
		t.Errorf("an altered record: %v", err)
	}
}

// logStanding: an exec whose row, events and entries were all changed alike is not what the signed
// tree says.
func logStanding(t *testing.T, f Fixture) {
	e := newEvidence(t, f)
	l := translog.Log{Store: f.TransparencyLog()}
	wants := func(what, says string, unsigned bool) {
		t.Helper()
		standing, err := l.Standing(t.Context(), mustGet(t, f.Audit(), e.plain))
		if found := fmt.Sprint(standing.Differences); err != nil || (standing.Unsigned != nil) != unsigned ||
			(len(standing.Differences) > 0) != (says != "") || !strings.Contains(found, says) {
			t.Errorf("%s: %+v, %v", what, standing, err)
		}
	}
	wants("without a key", "", true)
	other, public := logKey(t)
	l.Key = func() (translog.Key, error) { return translog.ReadKey(other, origin) }
	wants("another key", "log: checkpoint: expected a signature of "+public, false)
	l.Key = func() (translog.Key, error) { return translog.ReadKey(e.keyFile, origin) }
	wants("honest", "", false)
	e.unprotect(t)
	e.mustSQL(t, "UPDATE sandbox_execs SET detail = 'exit code 7' WHERE exec_id = '"+e.plain+"'")
	wants("a changed row", "detail: expected ", false)
	e.mustSQL(t, "UPDATE sandbox_exec_events SET data = replace(data, 'exit code 3', 'exit code 7') WHERE exec_id = '"+e.plain+"'")
	wants("a changed row and event", "event 3 (ended): expected that of entry 2 ", false)
	events, err := l.Store.History(t.Context(), e.plain)
	if err != nil {
		t.Fatal(err)
	}
	blob := map[string]string{"sqlite": "X'%x'", "postgres": `'\x%x'`}[e.Kind()]
	entry := proof.Entry(events[2].Salt, events[2].Canonical())
	e.mustSQL(t, "UPDATE audit_log_entries SET entry = "+fmt.Sprintf(blob, entry)+" WHERE idx = 2")
	wants("a changed row, event and entry", "hash of entry 2 in its tile: expected ", false)
	hashes, err := l.Store.Tile(t.Context(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	leaf := tlog.RecordHash(entry[:])
	copy(hashes[2*tlog.HashSize:], leaf[:])
	e.mustSQL(t, "UPDATE audit_log_tiles SET hashes = "+fmt.Sprintf(blob, hashes))
	wants("a changed row, event, entry and tile", "tiles of entry 0: expected the hashes of the signed root, found ", false)
}

func mustCheckpoint(t *testing.T, l translog.Log) string {
	t.Helper()
	point, err := l.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return point
}

// logLargeLists proves an exec whose lists only the first event has.
func logLargeLists(t *testing.T, f Fixture) {
	s, l := f.Audit(), translog.Log{Store: f.TransparencyLog()}
	file, key := logKey(t)
	q := sequencer(t, l.Store, "n1", file)
	r := in(record(), func(r *audit.Record) {
		r.Status, r.StartedAt, r.Backend = audit.Queued, time.Time{}, audit.BackendRemote
		r.Args = []string{strings.Repeat("x", 5000)}
		r.LargeLists = map[string]audit.LargeList{"args": {Count: 1, Kept: 1, SHA256: "aa"}}
	})
	mustOpen(t, s, r)
	notLogged := func(what string) {
		t.Helper()
		if _, err := l.Prove(t.Context(), mustGet(t, s, r.ExecID)); !fault.Is(err, fault.NotLogged) {
			t.Errorf("a proof %s: %v", what, err)
		}
		if standing, err := l.Standing(t.Context(), mustGet(t, s, r.ExecID)); err != nil || standing.Index != -1 ||
			len(standing.Differences) > 0 {
			t.Errorf("%s: %+v, %v", what, standing, err)
		}
	}
	notLogged("before the log has the event")
	logAll(t, q)
	r.Status, r.StartedAt = audit.Running, base.Add(time.Second)
	if started, err := s.Start(t.Context(), r); !started || err != nil {
		t.Fatal(started, err)
	}
	notLogged("before the log has the newest event")
	if _, err := s.LoseOpen(t.Context(), r.NodeID, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Close(t.Context(), ended(r)); err != nil {
		t.Fatal(err)
	}
	logAll(t, q)
	data, err := l.Prove(t.Context(), mustGet(t, s, r.ExecID))
	if err != nil {
		t.Fatal(err)
	}
	result, err := proof.Check(data, key)
	if err != nil || len(result.Events) != 4 || result.Events[3].Kind != audit.EventCorrected {
		t.Errorf("%+v, %v", result, err)
	}
	tampered := strings.Replace(string(data), strings.Repeat("x", 5000), strings.Repeat("x", 4999)+"y", 1) // of the record
	if _, err := proof.Check([]byte(tampered), key); !fault.Is(err, fault.InvalidProof) || !strings.Contains(err.Error(), "args") {
		t.Errorf("with another argument: %v", err)
	}
}

// logOdd proves records with every odd text that a database stores.
func logOdd(t *testing.T, f Fixture) {
	s, l := f.Audit(), translog.Log{Store: f.TransparencyLog()}
	file, key := logKey(t)
	r := in(record(), func(r *audit.Record) {
		r.Args = []string{"\x00\xff", "<&>\u2028\u007f\x1b\"\\", "😀\ufffd"}
		r.NodeID = "n<&>\"\u2028\\"
		r.PolicySnapshot = []byte(`{"b": 1.50, "a": [1e3, "\u003c"], "n": 12345678901234567890}`)
	})
	mustOpen(t, s, r)
	logAll(t, sequencer(t, l.Store, "n1", file))
	data, err := l.Prove(t.Context(), mustGet(t, s, r.ExecID))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proof.Check(data, key); err != nil {
		t.Error(err)
	}
	if _, err := logtest.VerifyProof(key, data); err != nil {
		t.Error(err)
	}
}

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

// logAltered: a sequencer does not sign a log that was altered.
func logAltered(t *testing.T, f Fixture) {
	file, _ := logKey(t)
	q := sequencer(t, f.TransparencyLog(), "n1", file)
	mustOpen(t, f.Audit(), record())
	logAll(t, q)
	mustOpen(t, f.Audit(), record())
	refused := func(what string) {
		t.Helper()
		for range 2 { // also a process that has signed nothing itself
			if n, err := q.Step(t.Context()); n != 0 || !fault.Is(err, fault.Internal) {
				t.Errorf("%s: %d, %v", what, n, err)
			}
			q = sequencer(t, f.TransparencyLog(), "n1", file) // one that found another log is halted until its restart
		}
	}
	zero, flipped := "zeroblob(32)", "zeroblob(length(hashes))"
	if f.Kind() == "postgres" {
		zero, flipped = "decode(repeat('00', 32), 'hex')", "decode(repeat('00', length(hashes)), 'hex')"
	}
	f.mustSQL(t, "CREATE TABLE kept AS SELECT hashes FROM audit_log_tiles")
	f.mustSQL(t, "UPDATE audit_log_tiles SET hashes = "+flipped)
	refused("another tile")
	f.mustSQL(t, "UPDATE audit_log_tiles SET hashes = (SELECT hashes FROM kept)")
	f.mustSQL(t, "CREATE TABLE kept_root AS SELECT root FROM audit_log")
	f.mustSQL(t, "UPDATE audit_log SET root = "+zero)
	refused("another root")
	f.mustSQL(t, "UPDATE audit_log SET root = (SELECT root FROM kept_root)")
	f.mustSQL(t, "UPDATE audit_log SET size = 1")
	refused("another size")
	f.mustSQL(t, "UPDATE audit_log SET size = 2")
	other, _ := logKey(t)
	foreign := sequencer(t, f.TransparencyLog(), "n1", other)
	if n, err := foreign.Step(t.Context()); n != 0 || err != nil {
		t.Errorf("another node may have the key: %d, %v", n, err)
	}
	late := translog.NewSequencer(translog.SequencerConfig{
		Store: f.TransparencyLog(), Origin: origin, Holder: "n1", Logger: discard,
		Now: func() time.Time { return time.Now().Add(time.Minute) },
		Key: func(bool) (translog.Key, error) { return translog.ReadKey(other, origin) },
	})
	if n, err := late.Step(t.Context()); n != 0 || !fault.Is(err, fault.InvalidSettings) {
		t.Errorf("another key, and no other node: %d, %v", n, err)
	}
	logAll(t, q)
	if state, err := f.TransparencyLog().State(t.Context()); err != nil || state.Size != 4 {
		t.Errorf("after the repair: %+v, %v", state, err)
	}
}

func (f Fixture) mustSQL(t *testing.T, statement string) {
	t.Helper()
	if _, err := f.SQL(statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
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
