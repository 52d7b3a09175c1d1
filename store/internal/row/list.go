package row

import (
	"slices"
	"strings"
	"time"

	"secbox/audit"
)

// ListQuery returns the statement of a list and its parameters: keyset paging in the order of the
// filter. The list is read by the index of lead, one of conditions(f), or of the newest if that is
// the zero value. The other conditions are hidden from the planner.
func (db Database) ListQuery(f audit.Filter, after *audit.Cursor, limit int, lead condition) (string, []any) {
	var where []string
	var args Params
	param := args.Add
	if lead.is != "" && len(lead.values) < 2 {
		where = append(where, lead.is)
		if len(lead.values) == 1 {
			param(lead.values[0])
		}
	}
	for _, eq := range equalities(f) {
		switch {
		case eq.scattered:
			where = append(where, eq.column+" = "+param(Text(eq.value)))
		case eq.column != lead.column:
			where = append(where, db.Hidden(eq.column)+" = "+param(Text(eq.value)))
		}
	}
	if len(f.Statuses) > 1 && lead.column != "status" {
		where = append(where, db.Hidden("status")+db.In(param(db.Set(statuses(f)))))
	}
	switch {
	case f.Kind == audit.KindChange && lead.column != "kind":
		where = append(where, db.Hidden("kind")+" = "+param(string(f.Kind)))
	case f.Kind != "" && f.Kind != audit.KindChange:
		where = append(where, "kind = "+param(string(f.Kind))) // no index has only these
	}
	if f.Sessions && lead.is != ofSessions {
		where = append(where, db.Hidden("session_id")+" = exec_id")
	}
	if f.InputsKept && lead.column != "inputs_kept" {
		where = append(where, db.Hidden("inputs_kept")+" = 'kept'")
	}
	switch f.Network {
	case audit.NetworkUsed:
		where = append(where, "net_connections > 0")
	case audit.NetworkDenied:
		where = append(where, "net_denied > 0")
	}
	if f.ExitCodeNot != nil {
		where = append(where, "+exit_code <> "+param(int64(*f.ExitCodeNot)))
	}
	for _, in := range []struct {
		column string
		values []string
	}{{"project_id", f.Projects}, {"agent_id", f.Agents}, {"user_id", f.Users}} {
		if in.values != nil {
			where = append(where, db.Hidden(in.column)+db.In(param(db.Set(Texts(in.values)))))
		}
	}
	if f.ExecIDs != nil {
		where = append(where, "exec_id"+db.In(param(db.Set(Texts(f.ExecIDs)))))
	}
	order, comes := " DESC", "<"
	if f.OldestFirst {
		order, comes = "", ">"
	}
	// A damaged created_at is in no list: no cursor can have it, so the page after it would be
	// another one. The cursor is a bound already.
	if until := f.Until; after == nil || f.OldestFirst || !until.IsZero() {
		if until.IsZero() {
			until = lastTime
		}
		where = append(where, "created_at < "+param(db.EncodeTime(roundUp(until))))
	}
	if after == nil || !f.OldestFirst || !f.Since.IsZero() {
		where = append(where, "created_at >= "+param(db.EncodeTime(roundUp(f.Since))))
	}
	if after != nil {
		// Rounded down, as the created_at of the last item was.
		at := inRange(after.CreatedAt.UTC().Truncate(time.Microsecond))
		where = append(where, "(created_at, exec_id) "+comes+" ("+param(db.EncodeTime(at))+", "+param(Text(after.ExecID))+")")
	}

	columns := askedColumns
	switch {
	case f.OnlyCommands:
		columns = onlyCommands
	case f.OnlyCallers:
		columns = onlyCallers
	case f.Summary:
		columns = summaryColumns
	case f.Commands:
		columns = commandColumns
	}
	one := "SELECT " + columns + " FROM sandbox_execs"
	page := " ORDER BY created_at" + order + ", exec_id" + order + " LIMIT " + param(int64(limit))
	if len(lead.values) > 1 { // each list comes in order from the index, and the database merges them
		lists := make([]string, len(lead.values))
		for i, value := range lead.values {
			lists[i] = one + " WHERE " + strings.Join(append([]string{lead.column + " = " + param(value)}, where...), " AND ")
			if !db.Leading { // tells a planner with statistics that no list is read to its end
				lists[i] = "(" + lists[i] + page + ")"
			}
		}
		return "SELECT * FROM (" + strings.Join(lists, " UNION ALL ") + ") AS merged" + page, args
	}
	if len(where) > 0 {
		one += " WHERE " + strings.Join(where, " AND ")
	}
	return one + page, args
}

// equality is a condition that a column has a value.
type equality struct {
	column, value string
	partial       string // the condition of a partial index, which the query must repeat literally
	scattered     bool   // no index has the column's values in the order of lists
}

// equalities returns the conditions of a filter, the rarest first by experience.
func equalities(f audit.Filter) []equality {
	status := ""
	if len(f.Statuses) == 1 {
		status = string(f.Statuses[0])
	}
	backend := equality{column: "backend", value: f.Backend, partial: "backend <> '" + audit.BackendDocker + "'"}
	if f.Backend == audit.BackendDocker { // nearly all are: the index of the newest is better
		backend.partial, backend.scattered = "", true
	}
	return slices.DeleteFunc([]equality{
		{column: "replay_of", value: f.ReplayOf, partial: "replay_of <> ''"},
		{column: "trace_id", value: f.TraceID, partial: "trace_id <> ''"},
		{column: "session_id", value: f.SessionID, partial: "session_id <> ''"},
		{column: "task_id", value: f.TaskID, partial: "task_id <> ''"},
		{column: "conversation_id", value: f.ConversationID, partial: "conversation_id <> ''"},
		{column: "project_id", value: f.ProjectID},
		{column: "user_id", value: f.UserID, partial: "user_id <> ''"},
		{column: "agent_id", value: f.AgentID, partial: "agent_id <> ''"},
		{column: "skill_digest", value: f.SkillDigest, partial: "skill_digest <> ''"},
		{column: "skill_id", value: f.SkillID, partial: "skill_id <> ''"},
		{column: "runner", value: f.Runner, partial: "runner <> ''"},
		{column: "error_reason", value: string(f.ErrorReason), partial: "error_reason <> ''"},
		{column: "requested_by", value: f.RequestedBy},
		{column: "status", value: status},
		backend,
	}, func(eq equality) bool { return eq.value == "" })
}

// OutlinesQuery returns the statement of Outlines and its parameters. The index of the newest
// covers all its columns.
func (db Database) OutlinesQuery(since, until time.Time, most int) (string, []any) {
	return "SELECT status, error_reason, requested_by, skill_id, backend, duration_ms FROM sandbox_execs" +
			" WHERE kind = 'exec' AND created_at >= $1 AND created_at < $2 ORDER BY created_at DESC, exec_id DESC LIMIT $3",
		[]any{db.EncodeTime(roundUp(since)), db.EncodeTime(roundUp(until)), int64(most)}
}

// roundUp returns the first microsecond that is not before t. Rows have whole microseconds, so it
// compares like t.
func roundUp(t time.Time) time.Time {
	down := t.UTC().Truncate(time.Microsecond)
	if down.Before(t) {
		down = down.Add(time.Microsecond)
	}
	return inRange(down)
}

// The range of times that both databases can compare.
var firstTime, lastTime = time.Time{}, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// inRange limits a caller's time to the years that both databases can compare.
func inRange(t time.Time) time.Time {
	switch {
	case t.Before(firstTime):
		return firstTime
	case t.After(lastTime):
		return lastTime
	}
	return t
}
