package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
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
	wants("a changed row and event", "event 3 (ended): expected the event of entry 2 ", false)
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
