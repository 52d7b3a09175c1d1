package row

import (
	"context"
	"strings"

	"secbox/audit/admin"
	"secbox/audit/retention"
	"secbox/fault"
)

const holdColumns = "id, kind, value, reason, added_at, added_by, removed_at, removed_by"

func scanHold(scan Scan) (h retention.Hold, err error) {
	err = scan(&h.ID, (*string)(&h.Kind), &h.Value, &h.Reason, timeInto{&h.AddedAt}, &h.AddedBy, timeInto{&h.RemovedAt}, &h.RemovedBy)
	return h, err
}

// AddHold implements retention.Store. The update waits for a transaction of Remove.
func (db Retention) AddHold(ctx context.Context, h retention.Hold) (added retention.Hold, err error) {
	if err := h.Check(); err != nil {
		return retention.Hold{}, err
	}
	err = db.Tx(ctx, func(run Run) error {
		if err := run(ctx, nil, lockRetention); err != nil {
			return err
		}
		covered, err := countHeld(ctx, run, h, 1)
		switch {
		case err != nil:
			return err
		case covered > 0:
		case h.Kind == retention.HoldExec:
			return fault.BadField("value", "there is no exec with this id; copy the id from its page or its record")
		case strings.TrimSpace(h.Value) != h.Value:
			return fault.BadField("value", "has spaces around it, and no exec has such an id; remove the spaces")
		}
		args := Params{Text(h.ID), string(h.Kind), h.Value, h.Reason, Text(h.AddedBy), retention.MaxHolds}
		insert := "INSERT INTO audit_holds (id, kind, value, reason, added_by, added_at) SELECT $1, $2, $3, $4, $5, " + db.Now(&args) +
			" WHERE (SELECT count(*) FROM audit_holds WHERE removed_at IS NULL) < $6 RETURNING " + holdColumns
		var found bool
		added, found, err = One(ctx, run, scanHold, insert, args...)
		if err == nil && !found {
			err = fault.New(fault.InvalidRequest, "there are %d holds already; remove one that is no longer needed", retention.MaxHolds)
		}
		if err != nil {
			return err
		}
		return db.record(ctx, run, admin.HoldAdded, added.ID,
			map[string]any{"kind": added.Kind, "value": added.Value, "reason": added.Reason})
	})
	return added, err
}

// heldColumns have what holds name. Indexes of tasks and users lack empty ones.
var heldColumns = map[retention.HoldKind]string{
	retention.HoldProject: "project_id = $1", retention.HoldUser: "user_id <> '' AND user_id = $1",
	retention.HoldTask: "task_id <> '' AND task_id = $1", retention.HoldExec: "exec_id = $1",
}

// countHeld returns how many execs a hold names, counting no further than most.
func countHeld(ctx context.Context, run Run, h retention.Hold, most int) (int, error) {
	scan := func(scan Scan) (n int, err error) { return n, scan(&n) }
	n, _, err := One(ctx, run, scan, "SELECT count(*) FROM (SELECT 1 FROM sandbox_execs WHERE "+heldColumns[h.Kind]+" LIMIT $2) AS held",
		h.Value, most)
	return n, err
}

// Covered implements retention.Store.
func (db Retention) Covered(ctx context.Context, holds []retention.Hold, most int) ([]int, error) {
	counts := make([]int, len(holds))
	for i, h := range holds {
		var err error
		if counts[i], err = countHeld(ctx, db.Query, h, most); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// HoldsOn implements retention.Store.
func (db Retention) HoldsOn(ctx context.Context, exec retention.HoldSubject, limit int) ([]retention.Hold, error) {
	return All(ctx, db.Query, scanHold, "SELECT "+holdColumns+
		" FROM audit_holds WHERE removed_at IS NULL AND (kind = 'project' AND value = $1 OR kind = 'user' AND value = $2"+
		" OR kind = 'task' AND value = $3 OR kind = 'exec' AND value = $4) ORDER BY added_at, id LIMIT $5",
		Text(exec.ProjectID), Text(exec.UserID), Text(exec.TaskID), Text(exec.ExecID), limit)
}

// RemoveHold implements retention.Store.
func (db Retention) RemoveHold(ctx context.Context, id, by string) (removed retention.Hold, err error) {
	err = db.Tx(ctx, func(run Run) error {
		args := Params{Text(id), Text(by)}
		end := "UPDATE audit_holds SET removed_by = $2, removed_at = " + db.Now(&args) +
			" WHERE id = $1 AND removed_at IS NULL RETURNING " + holdColumns
		var found bool
		removed, found, err = One(ctx, run, scanHold, end, args...)
		if err == nil && !found {
			err = fault.New(fault.UnknownHold, "there is no hold %q, or it was removed before", Text(id))
		}
		if err != nil {
			return err
		}
		return db.record(ctx, run, admin.HoldRemoved, removed.ID, map[string]any{"kind": removed.Kind, "value": removed.Value})
	})
	return removed, err
}

// Holds implements retention.Store.
func (db Retention) Holds(ctx context.Context, after retention.HoldCursor, limit int) ([]retention.Hold, error) {
	return All(ctx, db.Query, scanHold, "SELECT "+holdColumns+
		" FROM audit_holds WHERE removed_at IS NULL AND (added_at, id) > ($1, $2) ORDER BY added_at, id LIMIT $3",
		db.stored(after.AddedAt), Text(after.ID), limit)
}
