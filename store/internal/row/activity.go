package row

import (
	"context"
	"time"

	"secbox/audit"
)

// created returns the condition of execs that were created in a time, by a token if requestedBy is
// not empty.
func (db Database) created(args *Params, since, until time.Time, requestedBy string) string {
	where := " FROM sandbox_execs WHERE kind = 'exec' AND created_at >= " + args.Add(db.EncodeTime(roundUp(since))) +
		" AND created_at < " + args.Add(db.EncodeTime(roundUp(until)))
	if requestedBy != "" {
		// An expression, since the index of the token would lead to the table for each row.
		where += " AND requested_by || '' = " + args.Add(Text(requestedBy))
	}
	return where
}

// HoursQuery returns the statement of Hours and its parameters. The index of the newest covers all
// its columns.
func (db Database) HoursQuery(since, until time.Time, requestedBy string) (string, []any) {
	var args Params
	return "SELECT " + db.Hour + " AS hour, status, error_reason, count(*)" + db.created(&args, since, until, requestedBy) +
		" GROUP BY hour, status, error_reason", args
}

// SlowestQuery returns the statement of Slowest and its parameters. The index of the newest covers
// all its columns.
func (db Database) SlowestQuery(since, until time.Time, requestedBy string, most, limit int) (string, []any) {
	var args Params
	const columns = "exec_id, created_at, status, skill_id, duration_ms"
	return "SELECT " + columns + " FROM (SELECT " + columns + db.created(&args, since, until, requestedBy) +
		" ORDER BY created_at DESC, exec_id DESC LIMIT " + args.Add(int64(max(most, 0))) + ") AS newest" +
		" ORDER BY duration_ms DESC, created_at DESC, exec_id LIMIT " + args.Add(int64(max(limit, 0))), args
}

// Hours implements audit.Store.
func (db Records) Hours(ctx context.Context, since, until time.Time, requestedBy string, each func(audit.HourCount)) error {
	statement, args := db.HoursQuery(since, until, requestedBy)
	return db.Database.List(ctx, func(scan Scan) error {
		var h audit.HourCount
		err := scan(timeInto{&h.Hour}, &h.Status, &h.ErrorReason, &h.Execs)
		if err == nil {
			each(h)
		}
		return err
	}, statement, args...)
}

// Slowest implements audit.Store.
func (db Records) Slowest(ctx context.Context, since, until time.Time, requestedBy string, most, limit int) ([]audit.SlowExec, error) {
	statement, args := db.SlowestQuery(since, until, requestedBy, most, limit)
	return All(ctx, db.Database.List, func(scan Scan) (audit.SlowExec, error) {
		var s audit.SlowExec
		err := scan(&s.ExecID, timeInto{&s.CreatedAt}, &s.Status, &s.SkillID, &s.DurationMS)
		return s, err
	}, statement, args...)
}
