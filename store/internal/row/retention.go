package row

import (
	"bytes"
	"context"
	"time"

	"secbox/audit/admin"
	"secbox/audit/retention"
	"secbox/audit/translog"
	"secbox/fault"
)

// Retention implements retention.Store.
type Retention struct {
	Database
	// Tx runs fn in one durable transaction; the statements must be constant texts.
	Tx func(ctx context.Context, fn func(run Run) error) error
	// Lock is the end of a query that keeps the rows of e from changing until the transaction ends,
	// and leaves out locked ones.
	Lock string
}

// held is the condition that a hold names an exec; the arguments are the columns with what a hold
// can name.
func held(exec, project, user, task string) string {
	hold := func(kind, column string) string {
		return "EXISTS (SELECT 1 FROM audit_holds AS h WHERE h.removed_at IS NULL AND h.kind = '" + kind + "' AND h.value = " + column + ")"
	}
	return "(" + hold("exec", exec) + " OR " + hold("project", project) + " OR " + hold("user", user) + " OR " + hold("task", task) + ")"
}

var heldExec = held("e.exec_id", "e.project_id", "e.user_id", "e.task_id")

var (
	artifactsGone = "(e.artifacts_path = '' OR EXISTS (SELECT 1 FROM audit_tombstones AS g WHERE g.exec_id = e.exec_id AND g.part = " +
		"'artifacts'))"

	unlogged = "EXISTS (SELECT 1 FROM sandbox_exec_events AS v WHERE v.exec_id = e.exec_id AND" +
		" (SELECT l.idx FROM audit_log_entries AS l WHERE l.source = " + execEvents.quoted() + " AND l.event_seq = v.seq) IS NULL)"
)

// verdict is the retention.Verdict of e by its row; $1 and $2 are Query.Before and
// Query.LostBefore. also is a condition that it is gone.
func verdict(part retention.Part, also string) string {
	gone := "false"
	if part == retention.Artifacts {
		gone = artifactsGone + also
	}
	return "CASE WHEN e.status IN ('queued', 'running') OR e.ended_at IS NULL THEN 'open' WHEN " + gone +
		" THEN 'gone' WHEN e.ended_at >= $1 THEN 'young'" +
		" WHEN e.status = 'lost' AND e.ended_at >= $2 THEN 'lost' WHEN " + heldExec + " THEN 'held' WHEN " + unlogged +
		" THEN 'unlogged' ELSE 'due' END"
}

// size is the size of what a rule removes of e.
func size(part retention.Part) string {
	if part == retention.Artifacts {
		return "e.artifacts_bytes"
	}
	return "(SELECT coalesce(sum(octet_length(v.data)), 0) FROM sandbox_exec_events AS v WHERE v.exec_id = e.exec_id)" +
		" + CASE WHEN " + artifactsGone + " THEN 0 ELSE e.artifacts_bytes END"
}

// State implements retention.Store.
func (db Retention) State(ctx context.Context) (retention.State, error) {
	var args Params
	now := db.Now(&args)
	s, found, err := One(ctx, db.Query, func(scan Scan) (s retention.State, err error) {
		err = scan(timeInto{&s.Now}, timeInto{&s.ClockAt}, &s.Running, &s.Holder, timeInto{&s.BeganAt}, timeInto{&s.EndedAt},
			&s.Done.Records, &s.Done.Artifacts, &s.Done.Projects, &s.Done.Held, &s.Done.Altered,
			timeInto{&s.NewestAt}, &s.Queued, &s.Holds)
		return s, err
	}, "SELECT "+now+", clock_at, holder <> '' AND lease_until >= "+now+", CASE WHEN lease_until >= "+now+
		" THEN holder ELSE '' END, began_at, ended_at, "+doneColumns+","+
		" (SELECT at FROM sandbox_exec_events ORDER BY seq DESC LIMIT 1), (SELECT count(*) FROM audit_removals),"+
		" (SELECT count(*) FROM audit_holds WHERE removed_at IS NULL) FROM audit_retention", args...)
	if err == nil && !found {
		err = fault.New(fault.Internal, "the database has lost the state of its retention")
	}
	return s, err
}

