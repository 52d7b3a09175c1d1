package storetest

import (
	"strings"
	"testing"
	"time"

	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/retention"
	"secbox/audit/translog"
	"secbox/audit/translog/verify"
	"secbox/store/storetest/planprobe"
)

// evidence is a database with four execs in the log, open to attacks: its triggers are dropped.
type evidence struct {
	Fixture
	key, keyFile               string
	plain, queued, large, open string // ids
}

func newEvidence(t *testing.T, f Fixture) evidence {
	t.Helper()
	s := f.Audit()
	e := evidence{Fixture: f}
	e.keyFile, e.key = logKey(t)

	plain := record()
	mustOpen(t, s, plain)
	if _, err := s.Close(t.Context(), ended(plain)); err != nil {
		t.Fatal(err)
	}
	queued := in(record(), func(r *audit.Record) { r.Status, r.StartedAt = audit.Queued, time.Time{} })
	mustOpen(t, s, queued)
	queued.Status, queued.StartedAt = audit.Running, base.Add(time.Second)
	if started, err := s.Start(t.Context(), queued); !started || err != nil {
		t.Fatal(started, err)
	}
	large := in(record(), func(r *audit.Record) {
		r.Args = []string{strings.Repeat("x", 5000)}
		r.LargeLists = map[string]audit.LargeList{"args": {Count: 1, Kept: 1, SHA256: "aa"}}
		r.NodeID, r.Backend = "lost", audit.BackendRemote
	})
	mustOpen(t, s, large)
	if _, err := s.LoseOpen(t.Context(), "lost", nil); err != nil {
		t.Fatal(err)
	}
	for _, r := range []audit.Record{queued, large} { // the second is corrected
		if _, err := s.Close(t.Context(), ended(r)); err != nil {
			t.Fatal(err)
		}
	}
	open := record()
	mustOpen(t, s, open)
	logAll(t, sequencer(t, f.TransparencyLog(), "n1", e.keyFile))
	e.plain, e.queued, e.large, e.open = plain.ExecID, queued.ExecID, large.ExecID, open.ExecID
	return e
}

// unprotect drops the triggers.
func (e evidence) unprotect(t *testing.T) {
	t.Helper()
	if e.Kind() == "postgres" {
		e.mustSQL(t, "ALTER TABLE sandbox_execs DISABLE TRIGGER ALL; ALTER TABLE sandbox_exec_events DISABLE TRIGGER ALL; ALTER TABLE "+
			"audit_log_entries DISABLE TRIGGER ALL; ALTER TABLE admin_events DISABLE TRIGGER ALL; ALTER TABLE audit_holds DISABLE "+
			"TRIGGER ALL")
		return
	}
	names, err := e.SQL("SELECT group_concat(name) FROM sqlite_master WHERE type = 'trigger' AND tbl_name IN ('sandbox_execs', " +
		"'sandbox_exec_events', 'audit_log_entries', 'admin_events', 'audit_holds')")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Split(names, ",") {
		e.mustSQL(t, "DROP TRIGGER "+name)
	}
}

// verify returns the differences, one line each.
func (e evidence) verify(t *testing.T, o verify.Options) ([]string, verify.Summary, *verify.Kept) {
	t.Helper()
	var lines []string
	if o.Key == "" {
		o.Key = e.key
	}
	o.TempDir, o.Report = t.TempDir(), func(d verify.Difference) { lines = append(lines, d.String()) }
	sum, kept, err := verify.Run(t.Context(), translog.Log{Store: e.TransparencyLog()}, o)
	if err != nil {
		t.Fatal(err)
	}
	if int(sum.Differences) != len(lines) {
		t.Errorf("%d differences and %d lines", sum.Differences, len(lines))
	}
	return lines, sum, kept
}

