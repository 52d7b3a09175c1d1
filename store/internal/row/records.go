package row

import (
	"context"
	"errors"
	"time"

	"secbox/audit"
	"secbox/fault"
)

// Records implements the methods of audit.Store that are one statement with the same text in both
// databases.
type Records struct{ Database }

// SelectExecs selects records for ScanRecord.
var SelectExecs = "SELECT " + ColumnList + " FROM sandbox_execs"

// selectAsked selects records with their requests for newAskedScanner.
var selectAsked = "SELECT " + askedColumns + " FROM sandbox_execs"

// Get implements audit.Store.
func (db Records) Get(ctx context.Context, execID string) (audit.Record, error) {
	r, found, err := One(ctx, db.Query, newAskedScanner().next, selectAsked+" WHERE exec_id = $1", Text(execID))
	if err == nil && !found {
		err = UnknownExec(execID)
	}
	return r, err
}

// Status implements audit.Store.
func (db Records) Status(ctx context.Context, execID string) (audit.Status, error) {
	status, found, err := One(ctx, db.Query, Value[string], "SELECT status FROM sandbox_execs WHERE exec_id = $1", Text(execID))
	if err == nil && !found {
		err = UnknownExec(execID)
	}
	return audit.Status(status), err
}

// FindKey selects the record with an idempotency key of a token.
var FindKey = SelectExecs + " WHERE requested_by = $1 AND idempotency_key = $2 AND idempotency_key <> ''"

// OfKey implements audit.Store.
func (db Records) OfKey(ctx context.Context, requestedBy, key string) (*audit.Record, error) {
	r, found, err := One(ctx, db.Query, ScanRecord, FindKey, Text(requestedBy), Text(key))
	if err != nil || !found {
		return nil, err
	}
	return &r, nil
}

// FindHolder returns another record that has the key of r; nil if none has.
func FindHolder(ctx context.Context, run Run, r audit.Record) (taken *audit.Record, found bool, err error) {
	if r.IdempotencyKey == "" {
		return nil, false, nil
	}
	holder, found, err := One(ctx, run, ScanRecord, FindKey, r.RequestedBy, r.IdempotencyKey)
	if err != nil || !found || holder.ExecID == r.ExecID {
		return nil, found, err
	}
	return &holder, true, nil
}

// UnknownExec is the error for an exec that the database does not have.
func UnknownExec(execID string) error {
	return fault.New(fault.UnknownExec, "there is no exec %q", Text(execID))
}

// List implements audit.Store.
func (db Records) List(ctx context.Context, f audit.Filter, after *audit.Cursor, limit int) ([]audit.Record, *audit.Cursor, error) {
	items := []audit.Record{}
	next, err := db.Walk(ctx, f, after, limit, func(r audit.Record) bool {
		items = append(items, r)
		return true
	})
	if err != nil {
		return nil, nil, err
	}
	return items, next, nil
}

// errEnough ends a walk.
var errEnough = errors.New("the caller has enough records")

// Walk implements audit.Store.
func (db Records) Walk(ctx context.Context, f audit.Filter, after *audit.Cursor, limit int,
	each func(audit.Record) bool,
) (next *audit.Cursor, err error) {
	if limit <= 0 {
		return nil, nil
	}
	lead, end, err := db.lead(ctx, f, after, scanLimit(limit))
	if err != nil {
		return nil, err
	}
	f, next = upTo(f, end)
	statement, args := db.ListQuery(f, after, limit, lead)
	records, n := newAskedScanner(), 0
	switch {
	case f.OnlyCommands:
		records = newAskedScanner(commandNames...)
	case f.OnlyCallers:
		records = newRecordScanner(callerNames...)
	}
	err = db.Database.List(ctx, func(scan Scan) error {
		r, err := records.next(scan)
		if err != nil {
			return err
		}
		n++
		if !each(r) {
			n = limit
			return errEnough
		}
		return nil
	}, statement, args...)
	switch {
	case n == limit && (err == nil || errors.Is(err, errEnough)):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return next, nil
}

// Outlines implements audit.Store.
func (db Records) Outlines(ctx context.Context, since, until time.Time, most int, each func(audit.Outline)) error {
	statement, args := db.OutlinesQuery(since, until, most)
	return db.Database.List(ctx, func(scan Scan) error {
		var o audit.Outline
		err := scan(&o.Status, &o.ErrorReason, &o.RequestedBy, &o.SkillID, &o.Backend, &o.DurationMS)
		if err == nil {
			each(o)
		}
		return err
	}, statement, args...)
}

// Task implements audit.Store.
func (db Records) Task(ctx context.Context, taskID, requestedBy string, most int) (audit.Task, error) {
	task := audit.Task{Statuses: map[audit.Status]int{}}
	var args Params
	where := " WHERE task_id <> '' AND task_id = " + args.Add(Text(taskID)) + " AND kind = 'exec' AND session_id <> exec_id"
	if requestedBy != "" {
		where += " AND " + db.Hidden("requested_by") + " = " + args.Add(Text(requestedBy))
	}
	statement := "SELECT status, count(*), max(exec_id) FROM (SELECT status, exec_id FROM sandbox_execs" + where +
		" ORDER BY created_at DESC, exec_id DESC LIMIT " + args.Add(int64(most)) + ") AS newest GROUP BY status"
	err := db.Database.List(ctx, func(scan Scan) error {
		var status audit.Status
		var n int
		var newest string
		err := scan(&status, &n, &newest)
		task.Statuses[status] = n
		if !status.Final() {
			task.Unended = max(task.Unended, newest) // ids are ordered by time
		}
		return err
	}, statement, args...)
	return task, err
}

// Events implements audit.Store.
func (db Records) Events(ctx context.Context, execID string) ([]audit.Event, error) {
	return All(ctx, db.Query, scanEvent,
		"SELECT seq, exec_id, kind, at, node_id, data FROM sandbox_exec_events WHERE exec_id = $1 ORDER BY seq", Text(execID))
}

// changesBytes bounds the records of the events that Changes returns.
const changesBytes = 4 << 20

// Changes implements audit.Store. A transaction gets its number before its event gets a seq: it
// changes the row first.
func (db Records) Changes(ctx context.Context, after int64, limit int) (audit.Changes, error) {
	var c audit.Changes
	if limit <= 0 {
		err := db.Query(ctx, func(scan Scan) error { return scan(&c.Newest, &c.Oldest, &c.Next) },
			"SELECT (SELECT coalesce(max(seq), 0) FROM sandbox_exec_events), "+db.OldestTx+", "+db.NextTx)
		return c, err
	}
	bytes, enough := 0, false
	err := db.Query(ctx, func(scan Scan) error {
		if enough = bytes > changesBytes; enough {
			return errEnough
		}
		e, err := scanEvent(func(dest ...any) error { return scan(append(dest, &c.Oldest)...) })
		c.Events, c.Newest, bytes = append(c.Events, e), e.Seq, bytes+len(e.Data)
		return err
	}, "SELECT seq, exec_id, kind, at, node_id, data, "+db.OldestTx+" FROM sandbox_exec_events WHERE seq > $1 ORDER BY seq LIMIT $2", after,
		limit)
	if enough {
		err = nil
	}
	return c, err
}

// InstallationID implements audit.Store.
func (db Records) InstallationID(ctx context.Context) (string, error) {
	id, _, err := One(ctx, db.Query, Value[string], "SELECT id FROM installation")
	if err == nil && id == "" {
		err = fault.New(fault.Internal, "the database has lost its installation id")
	}
	return id, err
}
