package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/retention"
	"secbox/audit/translog"
	"secbox/fault"
)

// expired is a query by which every exec of record() is due. Their events are of today.
func expired(part retention.Part) retention.Query {
	return retention.Query{Part: part, Rule: "audit.test_days", Days: 7, Before: tomorrow, LostBefore: base}
}

var tomorrow = time.Now().UTC().Truncate(time.Hour).Add(25 * time.Hour)

// closedExec writes an exec that has ended.
func closedExec(t *testing.T, f Fixture, change func(*audit.Record)) audit.Record {
	t.Helper()
	r := in(record(), change)
	mustOpen(t, f.Audit(), r)
	if _, err := f.Audit().Close(t.Context(), ended(r)); err != nil {
		t.Fatal(err)
	}
	return r
}

func unchanged(*audit.Record) {}

// beginRun takes the lease for the holder "run".
func beginRun(t *testing.T, s retention.Store) {
	t.Helper()
	if begun, err := s.Begin(t.Context(), "run", time.Minute, 0); err != nil || !begun {
		t.Fatal(begun, err)
	}
}

func mustRemove(t *testing.T, s retention.Store, q retention.Query, ids ...string) []string {
	t.Helper()
	judged, err := s.Remove(t.Context(), q, ids, "run", time.Minute)
	if err != nil || len(judged.Altered) > 0 {
		t.Fatalf("%+v, %v", judged, err)
	}
	return judged.Due
}

// retentionRemoves: a removed record leaves a tombstone, its entries, and artifacts to be removed.
func retentionRemoves(t *testing.T, f Fixture) {
	s, l := f.Retention(), translog.Log{Store: f.TransparencyLog()}
	file, key := logKey(t)
	old, other := closedExec(t, f, func(r *audit.Record) { r.IdempotencyKey = "k" }), closedExec(t, f, unchanged)
	logAll(t, sequencer(t, l.Store, "n1", file))
	beginRun(t, s)
	if removed := mustRemove(t, s, expired(retention.Artifacts), old.ExecID, "none"); !slices.Equal(removed, []string{old.ExecID}) {
		t.Errorf("artifacts of %v were removed", removed)
	}
	if removed := mustRemove(t, s, expired(retention.Artifacts), old.ExecID); len(removed) != 0 {
		t.Errorf("artifacts of %v were removed again", removed)
	}
	if _, err := l.Prove(t.Context(), mustGet(t, f.Audit(), old.ExecID)); err != nil {
		t.Errorf("the proof of an exec without artifacts: %v", err)
	}
	if removed := mustRemove(t, s, expired(retention.Records), old.ExecID); !slices.Equal(removed, []string{old.ExecID}) {
		t.Errorf("records of %v were removed", removed)
	}
	if _, err := f.Audit().Get(t.Context(), old.ExecID); !fault.Is(err, fault.UnknownExec) {
		t.Errorf("Get: %v", err)
	}
	if events := mustEvents(t, f.Audit(), old.ExecID); len(events) != 0 {
		t.Errorf("events: %+v", events)
	}
	for statement, want := range map[string]string{
		"SELECT count(*) FROM audit_log_entries WHERE source = 'exec'":                                                                   "6",
		"SELECT count(*) FROM audit_log_entries WHERE source = 'exec' AND salt IS NULL":                                                  "3",
		"SELECT count(*) FROM audit_tombstone_events":                                                                                    "3",
		"SELECT count(DISTINCT exec_id) FROM audit_tombstone_events":                                                                     "1",
		"SELECT count(*) FROM audit_log_entries AS l JOIN audit_tombstone_events AS t ON t.event_seq = l.event_seq WHERE l.salt IS NULL": "3",
	} {
		if got, err := f.SQL(statement); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", statement, got, err, want)
		}
	}
	if entries := verifyLog(t, l.Store, key); len(entries) != 6 {
		t.Errorf("the log has %d entries", len(entries))
	}
	tombs, err := s.Tombstones(t.Context(), []string{old.ExecID, other.ExecID, "none"})
	if err != nil || len(tombs) != 2 {
		t.Fatalf("%+v, %v", tombs, err)
	}
	for i, want := range []retention.Tombstone{{Part: retention.Artifacts}, {Part: retention.Records, Events: 3}} {
		got := tombs[i]
		if time.Since(got.RemovedAt).Abs() > time.Hour {
			t.Errorf("removed at %v", got.RemovedAt)
		}
		got.RemovedAt = time.Time{}
		want.ExecID, want.ProjectID, want.RequestedBy, want.Rule, want.Days = old.ExecID, "demo", "tok", "audit.test_days", 7
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	queued, err := s.Queued(t.Context(), retention.Queued{}, 10)
	if err != nil || len(queued) != 1 || queued[0].ExecID != old.ExecID || queued[0].ProjectID != "demo" {
		t.Errorf("queued: %+v, %v", queued, err)
	}
	if next, err := s.Queued(t.Context(), queued[0], 10); err != nil || len(next) != 0 {
		t.Errorf("queued behind the last one: %+v, %v", next, err)
	}
	if err := s.Dequeue(t.Context(), []string{old.ExecID}); err != nil {
		t.Error(err)
	}
	if state, err := s.State(t.Context()); err != nil || state.Queued != 0 || !state.Running ||
		state.Done != (retention.Done{Records: 1, Artifacts: 1}) {
		t.Errorf("%+v, %v", state, err)
	}
	// The key is free again, and the exec's neighbor is untouched.
	mustOpen(t, f.Audit(), in(record(), func(r *audit.Record) { r.IdempotencyKey = "k" }))
	if _, err := l.Prove(t.Context(), mustGet(t, f.Audit(), other.ExecID)); err != nil {
		t.Errorf("the proof of the other exec: %v", err)
	}
}

