package storetest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/store/storetest/planprobe"
)

// planRows is how many rows the lists are planned for: in every run, enough for PostgreSQL's
// planner to use the indexes, and more with SECBOX_SOAK=1 (`make soak`).
func planRows() int {
	if os.Getenv("SECBOX_SOAK") == "1" {
		return 50_000
	}
	return 8_000
}

func plans(t *testing.T, f Fixture) {
	planRows := planRows()
	if err := planprobe.Fill(t.Context(), f.Database, planRows); err != nil {
		t.Fatal(err)
	}
	for _, task := range []int{0, planprobe.Tasks(planRows) / 2, planprobe.Tasks(planRows) - 1} {
		if _, err := planprobe.ListByTask(t.Context(), f.Database, planprobe.TaskID(task)); err != nil {
			t.Error(err)
		}
	}
	if f.Kind() == "postgres" { // without statistics, as right after a restore
		if _, err := f.SQL("DELETE FROM pg_statistic WHERE starelid = 'sandbox_execs'::regclass"); err != nil {
			t.Fatal(err)
		}
		if _, err := planprobe.ListByTask(t.Context(), f.Database, planprobe.TaskID(1)); err != nil {
			t.Error("without statistics: ", err)
		}
		if _, err := f.SQL("ANALYZE sandbox_execs"); err != nil {
			t.Fatal(err)
		}
	}

	middle := planprobe.Exec(planRows/2, planRows)
	if f.Kind() == "postgres" { // as autovacuum does behind inserts
		if _, err := f.SQL("VACUUM sandbox_execs"); err != nil {
			t.Fatal(err)
		}
	}
	for _, since := range []time.Time{middle.CreatedAt, {}} {
		if _, err := planprobe.Outlines(t.Context(), f.Database, since, middle.CreatedAt.Add(time.Hour), 10_000); err != nil {
			t.Error(err)
		}
	}
	for _, token := range []string{"", middle.RequestedBy, "none"} {
		if err := planprobe.Activity(t.Context(), f.Database, middle.CreatedAt, middle.CreatedAt.Add(time.Hour), token); err != nil {
			t.Errorf("token %q: %v", token, err)
		}
	}
	if _, err := f.SQL("INSERT INTO sandbox_exec_events (exec_id, kind, at, node_id, data) SELECT exec_id, 'created', created_at, " +
		"node_id, '{}' FROM sandbox_execs"); err != nil {
		t.Fatal(err)
	}
	if err := planprobe.Changes(t.Context(), f.Database, int64(planRows/2), 256); err != nil {
		t.Error(err)
	}
	for _, requestedBy := range []string{"", middle.RequestedBy} {
		if err := planprobe.Task(t.Context(), f.Database, middle.TaskID, requestedBy); err != nil {
			t.Error(err)
		}
	}
	at := &audit.Cursor{CreatedAt: middle.CreatedAt, ExecID: middle.ExecID}
	for name, c := range map[string]struct {
		filter audit.Filter
		index  string
	}{
		"nothing":           {audit.Filter{}, "sandbox_execs_newest"},
		"execs":             {audit.Filter{Kind: audit.KindExec}, "sandbox_execs_newest"},
		"changes":           {audit.Filter{Kind: audit.KindChange}, "sandbox_execs_changes"},
		"a project's execs": {audit.Filter{ProjectID: middle.ProjectID, Kind: audit.KindExec}, "sandbox_execs_project"},
		"a user's changes":  {audit.Filter{UserID: middle.UserID, Kind: audit.KindChange}, ""},
		"failed execs":      {audit.Filter{Kind: audit.KindExec, ExitCodeNot: new(0)}, "sandbox_execs_exit"},
		"lost changes":      {audit.Filter{Kind: audit.KindChange, Statuses: []audit.Status{audit.Lost, audit.Canceled}}, ""},
		"task_id":           {audit.Filter{TaskID: middle.TaskID}, "sandbox_execs_task"},
		"project_id":        {audit.Filter{ProjectID: middle.ProjectID}, "sandbox_execs_project"},
		"conversation_id":   {audit.Filter{ConversationID: middle.ConversationID}, "sandbox_execs_conversation"},
		"skill_id":          {audit.Filter{SkillID: middle.SkillID}, "sandbox_execs_skill"},
		"replay_of":         {audit.Filter{ReplayOf: "replayed-3"}, "sandbox_execs_replay_of"},
		"trace_id":          {audit.Filter{TraceID: planprobe.TraceID(3)}, "sandbox_execs_trace"},
		"session_id":        {audit.Filter{SessionID: planprobe.SessionID(3)}, "sandbox_execs_session"},
		"sessions":          {audit.Filter{Sessions: true}, "sandbox_execs_sessions"},
		"a token's sessions": {
			audit.Filter{Sessions: true, RequestedBy: middle.RequestedBy, Kind: audit.KindExec}, "sandbox_execs_sessions",
		},
		"inputs_kept":      {audit.Filter{InputsKept: true}, "sandbox_execs_inputs_kept"},
		"skill_digest":     {audit.Filter{SkillDigest: middle.SkillDigest}, "sandbox_execs_skill_digest"},
		"user_id":          {audit.Filter{UserID: middle.UserID}, "sandbox_execs_user"},
		"a common status":  {audit.Filter{Statuses: []audit.Status{audit.Succeeded}}, ""},
		"a rare status":    {audit.Filter{Statuses: []audit.Status{audit.Timeout}}, "sandbox_execs_status"},
		"several statuses": {audit.Filter{Statuses: []audit.Status{audit.Timeout, audit.Lost, audit.Failed}}, "sandbox_execs_status"},
		"a task's statuses": {
			audit.Filter{TaskID: middle.TaskID, Statuses: []audit.Status{audit.Timeout, audit.Failed}},
			"sandbox_execs_task",
		},
		"agent_id":         {audit.Filter{AgentID: middle.AgentID}, "sandbox_execs_agent"},
		"error_reason":     {audit.Filter{ErrorReason: audit.ReasonTimeout}, "sandbox_execs_reason"},
		"failed commands":  {audit.Filter{ExitCodeNot: new(0)}, "sandbox_execs_exit"},
		"a summary":        {audit.Filter{TaskID: middle.TaskID, Summary: true}, "sandbox_execs_task"},
		"no such status":   {audit.Filter{Statuses: []audit.Status{audit.Lost}}, "sandbox_execs_status"},
		"no such task":     {audit.Filter{TaskID: "none"}, "sandbox_execs_task"},
		"requested_by":     {audit.Filter{RequestedBy: middle.RequestedBy}, ""},
		"a machine":        {audit.Filter{Runner: "laptop"}, "sandbox_execs_runner"},
		"elsewhere":        {audit.Filter{Backend: audit.BackendRemote}, "sandbox_execs_backend"},
		"in docker":        {audit.Filter{Backend: audit.BackendDocker}, ""},
		"a machine's user": {audit.Filter{Runner: "laptop", UserID: middle.UserID}, ""},
		"since and until":  {audit.Filter{Since: middle.CreatedAt, Until: middle.CreatedAt.Add(time.Hour)}, "sandbox_execs_newest"},
		"task and status":  {audit.Filter{TaskID: middle.TaskID, Statuses: []audit.Status{audit.Succeeded}}, "sandbox_execs_task"},
		"a worker's task":  {audit.Filter{TaskID: middle.TaskID, RequestedBy: middle.RequestedBy}, "sandbox_execs_task"},
		"a scoped project": {audit.Filter{ProjectID: middle.ProjectID, Projects: []string{middle.ProjectID}}, "sandbox_execs_project"},
	} {
		for page, after := range map[string]*audit.Cursor{"first page": nil, "a page in the middle": at, "oldest first": at} {
			c.filter.OldestFirst = page == "oldest first"
			p, err := planprobe.List(t.Context(), f.Database, c.filter, after, 50)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Good(0); err != nil {
				t.Errorf("%s, %s: %v", name, page, err)
			} else if c.index != "" && p.Indexes[0] != c.index {
				t.Errorf("%s, %s: walks %s, not %s:\n%s", name, page, p.Indexes[0], c.index, p.Text)
			}
		}
	}

	// A list is read by the index of the rarest of its conditions, whichever this is.
	for name, c := range map[string]struct {
		filter audit.Filter
		index  string
	}{
		"a token's rare status": {
			audit.Filter{RequestedBy: middle.RequestedBy, Statuses: []audit.Status{audit.Timeout}},
			"sandbox_execs_status",
		},
		"a token's rare statuses": {
			audit.Filter{RequestedBy: middle.RequestedBy, Statuses: []audit.Status{audit.Timeout, audit.Lost}},
			"sandbox_execs_status",
		},
		"a token's common status": {
			audit.Filter{RequestedBy: middle.RequestedBy, Statuses: []audit.Status{audit.Succeeded}},
			"sandbox_execs_requested_by",
		},
		"a token's changes":      {audit.Filter{RequestedBy: middle.RequestedBy, Kind: audit.KindChange}, "sandbox_execs_changes"},
		"an agent's rare reason": {audit.Filter{AgentID: middle.AgentID, ErrorReason: audit.ReasonTimeout}, "sandbox_execs_reason"},
		"an unknown token's":     {audit.Filter{AgentID: middle.AgentID, RequestedBy: "none"}, "sandbox_execs_requested_by"},
	} {
		for _, c.filter.OldestFirst = range []bool{false, true} {
			grows(t, f, map[string]bool{}, fmt.Sprintf("%s, oldest first %v", name, c.filter.OldestFirst), c.filter, nil)
			if f.Kind() == "postgres" { // reads so small a table from end to end, if it expects many rows
				continue
			}
			p, err := planprobe.List(t.Context(), f.Database, c.filter, nil, 50)
			if err == nil {
				err = p.Good(0)
			}
			if err != nil || p.Indexes[0] != c.index {
				t.Errorf("%s, oldest first %v: %v\n%s", name, c.filter.OldestFirst, err, p.Text)
			}
		}
	}
}