// Tick implements retention.Store.
func (db Retention) Tick(ctx context.Context, gap time.Duration, accept bool) error {
	var args Params
	now, first := db.Now(&args), db.Ago(&args, gap)
	statement := "UPDATE audit_retention SET clock_at = " + now + " WHERE clock_at IS NULL OR " + args.Add(accept) + " OR clock_at <= " +
		now + " AND clock_at >= " + first
	return db.Write(ctx, nil, statement, args...)
}

// Begin implements retention.Store.
func (db Retention) Begin(ctx context.Context, holder string, lease, every time.Duration) (begun bool, err error) {
	err = db.Tx(ctx, func(run Run) error {
		if err := run(ctx, nil, lockRetention); err != nil {
			return err
		}
		begun = false
		args := Params{Text(holder)}
		now, until, last := db.Now(&args), db.Ago(&args, -lease), db.Ago(&args, every)
		free := " WHERE (holder IN ('', $1) OR lease_until < " + now + ") AND (began_at IS NULL OR began_at <= " + last +
			" OR began_at > " + now + ")"
		begin := "UPDATE audit_retention SET holder = $1, lease_until = " + until + ", began_at = " + now +
			", records = 0, artifacts = 0, projects = 0, held = 0, altered = 0" + free + " RETURNING 1"
		killed, _, err := One(ctx, run, scanDone, "SELECT "+doneColumns+" FROM audit_retention WHERE holder <> ''")
		if err != nil {
			return err
		}
		if _, begun, err = One(ctx, run, Value[int], begin, args...); err != nil || !begun {
			return err
		}
		return db.recordRun(ctx, run, "killed", killed)
	})
	return begun && err == nil, err
}

// Renew implements retention.Store.
func (db Retention) Renew(ctx context.Context, holder string, lease time.Duration) error {
	args := Params{Text(holder)}
	_, mine, err := One(ctx, db.Write, Value[int], db.extend(&args, lease), args...)
	if err == nil && !mine {
		err = retention.ErrLeaseLost
	}
	return err
}

// extend extends the lease of the holder $1.
func (db Retention) extend(args *Params, lease time.Duration) string {
	return "UPDATE audit_retention SET lease_until = " + db.Ago(args, -lease) + " WHERE holder = $1 RETURNING 1"
}

// End implements retention.Store.
func (db Retention) End(ctx context.Context, holder string, d retention.Done) error {
	return db.Tx(ctx, func(run Run) error {
		args := Params{Text(holder), d.Projects, d.Held, d.Altered}
		now := db.Now(&args)
		end := "UPDATE audit_retention SET holder = '', lease_until = " + now + ", ended_at = " + now +
			", projects = $2, held = $3, altered = $4 WHERE holder = $1 RETURNING " + doneColumns
		done, mine, err := One(ctx, run, scanDone, end, args...)
		if err != nil || !mine {
			return err
		}
		return db.recordRun(ctx, run, "ended", done)
	})
}

// lockRetention makes transactions of Begin, Remove and AddHold wait for each other. Renew waits,
// too, and so ends after the run that took the lease.
const lockRetention = "UPDATE audit_retention SET holder = holder"

const doneColumns = "records, artifacts, projects, held, altered"

func scanDone(scan Scan) (d retention.Done, err error) {
	err = scan(&d.Records, &d.Artifacts, &d.Projects, &d.Held, &d.Altered)
	return d, err
}

// recordRun inserts the event of a run that removed something.
func (db Retention) recordRun(ctx context.Context, run Run, how string, done retention.Done) error {
	if done.Records+done.Artifacts+done.Projects == 0 {
		return nil
	}
	return db.record(ctx, run, admin.RetentionRun, how,
		map[string]any{
			"records": done.Records, "artifacts": done.Artifacts, "projects": done.Projects, "held": done.Held,
			"altered": done.Altered,
		})
}

// record inserts an administrative event.
func (db Retention) record(ctx context.Context, run Run, kind admin.Kind, subject string, data any) error {
	e, err := db.event(ctx, kind, subject, data)
	if err != nil {
		return err
	}
	return db.recordIn(ctx, run, e)
}

