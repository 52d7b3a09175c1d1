package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/audit"
	"secbox/audit/retention"
)

// literal returns a time as SQL.
func (f Fixture) literal(at time.Time) string {
	if f.Kind() == "postgres" {
		return "CAST('" + at.UTC().Format(time.RFC3339Nano) + "' AS timestamptz)"
	}
	return fmt.Sprint(at.UnixMicro())
}

// retentionAltered: neither a row nor an event can be changed so that retention removes the exec.
func retentionAltered(t *testing.T, f Fixture) {
	s := f.Retention()
	file, _ := logKey(t)
	young := func(r *audit.Record) { r.CreatedAt = tomorrow.Add(time.Hour) }
	long := f.literal(base.AddDate(-1, 0, 0))
	rowsOf := "UPDATE sandbox_execs SET "
	backdate := rowsOf + "created_at = " + long + ", started_at = " + long + ", ended_at = " + long
	if f.Kind() == "postgres" {
		for _, table := range []string{"sandbox_exec_events", "audit_log_entries", "sandbox_execs"} {
			f.mustSQL(t, "ALTER TABLE "+table+" DISABLE TRIGGER USER")
		}
	} else {
		for _, trigger := range []string{
			"sandbox_exec_events_no_update", "sandbox_exec_events_no_delete", "audit_log_entries_no_update",
			"audit_log_entries_keep_salt",
		} {
			f.mustSQL(t, "DROP TRIGGER "+trigger)
		}
	}
	type attack struct {
		change    func(*audit.Record)
		statement string // without its WHERE
		why       string // empty: the exec is due or young, but not altered
	}
	attacks := map[string]attack{}
	var ids []string
	for _, a := range []attack{
		{young, backdate, "created_at"},
		{young, backdate + ", task_id = 'another'", "its row"},
		{unchanged, rowsOf + "project_id = 'not-held'", "project_id"},
		{unchanged, rowsOf + "exit_code = 0", "exit_code"},
		{unchanged, rowsOf + "inputs = '[1]'", "inputs"},
		{unchanged, "UPDATE sandbox_exec_events SET at = " + long, "not the one in the transparency log"},
		{unchanged, "UPDATE sandbox_exec_events SET kind = 'started'", "not the one in the transparency log"},
		{unchanged, "UPDATE sandbox_exec_events SET data = replace(data, 'demo', 'omed')", "not the one in the transparency log"},
		{unchanged, "UPDATE audit_log_entries SET salt = NULL", "not the one in the transparency log"},
		{unchanged, "DELETE FROM sandbox_exec_events", "no events"},
		{unchanged, "", ""},
	} {
		id := closedExec(t, f, a.change).ExecID
		attacks[id], ids = a, append(ids, id)
	}
	logAll(t, sequencer(t, f.TransparencyLog(), "n1", file))
	for id, a := range attacks {
		where := " WHERE exec_id = '" + id + "'"
		if strings.Contains(a.statement, "audit_log_entries") {
			where = " WHERE source = 'exec' AND event_seq IN (SELECT seq FROM sandbox_exec_events WHERE exec_id = '" + id + "')"
		}
		if a.statement != "" {
			f.mustSQL(t, a.statement+where)
		}
	}
	beginRun(t, s)
	for _, part := range []retention.Part{retention.Artifacts, retention.Records} {
		judged, err := s.Judge(t.Context(), expired(part), ids)
		if err != nil {
			t.Fatal(err)
		}
		again, err := s.Remove(t.Context(), expired(part), ids, "run", time.Minute)
		if err != nil || !slices.Equal(judged.Due, again.Due) || len(judged.Altered) != len(again.Altered) {
			t.Errorf("judged %+v, removed %+v, %v", judged, again, err)
		}
		if len(again.Due) != 1 || attacks[again.Due[0]].why != "" || len(again.Altered) != len(ids)-1 {
			t.Errorf("%s: %+v", part, again)
		}
		for _, x := range again.Altered {
			if a := attacks[x.ExecID]; a.why == "" || !strings.Contains(x.Why, a.why) {
				t.Errorf("%s: %q, want %q", a.statement, x.Why, a.why)
			}
		}
	}
	// An old row with young events: an exec of a node whose clock was behind.
	behind := closedExec(t, f, unchanged).ExecID
	logAll(t, sequencer(t, f.TransparencyLog(), "n1", file))
	q := expired(retention.Records)
	q.Before = base.Add(time.Hour)
	if judged, err := s.Remove(t.Context(), q, []string{behind}, "run", time.Minute); err != nil ||
		len(judged.Due)+len(judged.Altered) != 0 {
		t.Errorf("%+v, %v", judged, err)
	}
}
