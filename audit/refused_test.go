package audit_test

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"secbox/audit"
	"secbox/fault"
)

// refusal makes a database refuse the ends of execs, and take them again.
type refusal struct{ name, begin, end string }

// refusals are what operators and attackers do to databases, by their kinds.
var refusals = map[string][]refusal{
	"sqlite": {
		{"a trigger", "CREATE TRIGGER no BEFORE UPDATE ON sandbox_execs BEGIN SELECT RAISE(ABORT, 'no'); END", "DROP TRIGGER no"},
		{"a renamed column", "ALTER TABLE sandbox_execs RENAME COLUMN detail TO other", "ALTER TABLE sandbox_execs RENAME COLUMN other TO detail"},
		{"a renamed table", "ALTER TABLE sandbox_exec_events RENAME TO other", "ALTER TABLE other RENAME TO sandbox_exec_events"},
	},
}

// attempts counts the attempts to end execs.
type attempts struct {
	audit.Store
	n atomic.Int64
}

func (s *attempts) Close(ctx context.Context, r audit.Record) (audit.Status, error) {
	defer s.n.Add(1)
	return s.Store.Close(ctx, r)
}

// TestRefusedEnd: whatever the database answers, for an hour, the result stays on disk and visible,
// and is written when the database takes it.
func TestRefusedEnd(t *testing.T) {
	t.Parallel()
	for kind, open := range databases {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			for _, c := range refusals[kind] {
				t.Run(c.name, func(t *testing.T) { refusedEnd(t, db, c) })
			}
		})
	}
}

func refusedEnd(t *testing.T, db database, c refusal) {
	var passed atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
	dir := t.TempDir()
	s := &attempts{Store: db.Audit()}
	l := newLogAt(t, s, dir, now)
	r := mustOpen(t, l)

	db.sql(t, c.begin)
	if spooled, err := l.Close(t.Context(), new(ended(r))); err != nil || !spooled {
		t.Fatalf("Close = %v, %v", spooled, err)
	}
	stop := run(t, l)
	for range 60 {
		n := s.n.Load()
		passed.Add(int64(time.Minute))
		eventually(t, "the result is tried again", func() bool { return s.n.Load() > n })
		if u := l.Unstored(); u.Results != 1 || u.Oldest.IsZero() || u.InMemory != 0 {
			t.Fatalf("after %v: %+v", time.Duration(passed.Load()), u)
		}
		if got := status(t, l, r.ExecID); got != audit.Succeeded {
			t.Fatalf("after %v: %s", time.Duration(passed.Load()), got)
		}
	}
	stop()
	if files := spooled(t, dir); !slices.Equal(files, []string{r.ExecID + ".json"}) {
		t.Fatalf("the spool holds %v", files)
	}

	// A start meanwhile does not lose it either.
	l = newLogAt(t, s, dir, now)
	if lost, err := l.Recover(t.Context()); len(lost) != 0 {
		t.Errorf("Recover = %v, %v", lost, err)
	}
	db.sql(t, c.end)
	if got := status(t, db.Audit(), r.ExecID); got != audit.Running {
		t.Errorf("the database says %s although it has refused the end", got)
	}
	passed.Add(int64(time.Minute))
	if lost, err := l.Recover(t.Context()); err != nil || len(lost) != 0 {
		t.Errorf("Recover = %v, %v", lost, err)
	}
	if got := status(t, db.Audit(), r.ExecID); got != audit.Succeeded || l.Unstored().Results != 0 || len(spooled(t, dir)) != 0 {
		t.Errorf("the row is %s, %+v", got, l.Unstored())
	}
	if events, err := l.Events(t.Context(), r.ExecID); err != nil || len(events) != 3 {
		t.Errorf("%d events, %v", len(events), err)
	}
}