// retentionKeeps: what no rule may remove.
func retentionKeeps(t *testing.T, f Fixture) {
	s := f.Retention()
	file, _ := logKey(t)
	want := map[string]retention.Verdict{}
	add := func(v retention.Verdict, change func(*audit.Record)) {
		want[closedExec(t, f, change).ExecID] = v
	}
	add(retention.Due, unchanged)
	add(retention.Due, func(r *audit.Record) { r.ArtifactsPath = "" })
	for _, kind := range retention.HoldKinds {
		value := "kept\u202e"
		held := closedExec(t, f, func(r *audit.Record) {
			switch kind {
			case retention.HoldProject:
				r.ProjectID = value
			case retention.HoldUser:
				r.UserID = value
			case retention.HoldTask:
				r.TaskID = value
			case retention.HoldExec:
				value = r.ExecID
			}
		})
		want[held.ExecID] = retention.Held
		hold, err := s.AddHold(t.Context(), retention.Hold{ID: newID(), Kind: kind, Value: value, Reason: "a trial", AddedBy: "tok"})
		if err != nil {
			t.Fatal(err)
		}
		on, err := s.HoldsOn(t.Context(), retention.HoldSubject{
			ProjectID: held.ProjectID, UserID: held.UserID, TaskID: held.TaskID,
			ExecID: held.ExecID,
		}, 2)
		if err != nil || len(on) != 1 || on[0] != hold {
			t.Errorf("holds on an exec that a hold by %s names: %+v, %v", kind, on, err)
		}
		if n, err := s.Covered(t.Context(), []retention.Hold{hold, {Kind: kind, Value: "none"}}, 5); err != nil ||
			!slices.Equal(n, []int{1, 0}) {
			t.Errorf("a hold by %s covers %d, %v", kind, n, err)
		}
	}
	add(retention.Young, func(r *audit.Record) { r.CreatedAt = tomorrow.Add(-time.Second) })
	open := record()
	mustOpen(t, f.Audit(), open)
	want[open.ExecID] = retention.Open
	waiting := in(record(), func(r *audit.Record) { r.Status, r.StartedAt = audit.Queued, time.Time{} })
	mustOpen(t, f.Audit(), waiting)
	want[waiting.ExecID] = retention.Open
	lost := in(record(), func(r *audit.Record) { r.NodeID = "gone" })
	mustOpen(t, f.Audit(), lost)
	if _, err := f.Audit().Close(t.Context(), in(ended(lost), func(r *audit.Record) { r.Status = audit.Lost })); err != nil {
		t.Fatal(err)
	}
	want[lost.ExecID] = retention.Unsettled
	logAll(t, sequencer(t, f.TransparencyLog(), "n1", file))
	add(retention.Unlogged, unchanged)

	beginRun(t, s)
	var ids []string
	for id := range want {
		ids = append(ids, id)
	}
	for _, size := range []int{1, 3, 100} {
		got := map[string]retention.Verdict{}
		for after := (retention.Cursor{}); ; {
			q := expired(retention.Records)
			q.Sizes = size == 3
			page, err := s.Scan(t.Context(), q, after, size)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range page {
				got[found.ExecID] = found.Verdict
				if q.Sizes != (found.Bytes > 0) {
					t.Errorf("%s: %d bytes", found.ExecID, found.Bytes)
				}
			}
			if len(page) < size {
				break
			}
			after = page[len(page)-1].Cursor
		}
		for id, v := range want {
			if got[id] != v {
				t.Errorf("%s: %q, want %q", id, got[id], v)
			}
		}
	}
	for _, found := range []retention.Part{retention.Artifacts, retention.Records} {
		for _, id := range mustRemove(t, s, expired(found), ids...) {
			if v := want[id]; v != retention.Due {
				t.Errorf("%s of an exec that is %s", found, v)
			}
		}
	}
	for id, v := range want {
		if _, err := f.Audit().Get(t.Context(), id); fault.Is(err, fault.UnknownExec) != (v == retention.Due) {
			t.Errorf("an exec that is %s: %v", v, err)
		}
	}
}