// pairPlans: no list with one or two filters reads a whole table, or sorts.
func pairPlans(t *testing.T, f Fixture) {
	const rows = 1000
	if err := planprobe.Fill(t.Context(), f.Database, rows); err != nil {
		t.Fatal(err)
	}
	middle := planprobe.Exec(rows/2, rows)
	values := map[string][]string{
		"task_id": {middle.TaskID}, "project_id": {middle.ProjectID}, "conversation_id": {middle.ConversationID},
		"skill_id": {middle.SkillID}, "skill_digest": {middle.SkillDigest},
		"user_id": {middle.UserID}, "agent_id": {middle.AgentID}, "backend": {audit.BackendDocker, audit.BackendRemote},
		"runner": {"laptop"}, "replay_of": {"replayed-3"}, "requested_by": {middle.RequestedBy},
		"trace_id": {planprobe.TraceID(3)}, "session_id": {planprobe.SessionID(3)}, "error_reason": {"timeout"},
		"exit_code_ne": {"0", "1"}, "network": {"used", "denied"}, "status": {"failed", "timeout,lost"},
		"kind": {"change", "all"}, "view": {"summary"},
		"since": {middle.CreatedAt.Format(time.RFC3339)}, "until": {middle.CreatedAt.Format(time.RFC3339)},
	}
	var chosen [][2]string
	for _, p := range audit.FilterParams() {
		if values[p.Name] == nil {
			t.Errorf("the test has no value for the filter %s", p.Name)
		}
		for _, value := range values[p.Name] {
			chosen = append(chosen, [2]string{p.Name, value})
		}
	}
	at, seen := &audit.Cursor{CreatedAt: middle.CreatedAt, ExecID: middle.ExecID}, map[string]bool{}
	for i, first := range chosen {
		for _, second := range chosen[i:] {
			get := func(name string) string { return map[string]string{first[0]: first[1], second[0]: second[1]}[name] }
			var bad fault.Fields
			filter := audit.ParseFilter(get, middle.CreatedAt, &bad)
			if err := bad.Err(); err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprintf("%s, %s", first, second)
			grows(t, f, seen, name, filter, nil)
			filter.OldestFirst = true
			grows(t, f, seen, name+", oldest first", filter, at)
		}
	}
}

// grows fails for a list whose time grows with the database. It checks each text once.
func grows(t *testing.T, f Fixture, seen map[string]bool, name string, filter audit.Filter, after *audit.Cursor) {
	t.Helper()
	statements, err := planprobe.Watched(f.Database, func() error {
		_, _, err := f.Audit().List(t.Context(), filter, after, 50)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statements {
		if seen[s.Text] {
			continue
		}
		seen[s.Text] = true
		if g, err := planprobe.AtBest(t.Context(), f.Database, s); err != nil || g.Sorts || len(g.Whole) > 0 {
			t.Errorf("%s: %v, reads the whole of %v\n%s\n%s", name, err, g.Whole, s.Text, g.Text)
		}
	}
}