// TestRefusedEndDelaysNoOther: one result that the database refuses, or whose row another
// transaction has locked, keeps no other from being written.
func TestRefusedEndDelaysNoOther(t *testing.T) {
	t.Parallel()
	db := onSQLite(t)
	dir := t.TempDir()
	l := newLog(t, db.Audit(), dir)
	first, second := mustOpen(t, l), mustOpen(t, l)
	db.sql(t, "CREATE TRIGGER no BEFORE UPDATE ON sandbox_execs BEGIN SELECT RAISE(ABORT, 'no'); END")
	for _, r := range []audit.Record{first, second} {
		if spooled, err := l.Close(t.Context(), new(ended(r))); err != nil || !spooled {
			t.Fatalf("Close = %v, %v", spooled, err)
		}
	}
	db.sql(t, "DROP TRIGGER no; CREATE TRIGGER no BEFORE UPDATE ON sandbox_execs WHEN OLD.exec_id = '"+first.ExecID+"' BEGIN SELECT RAISE(ABORT, 'no'); END")
	run(t, l)
	eventually(t, "the second is written", func() bool { return status(t, db.Audit(), second.ExecID) == audit.Succeeded })
	// A result leaves the spool just after its row is stored.
	eventually(t, "the second leaves the spool", func() bool { return l.Unstored().Results <= 1 })
	if u := l.Unstored(); u.Results != 1 || u.ExecID != first.ExecID && u.ExecID != "" {
		t.Errorf("unstored: %+v", u)
	}
}

// TestUnansweredEndsDelayNoOther: results for which the database seems not to answer, such as of
// locked rows, keep no other from being written, and a node from starting.
func TestUnansweredEndsDelayNoOther(t *testing.T) {
	t.Parallel()
	db := openDatabase(t, "", t.TempDir())
	s := &unanswering{Store: db.Audit(), of: map[string]bool{}}
	dir := t.TempDir()
	l := newLog(t, s, dir)
	var execs []audit.Record
	for range 5 {
		r := mustOpen(t, l)
		s.of[r.ExecID] = true
		if spooled, err := l.Close(t.Context(), new(ended(r))); err != nil || !spooled {
			t.Fatalf("Close = %v, %v", spooled, err)
		}
		execs = append(execs, r)
	}
	good := execs[3:]
	s.allow(good[0].ExecID, good[1].ExecID)
	next := newLog(t, s, dir) // as after a restart
	if lost, err := next.Recover(t.Context()); err != nil || len(lost) != 0 {
		t.Fatalf("Recover = %v, %v", lost, err)
	}
	run(t, next)
	eventually(t, "the good ones are written", func() bool {
		return status(t, db.Audit(), good[0].ExecID) == audit.Succeeded && status(t, db.Audit(), good[1].ExecID) == audit.Succeeded
	})
	eventually(t, "they leave the spool", func() bool { return next.Unstored().Results <= 3 })
	if u := next.Unstored(); u.Results != 3 || u.Refused == 0 || u.Reason == "" {
		t.Errorf("%+v", u)
	}
}

// unanswering is a store that does not answer for some execs.
type unanswering struct {
	audit.Store
	mu sync.Mutex
	of map[string]bool
}

func (s *unanswering) allow(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.of, id)
	}
}

func (s *unanswering) Close(ctx context.Context, r audit.Record) (audit.Status, error) {
	s.mu.Lock()
	refuse := s.of[r.ExecID]
	s.mu.Unlock()
	if refuse {
		return "", fault.New(fault.DatabaseUnavailable, "the database did not answer in time; try again")
	}
	return s.Store.Close(ctx, r)
}

// TestResultOfRetiredNode: another node has ended the exec as lost while its result was in the
// spool. Its node brings it back.
func TestResultOfRetiredNode(t *testing.T) {
	t.Parallel()
	for kind, open := range databases {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			dir := t.TempDir()
			l := newLog(t, db.Audit(), dir)
			r := mustOpen(t, l)
			db.refuse()
			if spooled, err := l.Close(t.Context(), new(ended(r))); err != nil || !spooled {
				t.Fatalf("Close = %v, %v", spooled, err)
			}
			db.answer()
			if lost, err := db.Audit().LoseOpen(t.Context(), "n1", nil); err != nil || len(lost) != 1 {
				t.Fatalf("LoseOpen = %v, %v", lost, err)
			}
			if lost, err := newLog(t, db.Audit(), dir).Recover(t.Context()); err != nil || len(lost) != 0 {
				t.Fatalf("Recover = %v, %v", lost, err)
			}
			events, err := db.Audit().Events(t.Context(), r.ExecID)
			if got := status(t, db.Audit(), r.ExecID); err != nil || got != audit.Succeeded || len(events) != 4 || events[3].Kind != audit.EventCorrected {
				t.Errorf("%s, %+v, %v", got, events, err)
			}
			if files, _ := filepath.Glob(filepath.Join(dir, "spool", "*")); len(files) != 0 {
				t.Errorf("left in the spool: %v", files)
			}
		})
	}
}