// retentionTriggers: nothing goes without a tombstone, and tombstones stay.
func retentionTriggers(t *testing.T, f Fixture) {
	s := f.Retention()
	file, _ := logKey(t)
	removed, kept := closedExec(t, f, unchanged), closedExec(t, f, unchanged)
	logAll(t, sequencer(t, f.TransparencyLog(), "n1", file))
	beginRun(t, s)
	mustRemove(t, s, expired(retention.Records), removed.ExecID)
	hold, err := s.AddHold(t.Context(), retention.Hold{ID: newID(), Kind: retention.HoldExec, Value: kept.ExecID, Reason: "a trial"})
	if err != nil {
		t.Fatal(err)
	}
	of := " WHERE exec_id = '" + kept.ExecID + "'"
	statements := []string{
		"DELETE FROM sandbox_execs" + of, "DELETE FROM sandbox_exec_events" + of, "DELETE FROM sandbox_exec_events",
		"DELETE FROM sandbox_execs",
		"UPDATE audit_log_entries SET salt = NULL", "UPDATE audit_tombstones SET rule = 'x'", "DELETE FROM audit_tombstones",
		"DELETE FROM audit_tombstone_events",
		"UPDATE audit_tombstone_events SET exec_id = 'x'", "DELETE FROM audit_holds", "UPDATE audit_holds SET value = 'x'",
		"UPDATE audit_holds SET removed_by = 'x'",
	}
	if f.Kind() == "postgres" {
		statements = append(statements, "TRUNCATE audit_tombstones", "TRUNCATE audit_tombstone_events", "TRUNCATE audit_holds",
			"TRUNCATE sandbox_execs")
	} else {
		statements = append(statements, "INSERT OR REPLACE INTO audit_tombstones SELECT * FROM audit_tombstones",
			"INSERT OR REPLACE INTO audit_holds SELECT * FROM audit_holds",
			"INSERT OR REPLACE INTO audit_tombstone_events SELECT * FROM audit_tombstone_events")
	}
	for _, statement := range statements {
		if _, err := f.SQL(statement); err == nil {
			t.Errorf("%s was not refused", statement)
		}
	}
	for range 2 {
		again, err := s.RemoveHold(t.Context(), hold.ID, "tok")
		if err == nil {
			hold = again
		}
		if hold.RemovedBy != "tok" || hold.RemovedAt.IsZero() || err != nil && !fault.Is(err, fault.UnknownHold) {
			t.Errorf("%+v, %v", again, err)
		}
	}
	events, err := f.AdminEvents().List(t.Context(), admin.Filter{Subject: hold.ID}, nil, 10)
	if err != nil || len(events) != 2 || events[0].Kind != admin.HoldRemoved || events[1].Kind != admin.HoldAdded ||
		!strings.Contains(events[1].Data, "a trial") {
		t.Errorf("%+v, %v", events, err)
	}
	if _, err := f.SQL("UPDATE audit_holds SET removed_at = NULL"); err == nil {
		t.Error("a hold that was removed can come back")
	}
}

