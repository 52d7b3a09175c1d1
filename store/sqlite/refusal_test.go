package sqlite_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/store/sqlite"
	"secbox/store/storetest/planprobe"
)

// bound is far above the longest refusal.
const bound = 30 * time.Second

func record(id string) audit.Record {
	now := time.Now()
	return audit.Record{ExecID: id, ProjectID: "p", Status: audit.Running, CreatedAt: now, StartedAt: now, NodeID: "n1", RequestedBy: "t"}
}

func TestOpenRefusesInBoundedTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.db")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("this is no database\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	truncated := filepath.Join(dir, "truncated.db")
	open(t, truncated).Close()
	if err := os.Truncate(truncated, 5000); err != nil {
		t.Fatal(err)
	}
	locked := filepath.Join(dir, "locked.db") // not migrated yet: one that is can be opened, and read
	lock(t, locked)
	for name, path := range map[string]string{
		"a missing folder":     filepath.Join(dir, "absent", "secbox.db"),
		"a folder":             dir,
		"under a file":         filepath.Join(garbage, "secbox.db"),
		"another kind of file": garbage,
		"a truncated file":     truncated,
		"a locked file":        locked,
	} {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			db, err := sqlite.Open(t.Context(), path)
			if err == nil {
				db.Close()
				t.Fatal("it was opened")
			}
			if !fault.Is(err, fault.DatabaseUnavailable) {
				t.Errorf("%v", err)
			}
			if took := time.Since(begun); took > bound {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// lock holds the write lock of a database as another process would, until release is called or the
// test ends.
func lock(t *testing.T, path string) (release func()) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := shell(t, path).Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := conn.ExecContext(ctx, "BEGIN EXCLUSIVE"); err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLockedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secbox.db")
	db := open(t, path)
	s := db.Audit()
	if _, err := s.Open(t.Context(), record("r")); err != nil {
		t.Fatal(err)
	}
	release := lock(t, path)
	for name, call := range map[string]func() error{
		"Open": func() error { _, err := s.Open(t.Context(), record("new")); return err },
		"Ping": func() error { return s.Ping(t.Context()) },
	} {
		begun := time.Now()
		if err := call(); !fault.Is(err, fault.DatabaseUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(begun); took > bound {
			t.Errorf("%s took %v", name, took)
		}
	}
	if got, err := s.Get(t.Context(), "r"); err != nil || got.Status != audit.Running {
		t.Errorf("readers do not wait: %+v, %v", got, err)
	}
	release()
	if _, err := s.Open(t.Context(), record("new")); err != nil {
		t.Errorf("after the lock: %v", err)
	}
}

func TestCommitsAreDurable(t *testing.T) {
	t.Parallel()
	db := open(t, filepath.Join(t.TempDir(), "secbox.db"))
	if err := planprobe.Fill(t.Context(), db, 10); err != nil { // it turns flushing off meanwhile
		t.Fatal(err)
	}
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2"} {
		if got, err := db.Pragma(t.Context(), pragma); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", pragma, got, err, want)
		}
	}
}
