package record

import (
	"context"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/policy"
	"secbox/sandbox"
)

// Late takes the result of a command whose row was ended as lost because nobody could tell how it would end: the row is corrected, and both
// stay in its history. A row that is not lost, or is of another user or another of their machines, is left alone: a runner speaks for
// what it was asked to run. One that is still open is waited for, though not for long: the machine may be back before it is on record that it
// was lost. It is safe to call again, and must be after an error.
func (r *Recorder) Late(ctx context.Context, user sandbox.User, execID string, result sandbox.ExecResult) error {
	res := &result
	record, err := r.cfg.Log.Get(ctx, execID)
	if err != nil {
		return err
	}
	theirs := sandbox.TraitsOf(record.Backend).UserMachine && record.UserID == user.ID && record.Runner == user.Runner
	if theirs && !record.Status.Final() {
		if record, err = r.closed(ctx, execID); err != nil {
			return err
		}
	}
	if !theirs || record.Status != audit.Lost {
		r.cfg.Logger.InfoContext(ctx, "a late result is of no row that waits for it", "exec", execID, "user", user.ID, "runner", user.Runner)
		return nil
	}
	snapshot, err := policy.ParseSnapshot(record.PolicySnapshot)
	if err != nil {
		return err
	}
	if record.StartedAt.IsZero() { // this node died before it could say so
		record.StartedAt = record.CreatedAt
	}
	if record.EndedAt = r.now(); record.EndedAt.Before(record.StartedAt) {
		record.EndedAt = record.StartedAt
	}
	record.DurationMS = record.Duration().Milliseconds()
	record.Status, record.ErrorReason, record.Detail = verdict(res, snapshot)
	record.ExitCode = exitCode(res)
	record.StdoutBytes, record.StderrBytes = res.StdoutBytes, res.StderrBytes
	record.StdoutTruncated = res.StdoutBytes > snapshot.Values.MaxStdoutBytes
	record.StderrTruncated = res.StderrBytes > snapshot.Values.MaxStderrBytes
	spooled, err := r.cfg.Log.Close(context.WithoutCancel(ctx), record)
	if err != nil {
		return err
	}
	if spooled { // the spool keeps the first ending, which is the lost one
		return fault.New(fault.DatabaseUnavailable, "exec %s cannot be corrected now; tell it again later", execID)
	}
	r.observe(record)
	return nil
}

// lateWait is how long a late result waits for its row to be closed, which may take some seconds when the database is slow.
const lateWait = 15 * time.Second

// closed is the row of a command when it has ended.
func (r *Recorder) closed(ctx context.Context, execID string) (audit.Record, error) {
	r.mu.Lock()
	l := r.live[execID]
	r.mu.Unlock()
	if l != nil {
		timer := time.NewTimer(lateWait)
		defer timer.Stop()
		select {
		case <-l.ended:
		case <-timer.C:
		case <-ctx.Done():
			return audit.Record{}, ctx.Err()
		}
	}
	record, err := r.cfg.Log.Get(ctx, execID)
	if err == nil && !record.Status.Final() {
		err = fault.New(fault.DatabaseUnavailable, "exec %s is not on record as ended yet; tell it again later", execID)
	}
	return record, err
}