// retentionLease: one run at a time, and no sooner than asked.
func retentionLease(t *testing.T, f Fixture) {
	s := f.Retention()
	r := closedExec(t, f, unchanged)
	file, _ := logKey(t)
	logAll(t, sequencer(t, f.TransparencyLog(), "n1", file))
	beginRun(t, s)
	if begun, err := s.Begin(t.Context(), "other", time.Minute, 0); begun || err != nil {
		t.Errorf("beside a run: %v, %v", begun, err)
	}
	if _, err := s.Remove(t.Context(), expired(retention.Records), []string{r.ExecID}, "other", time.Minute); !errors.Is(err,
		retention.ErrLeaseLost) {
		t.Errorf("removal without the lease: %v", err)
	}
	if err := s.End(t.Context(), "other", retention.Done{Projects: 9, Held: 9}); err != nil {
		t.Error(err)
	}
	if err := s.End(t.Context(), "run", retention.Done{Held: 2, Projects: 3, Altered: 1}); err != nil {
		t.Error(err)
	}
	state, err := s.State(t.Context())
	if err != nil || state.Running || state.Done != (retention.Done{Held: 2, Projects: 3, Altered: 1}) || state.EndedAt.IsZero() ||
		state.BeganAt.IsZero() ||
		state.NewestAt.IsZero() || time.Since(state.Now).Abs() > time.Hour {
		t.Errorf("%+v, %v", state, err)
	}
	if _, err := s.Remove(t.Context(), expired(retention.Records), []string{r.ExecID}, "run", time.Minute); !errors.Is(err,
		retention.ErrLeaseLost) {
		t.Errorf("removal after the end: %v", err)
	}
	if begun, err := s.Begin(t.Context(), "other", time.Minute, time.Hour); begun || err != nil {
		t.Errorf("too soon: %v, %v", begun, err)
	}
	if begun, err := s.Begin(t.Context(), "other", -time.Minute, 0); !begun || err != nil {
		t.Errorf("after a run: %v, %v", begun, err)
	}
	beginRun(t, s) // the lease of the other one has lapsed
	if _, err := s.Remove(t.Context(), expired(retention.Records), []string{r.ExecID}, "other", time.Minute); !errors.Is(err,
		retention.ErrLeaseLost) {
		t.Errorf("removal after another run has begun: %v", err)
	}
	mustGet(t, f.Audit(), r.ExecID)
	mustRemove(t, s, expired(retention.Artifacts), r.ExecID)
	for range 2 { // killed, and then it removes nothing
		beginRun(t, s)
	}
	mustRemove(t, s, expired(retention.Records), r.ExecID)
	if err := s.End(t.Context(), "run", retention.Done{}); err != nil {
		t.Error(err)
	}
	events, err := f.AdminEvents().List(t.Context(), admin.Filter{Kind: admin.RetentionRun}, nil, 10)
	if err != nil || len(events) != 3 || events[0].Subject != "ended" || !strings.Contains(events[0].Data, `"records":1`) ||
		events[1].Subject != "killed" ||
		!strings.Contains(events[1].Data, `"artifacts":1`) || !strings.Contains(events[2].Data, `"projects":3`) {
		t.Errorf("%+v, %v", events, err)
	}
}

