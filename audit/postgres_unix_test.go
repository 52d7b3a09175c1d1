//go:build unix

package audit_test

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/audit"
	"secbox/fault"
	"secbox/store/storetest/pgtest"
)

func init() {
	databases["postgres"] = onPostgres
	raise := func(code string) string {
		return "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '" + code + "'; END$$;" +
			" CREATE TRIGGER no BEFORE UPDATE ON sandbox_execs FOR EACH ROW EXECUTE FUNCTION no()"
	}
	refusals["postgres"] = []refusal{
		{"a trigger", raise("P0001"), "DROP FUNCTION no CASCADE"},
		{"a full tablespace", raise("53100"), "DROP FUNCTION no CASCADE"},
		{"a revoked right", "REVOKE UPDATE ON sandbox_execs FROM app", "GRANT UPDATE ON sandbox_execs TO app"},
		{"a renamed column", "ALTER TABLE sandbox_execs RENAME COLUMN detail TO other", "ALTER TABLE sandbox_execs RENAME COLUMN other TO detail"},
		{"a renamed table", "ALTER TABLE sandbox_exec_events RENAME TO other", "ALTER TABLE other RENAME TO sandbox_exec_events"},
		{
			"a column without room", "ALTER TABLE sandbox_execs ADD CHECK (stdout_bytes < 42) NOT VALID",
			"ALTER TABLE sandbox_execs DROP CONSTRAINT sandbox_execs_stdout_bytes_check",
		},
	}
}

// onPostgres opens a database as its owner, who is no superuser.
func onPostgres(t *testing.T) database {
	cluster := pgtest.New(t)
	u, err := url.Parse(cluster.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	cluster.SQL(t, name, "CREATE ROLE app LOGIN PASSWORD 'app'; ALTER DATABASE "+name+" OWNER TO app")
	u.User = url.UserPassword("app", "app")
	db := openDatabase(t, u.String(), "")
	return database{
		Database: db, refuse: func() { cluster.Stop(t) }, answer: func() { cluster.Start(t) },
		sql: func(t *testing.T, statements string) { cluster.SQL(t, name, "SET ROLE app; "+statements) },
	}
}

// TestRunWaitsForTheDatabase: the background work is there while the database goes and comes back,
// more than once.
func TestRunWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	db := onPostgres(t)
	dir := t.TempDir()
	l := newLog(t, db.Audit(), dir)
	run(t, l)
	for range 2 {
		execs := []audit.Record{mustOpen(t, l), mustOpen(t, l), mustOpen(t, l)}
		db.refuse()
		for _, r := range execs {
			if ok, err := l.Close(t.Context(), new(ended(r))); err != nil || !ok {
				t.Fatalf("Close = %v, %v", ok, err)
			}
		}
		if got, err := l.Get(t.Context(), execs[0].ExecID); err != nil || got.Status != audit.Succeeded {
			t.Errorf("Get without the database = %+v, %v", got, err)
		}
		if _, err := l.Get(t.Context(), running().ExecID); !fault.Is(err, fault.DatabaseUnavailable) {
			t.Errorf("Get of another without the database: %v", err)
		}
		if got, err := l.Newer(t.Context(), execs[0]); err != nil || got.Status != audit.Succeeded {
			t.Errorf("Newer without the database = %+v, %v", got, err)
		}
		if _, err := l.Newer(t.Context(), running()); !fault.Is(err, fault.DatabaseUnavailable) {
			t.Errorf("Newer of another without the database: %v", err)
		}
		db.answer()
		eventually(t, "the spool is empty", func() bool { return l.Unstored().Results == 0 })
		for _, r := range execs {
			if got := status(t, db.Audit(), r.ExecID); got != audit.Succeeded {
				t.Errorf("%s is %s", r.ExecID, got)
			}
		}
	}
}

// TestReplayingTwiceChangesNothing: a crash between the database's answer and the removal of the
// file repeats nothing.
func TestReplayingTwiceChangesNothing(t *testing.T) {
	t.Parallel()
	db := onPostgres(t)
	dir := t.TempDir()
	l := newLog(t, db.Audit(), dir)
	r := mustOpen(t, l)
	db.refuse()
	if ok, err := l.Close(t.Context(), new(ended(r))); !ok || err != nil {
		t.Fatalf("Close = %v, %v", ok, err)
	}
	file := filepath.Join(dir, "spool", r.ExecID+".json")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	db.answer()
	for range 2 {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if lost, err := newLog(t, db.Audit(), dir).Recover(t.Context()); err != nil || len(lost) != 0 {
			t.Fatalf("Recover = %v, %v", lost, err)
		}
	}
	if events, err := db.Audit().Events(t.Context(), r.ExecID); err != nil || len(events) != 3 {
		t.Errorf("%d events, %v", len(events), err)
	}
	if files := spooled(t, dir); len(files) != 0 {
		t.Errorf("left in the spool: %v", files)
	}
}
