package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"secbox/access/tokens"
	"secbox/audit"
	"secbox/fault"
)

// waitForLocks waits until at least so many statements of the database wait for locks, and most if
// they come soon.
func waitForLocks(t *testing.T, on pgx.Tx, least, most int) {
	t.Helper()
	for waiting, since := 0, time.Now(); waiting < least || waiting < most && time.Since(since) < 200*time.Millisecond; { // more may still be about to come
		if err := on.QueryRow(t.Context(),
			"SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
}

// lock begins a transaction that keeps all others from the table of execs.
func lock(t *testing.T, url string) pgx.Tx {
	t.Helper()
	admin, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.Close(context.WithoutCancel(t.Context())) })
	lock, err := admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), "LOCK TABLE sandbox_execs"); err != nil {
		t.Fatal(err)
	}
	return lock
}

// TestLookUpsDoNotWaitForLists: however many lists are asked for, a token can be checked.
func TestLookUpsDoNotWaitForLists(t *testing.T) {
	t.Parallel()
	url := cluster.Migrated(t)
	db, lock := open(t, url+"&pool_max_conns=4"), lock(t, url) // every list waits now
	var lists sync.WaitGroup
	for range 20 {
		lists.Go(func() {
			if _, _, err := db.Audit().List(t.Context(), audit.Filter{}, nil, 1); err != nil && !fault.Is(err, fault.DatabaseUnavailable) {
				t.Error(err)
			}
		})
	}
	waitForLocks(t, lock, 2, 4)
	soon, cancel := context.WithTimeout(t.Context(), 3*time.Second) // the lists themselves are given up after 4.5 s
	defer cancel()
	if _, _, err := db.Tokens().ByHash(soon, tokens.Hash{1}); !fault.Is(err, fault.UnknownToken) {
		t.Errorf("a token cannot be looked up while lists are read: %v", err)
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	lists.Wait()
}

// TestWritesDoNotWaitForReads: however many records are looked up, a row can be written.
func TestWritesDoNotWaitForReads(t *testing.T) {
	t.Parallel()
	url := cluster.Migrated(t)
	db, lock := open(t, url+"&pool_max_conns=4"), lock(t, url)
	var reads sync.WaitGroup
	for range 20 {
		reads.Go(func() {
			if _, err := db.Audit().Get(t.Context(), "unknown"); !fault.Is(err, fault.DatabaseUnavailable) && !fault.Is(err, fault.UnknownExec) {
				t.Error(err)
			}
		})
	}
	waitForLocks(t, lock, 3, 4)
	soon, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := db.Sessions().EndAll(soon, "token", "a test"); err != nil {
		t.Errorf("a row cannot be written while records are read: %v", err)
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	reads.Wait()
}
