package audit_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/audit"
	"secbox/store"
	"secbox/store/storetest/sqlitetest"
)

// database is a real one that can be made to refuse and to answer again.
type database struct {
	store.Database
	refuse, answer func()
	sql            func(t *testing.T, statements string) // runs them as the database's owner
}

// databases are the two ways in which a database refuses: PostgreSQL is stopped, as by a crash;
// SQLite's file is locked by another process.
var databases = map[string]func(t *testing.T) database{"sqlite": onSQLite}

func onSQLite(t *testing.T) database {
	dir := t.TempDir()
	db := openDatabase(t, "", dir)
	other, err := sql.Open("sqlite", (&url.URL{
		Scheme: "file", Path: "/" + strings.TrimPrefix(filepath.ToSlash(filepath.Join(dir, store.File)), "/"),
		RawQuery: "_txlock=exclusive",
	}).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	var lock *sql.Tx
	return database{
		Database: db,
		refuse: func() {
			if lock, err = other.BeginTx(context.WithoutCancel(t.Context()), nil); err != nil {
				t.Fatal(err)
			}
		},
		answer: func() {
			if err := lock.Rollback(); err != nil {
				t.Fatal(err)
			}
		},
		sql: func(t *testing.T, statements string) {
			t.Helper()
			if _, err := other.ExecContext(context.WithoutCancel(t.Context()), statements); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func openDatabase(t *testing.T, url, dir string) store.Database {
	t.Helper()
	if url == "" {
		sqlitetest.Migrated(t, filepath.Join(dir, store.File))
	}
	db, err := store.Open(t.Context(), url, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func newLog(t *testing.T, s audit.Store, stateDir string) *audit.Log {
	t.Helper()
	return newLogAt(t, s, stateDir, time.Now)
}

// newLogAt makes a log with a clock of its own.
func newLogAt(t *testing.T, s audit.Store, stateDir string, now func() time.Time) *audit.Log {
	t.Helper()
	l, err := audit.NewLog(audit.Config{
		Store: s, Dir: filepath.Join(stateDir, "spool"), NodeID: "n1", Now: now,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Retry: 20 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// run runs the log's background work until the test or the returned function ends it.
func run(t *testing.T, l *audit.Log) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		l.Run(ctx)
		close(done)
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

var discard = slog.New(slog.DiscardHandler)

func running() audit.Record {
	now := time.Now().UTC().Truncate(time.Microsecond)
	return audit.Record{
		ExecID: uuid.Must(uuid.NewV7()).String(), ProjectID: "p", Cmd: "bash", Args: []string{"-lc", "true"}, EnvKeys: []string{}, Inputs: []audit.Input{},
		Status: audit.Running, CreatedAt: now, StartedAt: now, NodeID: "n1", Backend: "docker", RequestedBy: "loopback",
	}
}

func ended(r audit.Record) audit.Record {
	code := 0
	r.Status, r.ExitCode, r.EndedAt, r.StdoutBytes = audit.Succeeded, &code, r.CreatedAt.Add(time.Second), 42
	return r
}

func mustOpen(t *testing.T, l *audit.Log) audit.Record {
	t.Helper()
	r := running()
	if taken, err := l.Open(t.Context(), r); err != nil || taken != nil {
		t.Fatalf("Open = %v, %v", taken, err)
	}
	return r
}

func status(t *testing.T, s interface {
	Get(ctx context.Context, execID string) (audit.Record, error)
}, id string,
) audit.Status {
	t.Helper()
	r, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return r.Status
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("never: %s", what)
		case <-look.C:
		}
	}
}

// spooled are the files in a state dir's spool.
func spooled(t *testing.T, stateDir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(stateDir, "spool"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