// Scan implements retention.Store.
func (db Retention) Scan(ctx context.Context, q retention.Query, after retention.Cursor, limit int) ([]retention.Found, error) {
	bytes := "0"
	if q.Sizes {
		bytes = size(q.Part)
	}
	also, args := "", []any{db.stored(q.Before), db.stored(q.LostBefore), db.stored(after.CreatedAt), Text(after.ExecID), limit}
	if !q.RecordsBefore.IsZero() {
		also = " OR e.ended_at < $6 AND NOT (e.status = 'lost' AND e.ended_at >= $7)"
		args = append(args, db.stored(q.RecordsBefore), db.stored(q.RecordsLostBefore))
	}
	return All(ctx, db.Query, func(scan Scan) (f retention.Found, err error) {
		err = scan(timeInto{&f.CreatedAt}, &f.ExecID, (*string)(&f.Verdict), &f.Bytes)
		return f, err
	}, "SELECT e.created_at, e.exec_id, "+verdict(q.Part, also)+", "+bytes+" FROM sandbox_execs AS e"+
		" WHERE e.created_at < $1 AND (e.created_at, e.exec_id) > ($3, $4) ORDER BY e.created_at, e.exec_id LIMIT $5", args...)
}

// Judge implements retention.Store.
func (db Retention) Judge(ctx context.Context, q retention.Query, execIDs []string) (j retention.Judged, err error) {
	err = db.Snapshot(ctx, func(query Run) error {
		j, err = db.judge(ctx, query, q, execIDs, "")
		return err
	})
	return j, err
}

// judge is Judge within a transaction. lock is the end of the query for the rows.
func (db Retention) judge(ctx context.Context, run Run, q retention.Query, execIDs []string, lock string) (j retention.Judged, err error) {
	due, err := All(ctx, run, Value[string], "SELECT e.exec_id FROM sandbox_execs AS e WHERE e.exec_id"+db.In("$3")+" AND "+verdict(q.Part,
		"")+" = 'due'"+lock,
		db.stored(q.Before), db.stored(q.LostBefore), db.Set(Texts(execIDs)))
	if err != nil || len(due) == 0 {
		return j, err
	}
	rows, err := All(ctx, run, ScanRecord, SelectExecs+" WHERE exec_id"+db.In("$1")+" ORDER BY exec_id", db.Set(due))
	if err != nil {
		return j, err
	}
	entries := map[string][][]byte{}
	// With an inner join, SQLite would read the whole log.
	events, err := All(ctx, run, func(scan Scan) (translog.Event, error) {
		e := translog.Event{Source: translog.Execs}
		var entry []byte
		err := scan(append(execEvents.scan(&e), &e.Index, &e.Salt, timeInto{&e.LoggedAt}, &entry)...)
		entries[e.ExecID] = append(entries[e.ExecID], bytes.Clone(entry))
		return e, err
	},
		"SELECT "+execEvents.columns+
			", coalesce(l.idx, -1), l.salt, l.logged_at, l.entry FROM sandbox_exec_events AS e LEFT JOIN audit_log_entries AS l"+
			" ON l.source = "+execEvents.quoted()+" AND l.event_seq = e.seq WHERE e.exec_id"+db.In("$1")+
			" ORDER BY e.exec_id, e.seq LIMIT $2",
		db.Set(due), mostEvents*len(due))
	if err != nil {
		return j, err
	}
	for _, x := range merge(rows, events) {
		newest, err := x.Check(entries[x.ID])
		switch {
		case err != nil:
			j.Altered = append(j.Altered, retention.Altered{ExecID: x.ID, Why: err.Error()})
		case newest.Before(q.Before):
			j.Due = append(j.Due, x.ID)
		}
	}
	return j, nil
}

// mostEvents is how many events are read for each exec; it has at most four. One with more could
// only keep others of its batch from being removed.
const mostEvents = 16

// Remove implements retention.Store. The first statement makes transactions of AddHold wait, so
// that a hold is before or after all of it.
func (db Retention) Remove(ctx context.Context, q retention.Query, execIDs []string, holder string,
	lease time.Duration,
) (j retention.Judged, err error) {
	err = db.Tx(ctx, func(run Run) error {
		args := Params{Text(holder)}
		_, mine, err := One(ctx, run, Value[int], db.extend(&args, lease), args...)
		if err != nil {
			return err
		}
		if !mine {
			return retention.ErrLeaseLost
		}
		if j, err = db.judge(ctx, run, q, execIDs, db.Lock); err != nil || len(j.Due) == 0 {
			return err
		}
		return db.remove(ctx, run, q, j.Due)
	})
	if err != nil {
		return retention.Judged{}, err
	}
	return j, nil
}