// retentionClock: a time that is not plausible is not recorded.
func retentionClock(t *testing.T, f Fixture) {
	s := f.Retention()
	shift := func(days int) {
		by := fmt.Sprintf("%d * 86400000000", days)
		if f.Kind() == "postgres" {
			by = fmt.Sprintf("%d * interval '1 day'", days)
		}
		f.mustSQL(t, "UPDATE audit_retention SET clock_at = clock_at + "+by)
	}
	behind := func() time.Duration {
		t.Helper()
		state, err := s.State(t.Context())
		if err != nil || state.ClockAt.IsZero() {
			t.Fatalf("%+v, %v", state, err)
		}
		return state.Now.Sub(state.ClockAt).Round(24 * time.Hour)
	}
	tick := func(accept bool) {
		t.Helper()
		if err := s.Tick(t.Context(), 7*24*time.Hour, accept); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		days   int
		accept bool
		want   time.Duration
	}{{0, false, 0}, {-6, false, 0}, {-8, false, 8 * 24 * time.Hour}, {0, true, 0}, {2, false, -2 * 24 * time.Hour}, {0, true, 0}} {
		shift(c.days)
		tick(c.accept)
		if got := behind(); got != c.want {
			t.Errorf("%+v: behind by %v", c, got)
		}
	}
}

// retentionHoldRace: once a hold was added, no exec that it names is removed.
func retentionHoldRace(t *testing.T, f Fixture) {
	s := f.Retention()
	file, _ := logKey(t)
	var ids []string
	for i := range 60 {
		ids = append(ids, closedExec(t, f, func(r *audit.Record) { r.TaskID = fmt.Sprint("task", i%6) }).ExecID)
	}
	logAll(t, sequencer(t, f.TransparencyLog(), "n1", file))
	beginRun(t, s)
	var both sync.WaitGroup
	both.Go(func() {
		for batch := range slices.Chunk(ids, 3) {
			if _, err := s.Remove(t.Context(), expired(retention.Records), batch, "run", time.Minute); err != nil {
				t.Error(err)
			}
		}
	})
	both.Go(func() {
		for i := range 6 {
			hold := retention.Hold{ID: newID(), Kind: retention.HoldTask, Value: fmt.Sprint("task", i), Reason: "a trial"}
			if _, err := s.AddHold(t.Context(), hold); err != nil {
				t.Error(err)
				return
			}
			before := count(t, f, hold.Value)
			if after := count(t, f, hold.Value); after != before {
				t.Errorf("%s had %s execs when the hold was added, and has %s now", hold.Value, before, after)
			}
		}
	})
	both.Wait()
	holds, err := s.Holds(t.Context(), retention.HoldCursor{}, 10)
	if err != nil || len(holds) != 6 || holds[0].Value != "task0" || holds[0].AddedAt.IsZero() || !holds[0].RemovedAt.IsZero() {
		t.Errorf("%+v, %v", holds, err)
	}
}

