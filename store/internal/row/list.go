package row

import (
	"strings"
	"time"

	"secbox/audit"
)

// ListQuery returns the statement of a list and its parameters: keyset paging in the order of the filter.
func (db Database) ListQuery(f audit.Filter, after *audit.Cursor, limit int) (string, []any) {
	var where []string
	var args Params
	param := args.Add
	oneOf := func(column string, values []string) string {
		if db.Leading {
			column = "+" + column
		}
		return column + db.In(param(db.Set(values)))
	}

	order, comes := " DESC", "<"
	if f.OldestFirst {
		order, comes = "", ">"
	}

	const elsewhere = "backend <> 'docker'"
	backendIndex := elsewhere
	if f.Backend == "docker" { // nearly all are: the index of the newest is better
		backendIndex = ""
	}
	status := ""
	if len(f.Statuses) == 1 {
		status = string(f.Statuses[0])
	}
	leading := true
	for _, eq := range []struct {
		column, value string
		partial       string // the condition of a partial index, which the query must repeat literally
	}{
		{"replay_of", f.ReplayOf, "replay_of <> ''"},
		{"task_id", f.TaskID, "task_id <> ''"},
		{"conversation_id", f.ConversationID, "conversation_id <> ''"},
		{"project_id", f.ProjectID, ""},
		{"user_id", f.UserID, "user_id <> ''"},
		{"agent_id", f.AgentID, "agent_id <> ''"},
		{"skill_digest", f.SkillDigest, "skill_digest <> ''"},
		{"skill_id", f.SkillID, "skill_id <> ''"},
		{"runner", f.Runner, "runner <> ''"},
		{"error_reason", string(f.ErrorReason), "error_reason <> ''"},
		{"requested_by", f.RequestedBy, ""},
		{"status", status, ""},
		{"backend", f.Backend, backendIndex},
	} {
		if eq.value == "" {
			continue
		}
		column := eq.column
		if db.Leading && !leading {
			column = "+" + column
		}
		where = append(where, column+" = "+param(Text(eq.value)))
		if eq.partial != "" && (leading || !db.Leading) {
			where = append(where, eq.partial)
		}
		leading = false
	}
	var each []string // the parameters of the statuses, when their lists are merged
	if len(f.Statuses) > 1 {
		statuses := make([]string, len(f.Statuses))
		for i, s := range f.Statuses {
			statuses[i] = Text(string(s))
		}
		if leading {
			for _, s := range statuses {
				each = append(each, param(s))
			}
		} else {
			where = append(where, oneOf("status", statuses))
		}
	}
	switch {
	case f.Kind == "":
	case f.Kind == audit.KindChange && leading && len(each) == 0:
		where = append(where, "kind = 'change'") // the condition of an index, repeated literally
	default:
		where = append(where, "kind = "+param(string(f.Kind)))
	}
	if f.InputsKept {
		where = append(where, "inputs_kept = 'kept'") // the condition of an index, repeated literally
	}
	switch {
	case f.ExitCodeNot == nil:
	case *f.ExitCodeNot == 0:
		where = append(where, "exit_code <> 0") // the condition of an index, repeated literally
	default:
		where = append(where, "exit_code <> "+param(int64(*f.ExitCodeNot)))
	}
	for _, in := range []struct {
		column string
		values []string
	}{{"project_id", f.Projects}, {"agent_id", f.Agents}, {"user_id", f.Users}} {
		if in.values != nil {
			where = append(where, oneOf(in.column, Texts(in.values)))
		}
	}
	if f.ExecIDs != nil {
		where = append(where, "exec_id"+db.In(param(db.Set(Texts(f.ExecIDs)))))
	}
	// A damaged created_at is in no list: no cursor can have it, so the page after it would be another one. The cursor is a bound already.
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

	columns := ColumnList
	if f.Summary {
		columns = summaryColumns
	}
	one := "SELECT " + columns + " FROM sandbox_execs"
	page := " ORDER BY created_at" + order + ", exec_id" + order + " LIMIT " + param(int64(limit))
	if len(each) > 0 { // each list comes in order from the index of statuses, and the database merges them
		lists := make([]string, len(each))
		for i, status := range each {
			lists[i] = one + " WHERE " + strings.Join(append([]string{"status = " + status}, where...), " AND ")
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

// OutlinesQuery returns the statement of Outlines and its parameters. The index of the newest covers all its columns.
func (db Database) OutlinesQuery(since, until time.Time, most int) (string, []any) {
	return "SELECT status, error_reason, requested_by, skill_id, backend, duration_ms FROM sandbox_execs" +
			" WHERE kind = 'exec' AND created_at >= $1 AND created_at < $2 ORDER BY created_at DESC, exec_id DESC LIMIT $3",
		[]any{db.EncodeTime(roundUp(since)), db.EncodeTime(roundUp(until)), int64(most)}
}

// roundUp returns the first microsecond that is not before t. Rows have whole microseconds, so it compares like t.
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