// verifyHonest finds nothing in a database that is only used, whole or from where the run before
// ended.
func verifyHonest(t *testing.T, f Fixture) {
	e := newEvidence(t, f)
	lines, sum, kept := e.verify(t, verify.Options{})
	if len(lines) > 0 || sum.Execs != 4 || sum.Events != 12 || sum.Size != 12 || sum.Pending != 0 || kept == nil {
		t.Fatalf("%q, %+v", lines, sum)
	}
	for i := range 300 { // more than a page and a tile
		r := record()
		mustOpen(t, f.Audit(), r)
		if i%2 == 0 {
			if _, err := f.Audit().Close(t.Context(), ended(r)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if lines, sum, again := e.verify(t, verify.Options{Kept: kept, NewOnly: true}); len(lines) > 0 || sum.Pending < 128 || sum.From != 12 ||
		again == nil {
		t.Errorf("before they are in the log: %q, %+v", lines, sum)
	}
	if lines, sum, _ := e.verify(t, verify.Options{}); len(lines) > 0 || sum.Execs != 304 || sum.Pending != 750 {
		t.Errorf("all, before they are in the log: %q, %+v", lines, sum)
	}
	if _, err := f.Audit().Close(t.Context(), ended(mustGet(t, f.Audit(), e.open))); err != nil {
		t.Fatal(err)
	}
	logAll(t, sequencer(t, f.TransparencyLog(), "n1", e.keyFile))
	lines, sum, newer := e.verify(t, verify.Options{Kept: kept, NewOnly: true})
	if len(lines) > 0 || sum.From != 12 || sum.Entries != 751 || sum.Execs < 301 || newer == nil || newer.Size != 763 ||
		newer.Execs != 304 || newer.FullAt != kept.FullAt {
		t.Errorf("from the kept checkpoint: %q, %+v", lines, sum)
	}
	if lines, sum, kept := e.verify(t, verify.Options{Kept: newer}); len(lines) > 0 || sum.Entries != 763 || sum.Execs != 304 ||
		sum.LeftOut != nil || kept == nil {
		t.Errorf("all: %q, %+v", lines, sum)
	}
	withHolds()(t, e, nil)
	if lines, sum, kept := e.verify(t, verify.Options{Kept: newer, NewOnly: true}); len(lines) > 0 || sum.Holds != 2 || sum.Entries != 3 ||
		kept == nil {
		t.Errorf("with holds: %q, %+v", lines, sum)
	}
	if lines, sum, kept := e.verify(t, verify.Options{Kept: newer, NewOnly: true, Project: "no such project"}); len(lines) > 0 ||
		sum.Execs != 0 || kept != nil {
		t.Errorf("another project: %q, %+v", lines, sum)
	}
}

// verifyRetention: only an event in the log excuses an entry without a document.
func verifyRetention(t *testing.T, f Fixture) {
	e := newEvidence(t, f)
	s, q := f.Retention(), sequencer(t, f.TransparencyLog(), "n1", e.keyFile)
	_, _, before := e.verify(t, verify.Options{})
	beginRun(t, s)
	mustRemove(t, s, expired(retention.Artifacts), e.large)
	mustRemove(t, s, expired(retention.Records), e.plain)
	logAll(t, q)
	if lines, sum, kept := e.verify(t, verify.Options{}); len(lines) > 0 || sum.Execs != 3 || sum.Removed != 3 || kept == nil {
		t.Errorf("during the run: %q, %+v", lines, sum)
	}
	if err := s.End(t.Context(), "run", retention.Done{}); err != nil {
		t.Fatal(err)
	}
	logAll(t, q)
	for name, o := range map[string]verify.Options{
		"all": {Kept: before}, "from the kept checkpoint": {Kept: before, NewOnly: true},
		"of a project": {Project: "none"},
	} {
		if lines, _, _ := e.verify(t, o); len(lines) > 0 {
			t.Errorf("%s, after the run: %q", name, lines)
		}
	}
	record := func(kind admin.Kind, data any) {
		t.Helper()
		event, err := admin.New(t.Context(), kind, "audit.test_days", data)
		if err == nil {
			err = f.AdminEvents().Record(t.Context(), event)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	removed := func(entries ...int) map[string]any {
		return map[string]any{"part": "record", "days": 7, "entries": map[string][]int{e.queued: entries}}
	}
	record(admin.ExecsRemoved, removed(4))
	record(admin.ExecsRemoved, removed(1))
	record(admin.ExecsRemoved, removed(100))
	record(admin.ExecsRemoved, map[string]any{"part": "all"})
	record(admin.RetentionRun, map[string]int{"records": 5})
	e.unprotect(t)
	e.mustSQL(t, "INSERT INTO audit_tombstone_events (event_seq, exec_id) SELECT seq, exec_id FROM sandbox_exec_events WHERE exec_id = '"+
		e.open+"'")
	e.mustSQL(t, "DELETE FROM sandbox_exec_events WHERE exec_id = '"+e.open+"'")
	e.mustSQL(t, "DELETE FROM sandbox_execs WHERE exec_id = '"+e.open+"'")
	logAll(t, q)
	lines, _, _ := e.verify(t, verify.Options{})
	for _, says := range []string{
		"exec " + e.queued +
			": entry 4: expected its event, or one that says that it was removed, found another one beside administrative event ",
		"exec " + e.queued +
			": entry 1: expected its event, or one that says that it was removed, found another one beside administrative event ",
		"exec " + e.queued + ": administrative event 6 (execs_removed): expected entries before its own, found entry 100",
		`log: administrative event 7 (execs_removed): expected a rule of retention and what it removed, found {"part":"all"}`,
		"log: administrative event 8 (retention_run): expected 3 records and the artifacts of 0 execs, as the events before it say, " +
			"found 5 and 0",
		"log: entries 10 to 11: expected 2 events, found none",
	} {
		if !strings.Contains(strings.Join(lines, "\n"), says) {
			t.Errorf("%q is not in:\n%s", says, strings.Join(lines, "\n"))
		}
	}
	if len(lines) != 6 {
		t.Errorf("%q", lines)
	}
}

// all runs statements, on PostgreSQL at once since each starts a program.
func (e evidence) all(t *testing.T, statements []string, names *strings.Replacer) {
	t.Helper()
	if e.Kind() == "postgres" {
		statements = []string{strings.Join(statements, "; ")}
	}
	for _, statement := range statements {
		if e.Kind() == "sqlite" {
			statement = "PRAGMA ignore_check_constraints = on; " + strings.ReplaceAll(statement, "CHR(", "char(")
		}
		e.mustSQL(t, names.Replace(statement))
	}
}

// verifyFilled finds nothing in a database that was filled for measurements.
func verifyFilled(t *testing.T, f Fixture) {
	const rows = 200
	if err := planprobe.FillHistories(t.Context(), f.Database, rows, rows, base); err != nil {
		t.Fatal(err)
	}
	e := evidence{Fixture: f}
	e.keyFile, e.key = logKey(t)
	logAll(t, sequencer(t, f.TransparencyLog(), "n1", e.keyFile))
	lines, sum, _ := e.verify(t, verify.Options{})
	if len(lines) > 0 || sum.Execs != rows || sum.Events < 2*rows || sum.Pending != 0 || sum.ColumnsNewer != 0 {
		t.Errorf("%q, %+v", lines, sum)
	}
	endings := map[string]bool{}
	for _, r := range planprobe.Histories(1000, base) {
		endings[string(r.Status)+" "+string(r.ErrorReason)] = true
	}
	if len(endings) != 12 {
		t.Errorf("%v", endings)
	}
}