func count(t *testing.T, f Fixture, task string) string {
	t.Helper()
	n, err := f.SQL("SELECT count(*) FROM sandbox_execs WHERE task_id = '" + task + "'")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// retentionProjects: a project's files are kept for its execs and holds.
func retentionProjects(t *testing.T, f Fixture) {
	s := f.Retention()
	r := closedExec(t, f, func(r *audit.Record) { r.ProjectID, r.UserID, r.TaskID = "a1~ann", "ann", "t7" })
	due := func(user string, before time.Time) bool {
		t.Helper()
		is, err := s.ProjectDue(t.Context(), "a1~ann", user, before)
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	if begun, err := s.Begin(t.Context(), "n1", time.Minute, 0); err != nil || !begun {
		t.Fatal(begun, err)
	}
	removed := func() bool {
		t.Helper()
		w := retention.Workspace{ProjectID: "a1~ann", UserID: "ann", Before: base.Add(time.Hour), Hours: 48, Bytes: 7}
		is, err := s.RemoveWorkspace(t.Context(), w, "n1", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	mustOpen(t, f.Audit(), in(record(), func(r *audit.Record) { // by another user's token
		r.ProjectID, r.Status, r.CreatedAt, r.EndedAt = "a1~ann", audit.Rejected, base.Add(2*time.Hour), base.Add(2*time.Hour)
	}))
	if late := base.Add(time.Hour); due("ann", base) || !due("ann", late) || !due("", late) {
		t.Error("the exec's age does not matter")
	}
	for kind, value := range map[retention.HoldKind]string{
		retention.HoldProject: "a1~ann", retention.HoldUser: "ann", retention.HoldTask: "t7", retention.HoldExec: r.ExecID,
	} {
		h, err := s.AddHold(t.Context(), retention.Hold{ID: newID(), Kind: kind, Value: value, Reason: "a trial"})
		if err != nil {
			t.Fatal(err)
		}
		if due("ann", base.Add(time.Hour)) || removed() {
			t.Errorf("in spite of a hold by %s", kind)
		}
		if _, err := s.RemoveHold(t.Context(), h.ID, "tok"); err != nil {
			t.Fatal(err)
		}
	}
	if !removed() {
		t.Error("its removal is not on record")
	}
	events, err := f.AdminEvents().List(t.Context(), admin.Filter{Kind: admin.WorkspaceRemoved}, nil, 10)
	if err != nil || len(events) != 1 || events[0].Subject != "a1~ann" ||
		events[0].Data != `{"bytes":7,"hours":48,"rule":"sandbox.workspace_ttl_hours"}` {
		t.Errorf("on record are %+v, %v", events, err)
	}
	if _, err := s.RemoveWorkspace(t.Context(), retention.Workspace{}, "n2", time.Minute); !errors.Is(err, retention.ErrLeaseLost) {
		t.Errorf("without the lease: %v", err)
	}
	byRequest := func() bool {
		t.Helper()
		is, err := s.RemoveProject(t.Context(), "a1~ann", "ann", 7)
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	held, err := s.AddHold(t.Context(), retention.Hold{ID: newID(), Kind: retention.HoldUser, Value: "ann", Reason: "a trial"})
	if err != nil || byRequest() {
		t.Error("by request, in spite of a hold", err)
	}
	if _, err := s.RemoveHold(t.Context(), held.ID, "tok"); err != nil || !byRequest() {
		t.Error("not by request", err)
	}
	events, err = f.AdminEvents().List(t.Context(), admin.Filter{Kind: admin.ProjectRemoved}, nil, 10)
	if err != nil || len(events) != 1 || events[0].Subject != "a1~ann" || events[0].Data != `{"bytes":7}` {
		t.Errorf("on record are %+v, %v", events, err)
	}
	mustOpen(t, f.Audit(), in(record(), func(r *audit.Record) { r.ProjectID = "a1~ann" }))
	if byRequest() {
		t.Error("by request, while an exec runs")
	}
	if due("ann", base.Add(time.Hour)) || removed() {
		t.Error("while an exec runs")
	}
	for _, bad := range []retention.Hold{
		{Kind: "agent", Value: "x\n"},
		{Kind: retention.HoldExec, Value: newID(), Reason: "a trial"},
		{Kind: retention.HoldUser, Value: " ann", Reason: "a trial"},
	} {
		bad.ID = newID()
		if _, err := s.AddHold(t.Context(), bad); !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	mustOpen(t, f.Audit(), in(record(), func(r *audit.Record) { r.UserID = " ann" }))
	if _, err := s.AddHold(t.Context(), retention.Hold{
		ID: newID(), Kind: retention.HoldUser, Value: " ann",
		Reason: "a trial",
	}); err != nil {
		t.Errorf("a user whose id begins with a space: %v", err)
	}
}