// remove removes execs that no other transaction can change now.
func (db Retention) remove(ctx context.Context, run Run, q retention.Query, execIDs []string) error {
	ids := db.Set(execIDs)
	these := " WHERE e.exec_id" + db.In("$1")
	events := "(SELECT count(*) FROM sandbox_exec_events AS v WHERE v.exec_id = e.exec_id)"
	if q.Part == retention.Artifacts {
		events = "0"
	}
	queue, tomb := Params{ids}, Params{ids, string(q.Part), q.Rule, q.Days}
	queued, buried := db.Now(&queue), db.Now(&tomb)
	type step struct {
		statement string
		args      Params
	}
	steps := []step{
		{"INSERT INTO audit_removals (exec_id, project_id, queued_at) SELECT e.exec_id, e.project_id, " + queued +
			" FROM sandbox_execs AS e" + these +
			" AND NOT " + artifactsGone + " ON CONFLICT (exec_id) DO NOTHING", queue},
		{"INSERT INTO audit_tombstones (exec_id, part, project_id, requested_by, rule, days, events, removed_at)" +
			" SELECT e.exec_id, $2, e.project_id, e.requested_by, $3, CAST($4 AS bigint), " + events + ", " + buried +
			" FROM sandbox_execs AS e" + these, tomb},
	}
	if q.Part == retention.Records {
		steps = append(steps,
			step{
				"INSERT INTO audit_tombstone_events (event_seq, exec_id) SELECT e.seq, e.exec_id FROM sandbox_exec_events AS e" + these,
				Params{ids},
			},
			step{"UPDATE audit_log_entries SET salt = NULL WHERE source = " + execEvents.quoted() +
				" AND event_seq IN (SELECT e.seq FROM sandbox_exec_events AS e" + these + ")", Params{ids}},
			step{"DELETE FROM sandbox_exec_events AS e" + these, Params{ids}},
			step{"DELETE FROM sandbox_execs AS e" + these, Params{ids}})
	}
	if err := db.recordRemoval(ctx, run, q, execIDs); err != nil {
		return err
	}
	counter := map[retention.Part]string{retention.Records: "records", retention.Artifacts: "artifacts"}[q.Part]
	steps = append(steps, step{"UPDATE audit_retention SET " + counter + " = " + counter + " + $1", Params{len(execIDs)}})
	for _, s := range steps {
		if err := run(ctx, nil, s.statement, s.args...); err != nil {
			return err
		}
	}
	return nil
}

// recordRemoval inserts the event that names the execs, and the entries that lose their events.
func (db Retention) recordRemoval(ctx context.Context, run Run, q retention.Query, execIDs []string) error {
	entries := map[string][]int64{}
	for _, id := range execIDs {
		entries[id] = []int64{}
	}
	if q.Part == retention.Records {
		err := run(ctx, func(scan Scan) error {
			var id string
			var index int64
			err := scan(&id, &index)
			entries[id] = append(entries[id], index)
			return err
		}, "SELECT e.exec_id, l.idx FROM sandbox_exec_events AS e JOIN audit_log_entries AS l ON l.source = "+execEvents.quoted()+
			" AND l.event_seq = e.seq"+
			" WHERE e.exec_id"+db.In("$1")+" ORDER BY l.idx", db.Set(execIDs))
		if err != nil {
			return err
		}
	}
	return db.record(ctx, run, admin.ExecsRemoved, q.Rule, map[string]any{"part": q.Part, "days": q.Days, "entries": entries})
}

// Queued implements retention.Store.
func (db Retention) Queued(ctx context.Context, after retention.Queued, limit int) ([]retention.Queued, error) {
	return All(ctx, db.Query, func(scan Scan) (q retention.Queued, err error) {
		err = scan(&q.ExecID, &q.ProjectID, timeInto{&q.QueuedAt})
		return q, err
	}, "SELECT r.exec_id, r.project_id, r.queued_at FROM audit_removals AS r LEFT JOIN sandbox_execs AS e ON e.exec_id = r.exec_id"+
		" WHERE (r.queued_at, r.exec_id) > ($1, $2) AND NOT "+held("r.exec_id", "r.project_id", "e.user_id", "e.task_id")+
		" ORDER BY r.queued_at, r.exec_id LIMIT $3", db.stored(after.QueuedAt), Text(after.ExecID), limit)
}

