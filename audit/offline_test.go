package audit_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"secbox/audit"
	"secbox/fault"
)

// spool puts a record into a new spool.
func spool(t *testing.T, name, content string) (dir string, file audit.SpooledFile) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := audit.ReadSpool(dir)
	if err != nil || len(files) != 1 || files[0].Name != name {
		t.Fatalf("ReadSpool = %+v, %v", files, err)
	}
	return dir, files[0]
}

func asJSON(t *testing.T, r audit.Record) string {
	t.Helper()
	content, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func kinds(t *testing.T, s audit.Store, id string) (all []audit.EventKind) {
	t.Helper()
	events, err := s.Events(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		all = append(all, e.Kind)
	}
	return all
}

// TestStoreSpooled: a result ends its row, or brings an exec back that the database no longer has.
func TestStoreSpooled(t *testing.T) {
	t.Parallel()
	s := openDatabase(t, "", t.TempDir()).Audit()
	open, gone, queued := running(), running(), running()
	if _, err := s.Open(t.Context(), open); err != nil {
		t.Fatal(err)
	}
	canceled := ended(queued)
	canceled.Status, canceled.StartedAt, canceled.ExitCode = audit.Canceled, open.EndedAt, nil
	complete := []audit.EventKind{audit.EventCreated, audit.EventStarted, audit.EventEnded}
	for _, c := range []struct {
		r    audit.Record
		want []audit.EventKind
	}{{ended(open), complete}, {ended(gone), complete}, {canceled, []audit.EventKind{audit.EventCreated, audit.EventEnded}}} {
		dir, file := spool(t, c.r.ExecID+".json", asJSON(t, c.r))
		if got, err := audit.StoreSpooled(t.Context(), s, dir, file); err != nil || got != c.r.Status {
			t.Fatalf("StoreSpooled = %s, %v", got, err)
		}
		got, err := s.Get(t.Context(), c.r.ExecID)
		if err != nil || got.Status != c.r.Status || !got.EndedAt.Equal(c.r.EndedAt) || got.StdoutBytes != 42 {
			t.Errorf("the row: %+v, %v", got, err)
		}
		if got := kinds(t, s, c.r.ExecID); !slices.Equal(got, c.want) {
			t.Errorf("events %v, want %v", got, c.want)
		}
		if u, err := audit.LookAt(dir); err != nil || u != (audit.Unstored{}) {
			t.Errorf("left: %+v, %v", u, err)
		}
	}

	// Another exec has its idempotency key: nothing is changed.
	holder, late := running(), running()
	holder.IdempotencyKey, late.IdempotencyKey = "k", "k"
	if _, err := s.Open(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
	dir, file := spool(t, late.ExecID+".json", asJSON(t, ended(late)))
	if _, err := audit.StoreSpooled(t.Context(), s, dir, file); !fault.Is(err, fault.IdempotencyMismatch) {
		t.Errorf("StoreSpooled with a taken key: %v", err)
	}
	if u, err := audit.LookAt(dir); err != nil || u.Results != 1 {
		t.Errorf("left: %+v, %v", u, err)
	}
}

// TestDiscardSpooled: an open row ends as lost, an ended one stays, and the file goes.
func TestDiscardSpooled(t *testing.T) {
	t.Parallel()
	s := openDatabase(t, "", t.TempDir()).Audit()
	open, done, gone := running(), running(), running()
	for _, r := range []audit.Record{open, done} {
		if _, err := s.Open(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Close(t.Context(), ended(done)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		r    audit.Record
		want audit.Status
	}{{open, audit.Lost}, {done, audit.Succeeded}, {gone, ""}} {
		dir, file := spool(t, c.r.ExecID+".json", "{")
		if file.Err == nil {
			t.Fatal("a damaged file is a record")
		}
		if err := audit.DiscardSpooled(t.Context(), s, dir, file); err != nil {
			t.Fatal(err)
		}
		if c.want != "" && status(t, s, c.r.ExecID) != c.want {
			t.Errorf("the row is %s, want %s", status(t, s, c.r.ExecID), c.want)
		}
		if files, err := audit.ReadSpool(dir); err != nil || len(files) != 0 {
			t.Errorf("left: %+v, %v", files, err)
		}
	}
}

// TestRemovedFromSpool: a server forgets a result that an operator has removed, and reads a file that was repaired.
func TestRemovedFromSpool(t *testing.T) {
	t.Parallel()
	db := onSQLite(t)
	dir := t.TempDir()
	l := newLog(t, db.Audit(), dir)
	r := mustOpen(t, l)
	db.sql(t, "CREATE TRIGGER no BEFORE UPDATE ON sandbox_execs BEGIN SELECT RAISE(ABORT, 'no'); END")
	if spooled, err := l.Close(t.Context(), new(ended(r))); err != nil || !spooled || !l.Spooled(r.ExecID) {
		t.Fatalf("Close = %v, %v", spooled, err)
	}
	if err := os.Remove(filepath.Join(dir, "spool", r.ExecID+".json")); err != nil {
		t.Fatal(err)
	}
	run(t, l)
	eventually(t, "it is forgotten", func() bool { return !l.Spooled(r.ExecID) })
	if got := status(t, db.Audit(), r.ExecID); got != audit.Running {
		t.Errorf("the row is %s", got)
	}
}
