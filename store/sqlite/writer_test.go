package sqlite_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/store/sqlite"
	"secbox/store/storetest/planprobe"
)

// lockWriters keeps writers waiting until unlock is called, or until the test has failed: closing
// the database waits for the lock.
func lockWriters(t *testing.T, db *sqlite.DB) (unlock func()) {
	t.Helper()
	unlock = sync.OnceFunc(db.Lock())
	t.Cleanup(unlock)
	return unlock
}

// queue keeps writers waiting, starts all the calls, and lets them go when each of them waits.
func queue(t *testing.T, db *sqlite.DB, calls ...func() error) []error {
	t.Helper()
	giveBack := lockWriters(t, db)
	outcomes := make([]error, len(calls))
	var all sync.WaitGroup
	for i, call := range calls {
		all.Go(func() { outcomes[i] = call() })
		await(t, func() bool { return db.Waiting() == i+1 }) // so that they wait in the order of the list
	}
	giveBack()
	all.Wait()
	return outcomes
}

func await(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(bound); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never came")
		}
	}
}

// commits counts the commits in a WAL: the frames whose header says how large the database is after
// them. https://www.sqlite.org/fileformat2.html#the_write_ahead_log
func commits(t *testing.T, path string) int {
	t.Helper()
	wal, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	const header, frame = 32, 24 + 4096
	n := 0
	for at := header; at+frame <= len(wal); at += frame {
		if string(wal[at+8:at+16]) != string(wal[16:24]) { // other salts: from before the WAL began anew
			break
		}
		if binary.BigEndian.Uint32(wal[at+4:]) != 0 {
			n++
		}
	}
	return n
}

func TestThoseWhoWaitShareOneCommit(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secbox.db")
	db := open(t, path)
	s := db.Audit()
	keyed := record("holder")
	keyed.IdempotencyKey = "k"
	if _, err := s.Open(t.Context(), keyed); err != nil {
		t.Fatal(err)
	}
	before := commits(t, path)

	again := record("again")
	again.IdempotencyKey = "k"
	var holder *audit.Record
	openOne := func(id string) func() error {
		return func() error { _, err := s.Open(t.Context(), record(id)); return err }
	}
	outcomes := queue(t, db,
		openOne("first"),
		openOne("holder"), // exists: SQLite refuses the statement
		func() (err error) { holder, err = s.Open(t.Context(), again); return err },
		func() error { _, err := s.Close(t.Context(), ended("first")); return err }, // of a row that this very commit opens
		func() error { return s.Ping(t.Context()) },                                 // takes back what it writes
		func() error { _, err := s.Close(t.Context(), ended("none")); return err },  // there is no such row
		openOne("first"),
		openOne("second"),
	)
	for i, want := range []fault.Code{"", fault.Internal, "", "", "", fault.UnknownExec, fault.Internal, ""} {
		if got := fault.Code(""); outcomes[i] != nil {
			got = fault.From(outcomes[i]).Code
			if got != want {
				t.Errorf("call %d: %v, want %q", i, outcomes[i], want)
			}
		} else if want != "" {
			t.Errorf("call %d was done, want %q", i, want)
		}
	}
	if holder == nil || holder.ExecID != "holder" {
		t.Errorf("the key's holder is %+v", holder)
	}
	if n := commits(t, path) - before; n != 1 {
		t.Errorf("%d commits", n)
	}
	all, _, err := s.List(t.Context(), audit.Filter{}, nil, 10)
	if err != nil || len(all) != 3 {
		t.Errorf("%d rows, %v", len(all), err)
	}
	for id, want := range map[string][]audit.EventKind{
		"first":  {audit.EventCreated, audit.EventStarted, audit.EventEnded},
		"second": {audit.EventCreated, audit.EventStarted},
		"holder": {audit.EventCreated, audit.EventStarted},
		"again":  nil,
	} {
		events, err := s.Events(t.Context(), id)
		var kinds []audit.EventKind
		for _, e := range events {
			kinds = append(kinds, e.Kind)
		}
		if err != nil || fmt.Sprint(kinds) != fmt.Sprint(want) {
			t.Errorf("%s has events %v, %v", id, kinds, err)
		}
	}
}

func ended(id string) audit.Record {
	r := record(id)
	r.Status, r.EndedAt = audit.Succeeded, r.CreatedAt.Add(time.Second)
	return r
}

func TestNoCommitWhenAllAreRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secbox.db")
	db := open(t, path)
	s := db.Audit()
	if _, err := s.Open(t.Context(), record("r")); err != nil {
		t.Fatal(err)
	}
	before := commits(t, path)
	refused := func() error { _, err := s.Open(t.Context(), record("r")); return err }
	for i, err := range queue(t, db, refused, func() error { return s.Ping(t.Context()) }, refused) {
		if (err == nil) != (i == 1) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if n := commits(t, path) - before; n != 0 {
		t.Errorf("%d commits", n)
	}
}