// Dequeue implements retention.Store.
func (db Retention) Dequeue(ctx context.Context, execIDs []string) error {
	return db.Write(ctx, nil, "DELETE FROM audit_removals WHERE exec_id"+db.In("$1"), db.Set(Texts(execIDs)))
}

// ProjectDue implements retention.Store. An empty string behind a column keeps an index from being
// used that has more rows of the project than the condition beside it.
func (db Retention) ProjectDue(ctx context.Context, projectID, userID string, before time.Time) (bool, error) {
	return db.projectDue(ctx, db.Query, projectID, userID, before)
}

// RemoveWorkspace implements retention.Store. The first statement is as in Remove.
func (db Retention) RemoveWorkspace(ctx context.Context, w retention.Workspace, holder string, lease time.Duration) (due bool, err error) {
	err = db.Tx(ctx, func(run Run) error {
		args := Params{Text(holder)}
		_, mine, err := One(ctx, run, Value[int], db.extend(&args, lease), args...)
		if err != nil {
			return err
		}
		if !mine {
			return retention.ErrLeaseLost
		}
		if due, err = db.projectDue(ctx, run, w.ProjectID, w.UserID, w.Before); err != nil || !due {
			return err
		}
		return db.record(ctx, run, admin.WorkspaceRemoved, w.ProjectID,
			map[string]any{"rule": retention.UnusedWorkspaces, "hours": w.Hours, "bytes": w.Bytes})
	})
	return due && err == nil, err
}

// RemoveProject implements retention.Store.
func (db Retention) RemoveProject(ctx context.Context, projectID, userID string, bytes int64) (due bool, err error) {
	never := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) // no exec is too young
	err = db.Tx(ctx, func(run Run) error {
		if err := run(ctx, nil, lockRetention); err != nil { // a hold comes before or after
			return err
		}
		if due, err = db.projectDue(ctx, run, projectID, userID, never); err != nil || !due {
			return err
		}
		return db.record(ctx, run, admin.ProjectRemoved, projectID, map[string]any{"bytes": bytes})
	})
	return due && err == nil, err
}

func (db Retention) projectDue(ctx context.Context, run Run, projectID, userID string, before time.Time) (bool, error) {
	rows := func(from string) string { return "EXISTS (SELECT 1 FROM " + from + ")" }
	holdsOf := func(kind, column, project string) string {
		return rows("audit_holds AS h JOIN sandbox_execs AS e ON e." + column + " = h.value AND e." + column +
			" <> '' WHERE h.removed_at IS NULL AND h.kind = '" + kind + "' AND " + project + " = $1")
	}
	due, _, err := One(ctx, run, Value[bool], "SELECT NOT ("+
		rows("sandbox_execs WHERE project_id = $1 AND created_at >= $2 AND status <> 'rejected'")+
		" OR "+rows("sandbox_execs WHERE status = 'queued' AND project_id || '' = $1")+
		" OR "+rows("sandbox_execs WHERE status = 'running' AND project_id || '' = $1")+
		" OR "+rows("audit_holds WHERE removed_at IS NULL AND kind = 'project' AND value = $1")+
		" OR "+rows("audit_holds WHERE removed_at IS NULL AND kind = 'user' AND value = $3")+
		" OR "+holdsOf("exec", "exec_id", "e.project_id")+
		" OR "+holdsOf("task", "task_id", "e.project_id || ''")+
		" OR "+holdsOf("user", "user_id", "e.project_id || ''")+")",
		Text(projectID), db.stored(before), Text(userID))
	return due, err
}

// Tombstones implements retention.Store.
func (db Retention) Tombstones(ctx context.Context, execIDs []string) ([]retention.Tombstone, error) {
	return All(ctx, db.Query, func(scan Scan) (t retention.Tombstone, err error) {
		err = scan(&t.ExecID, (*string)(&t.Part), &t.ProjectID, &t.RequestedBy, &t.Rule, &t.Days, &t.Events, timeInto{&t.RemovedAt})
		return t, err
	}, "SELECT exec_id, part, project_id, requested_by, rule, days, events, removed_at FROM audit_tombstones WHERE exec_id"+db.In("$1")+
		" ORDER BY exec_id, part", db.Set(Texts(execIDs)))
}
