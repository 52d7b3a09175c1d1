package migrations_test

import (
	"context"
	"os"
	"testing"

	"secbox/internal/lockfile"
	"secbox/migrations"
)

// holdMigrationLock takes the lock as another node does in the middle of a migration.
func holdMigrationLock(t *testing.T, kind string, n node) (release func()) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if kind == "sqlite" {
		var path string
		if err := n.db.QueryRowContext(ctx, "SELECT file FROM pragma_database_list").Scan(&path); err != nil {
			t.Fatal(err)
		}
		lock, err := os.OpenFile(path+".migrate", os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if err := lockfile.Try(lock); err != nil {
			t.Fatal(err)
		}
		return func() { lockfile.Close(lock) }
	}
	conn, err := n.db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", int64(migrations.LockID)); err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_unlock($1)", int64(migrations.LockID)); err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
