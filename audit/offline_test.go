package audit_test

import (
	"encoding/json"
	"errors"
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

// TestForeignRecord: a record of another node than the row's is no end of it, and stays.
func TestForeignRecord(t *testing.T) {
	t.Parallel()
	db := openDatabase(t, "", t.TempDir())
	dir := t.TempDir()
	l := newLog(t, db.Audit(), dir)
	r := mustOpen(t, l)
	foreign := ended(r)
	foreign.NodeID = "n2"
	if err := os.WriteFile(filepath.Join(dir, "spool", r.ExecID+".json"), []byte(asJSON(t, foreign)), 0o600); err != nil {
		t.Fatal(err)
	}
	l = newLog(t, db.Audit(), dir)
	if lost, err := l.Recover(t.Context()); err != nil || len(lost) != 0 {
		t.Errorf("Recover = %v, %v", lost, err)
	}
	if u := l.Unstored(); u.Refused != 1 || status(t, db.Audit(), r.ExecID) != audit.Running {
		t.Errorf("%+v, the row is %s", u, status(t, db.Audit(), r.ExecID))
	}
	files, err := audit.ReadSpool(filepath.Join(dir, "spool"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if _, err := audit.StoreSpooled(t.Context(), db.Audit(), filepath.Join(dir, "spool"), files[0]); !fault.Is(err, fault.Internal) {
		t.Errorf("StoreSpooled: %v", err)
	}
}

// TestHostileSpool: nothing in the spool keeps a node from starting, or costs much memory.
func TestHostileSpool(t *testing.T) {
	t.Parallel()
	db := openDatabase(t, "", t.TempDir())
	dir := t.TempDir()
	l := newLog(t, db.Audit(), dir)
	r, huge := mustOpen(t, l), mustOpen(t, l)
	spool := filepath.Join(dir, "spool")
	for _, path := range []string{"x.tmp/a", r.ExecID + ".json/x"} {
		if err := os.MkdirAll(filepath.Join(spool, path), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(spool, r.ExecID+".tmp"), []byte(asJSON(t, ended(r))), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(spool, huge.ExecID+".json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(1<<40), f.Close()); err != nil {
		t.Fatal(err)
	}
	next := newLog(t, db.Audit(), dir)
	if lost, err := next.Recover(t.Context()); err != nil || len(lost) != 0 {
		t.Errorf("Recover = %v, %v", lost, err)
	}
	if u := next.Unstored(); u.Damaged != 2 || u.Results != 0 {
		t.Errorf("%+v", u)
	}
	files, err := audit.ReadSpool(spool)
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if err := audit.DiscardSpooled(t.Context(), db.Audit(), spool, file); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{r.ExecID, huge.ExecID} {
		if got := status(t, db.Audit(), id); got != audit.Lost {
			t.Errorf("%s is %s", id, got)
		}
	}
}

// TestRemovedFromSpool: a server forgets a result that an operator has removed, and reads a file
// that was repaired.
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