// More transactions wait than fit into one commit; all are written.
func TestManyWait(t *testing.T) {
	t.Parallel()
	db := open(t, filepath.Join(t.TempDir(), "secbox.db"))
	const calls = 100
	giveBack := lockWriters(t, db)
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			if _, err := db.Audit().Open(t.Context(), record(fmt.Sprint("r", i))); err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	await(t, func() bool { return db.Waiting() == calls }) // each gives up after a few seconds, so they do not come one by one
	giveBack()
	all.Wait()
	if rows, _, err := db.Audit().List(t.Context(), audit.Filter{}, nil, 500); err != nil || len(rows) != calls {
		t.Errorf("%d rows, %v", len(rows), err)
	}
}

func TestCanceledWriterWritesNothing(t *testing.T) {
	t.Parallel()
	db := open(t, filepath.Join(t.TempDir(), "secbox.db"))
	s := db.Audit()
	ctx, cancel := context.WithCancel(t.Context())
	giveBack := lockWriters(t, db)
	gone, stays := make(chan error), make(chan error)
	go func() { _, err := s.Open(ctx, record("gone")); gone <- err }()
	await(t, func() bool { return db.Waiting() == 1 })
	go func() { _, err := s.Open(t.Context(), record("stays")); stays <- err }()
	await(t, func() bool { return db.Waiting() == 2 })
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) { // while the write lock is still held
		t.Errorf("it gave up with %v", err)
	}
	giveBack()
	if err := <-stays; err != nil {
		t.Error(err)
	}
	if _, err := s.Get(t.Context(), "gone"); !fault.Is(err, fault.UnknownExec) {
		t.Errorf("it was written: %v", err)
	}
}

func TestPanicReachesItsCaller(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secbox.db")
	db := open(t, path)
	s := db.Audit()
	var caught any
	outcomes := queue(t, db,
		func() error { _, err := s.Open(t.Context(), record("before")); return err },
		func() error {
			defer func() { caught = recover() }()
			return db.Panic(t.Context(), "oh")
		},
		func() error { _, err := s.Open(t.Context(), record("behind")); return err },
	)
	if caught != "oh" || outcomes[0] != nil || outcomes[2] != nil {
		t.Errorf("caught %v; %v", caught, outcomes)
	}
	for _, id := range []string{"before", "behind"} {
		if _, err := s.Get(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	var nodes int
	if err := shell(t, path).QueryRow("SELECT count(*) FROM nodes").Scan(&nodes); err != nil || nodes != 0 {
		t.Errorf("the panicking transaction was committed: %d, %v", nodes, err)
	}
}

// A transaction that was left open on the connection must not swallow later ones.
func TestUnknownConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secbox.db")
	db := open(t, path)
	s := db.Audit()
	if _, err := s.Open(t.Context(), record("before")); err != nil { // and its statements are prepared
		t.Fatal(err)
	}
	if err := db.OnWriter(t.Context(), "BEGIN; INSERT INTO nodes (node_id, version, started_at, seen_at) VALUES ('left', '', 0, 0)"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), record("behind")); err != nil {
		t.Fatal(err)
	}
	other := open(t, path).Audit()
	if _, err := other.Get(t.Context(), "behind"); err != nil {
		t.Error(err)
	}
	var nodes int
	if err := shell(t, path).QueryRow("SELECT count(*) FROM nodes").Scan(&nodes); err != nil || nodes != 0 {
		t.Errorf("%d nodes, %v", nodes, err)
	}
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "wal_autocheckpoint": "0"} {
		if got, err := db.Pragma(t.Context(), pragma); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", pragma, got, err, want)
		}
	}
}

func TestWALStaysSmall(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secbox.db")
	db := open(t, path)
	const writers, each, most = 8, 75, 16 << 20 // without checkpoints they make a WAL of more than 32 MiB
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				end := planprobe.Exec(w*each+i, writers*each)
				start := end
				start.Status, start.EndedAt = audit.Running, time.Time{}
				if _, err := db.Audit().Open(t.Context(), start); err != nil {
					t.Error(err)
					return
				}
				if _, err := db.Audit().Close(t.Context(), end); err != nil {
					t.Error(err)
					return
				}
				if info, err := os.Stat(path + "-wal"); err != nil || info.Size() > most {
					t.Errorf("the WAL: %v, %v", info.Size(), err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the WAL is left behind: %v", err)
	}
	again := open(t, path)
	if items, _, err := again.Audit().List(t.Context(), audit.Filter{Statuses: []audit.Status{audit.Running}}, nil, 1); err != nil || len(items) != 0 {
		t.Errorf("%v, %v", items, err)
	}
}
