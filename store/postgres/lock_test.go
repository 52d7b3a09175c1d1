package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

// holdLock locks the table of execs from another session until release is called.
func holdLock(t *testing.T, url string) (release func()) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(ctx) })
	if _, err := conn.Exec(ctx, "BEGIN; LOCK TABLE sandbox_execs IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
	}
}
