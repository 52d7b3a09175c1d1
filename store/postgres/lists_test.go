package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"secbox/audit"
	"secbox/fault"
	"secbox/tokens"
)

// TestLookUpsDoNotWaitForLists: however many lists are asked for, a token can be checked.
func TestLookUpsDoNotWaitForLists(t *testing.T) {
	t.Parallel()
	url := cluster.Migrated(t)
	db := open(t, url+"&pool_max_conns=4")
	admin, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.WithoutCancel(t.Context()))
	lock, err := admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), "LOCK TABLE sandbox_execs"); err != nil { // every list waits now
		t.Fatal(err)
	}
	var lists sync.WaitGroup
	for range 20 {
		lists.Go(func() {
			if _, _, err := db.Audit().List(t.Context(), audit.Filter{}, nil, 1); err != nil && !fault.Is(err, fault.DatabaseUnavailable) {
				t.Error(err)
			}
		})
	}
	for waiting, since := 0, time.Now(); waiting < 2 || waiting < 4 && time.Since(since) < 200*time.Millisecond; { // more may still be about to come
		if err := lock.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
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
