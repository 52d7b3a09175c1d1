package record

import (
	"context"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/policy"
	"secbox/sandbox"
)

// Late takes the result of a command whose row was ended as lost because its outcome was unknown.
// The row is corrected, and both ends stay in its history. Rows that are not lost, or belong to
// another user or another of their machines, are left alone: a runner reports only its own
// commands. A row that is still open is waited for, for a short time: the machine may be back
// before the row is ended as lost. Late may be called again, and must be after an error.
func (r *Recorder) Late(ctx context.Context, user sandbox.User, execID string, result sandbox.ExecResult) error {
	record, err := r.cfg.Log.Get(ctx, execID)
	if err != nil {
		return err
	}
	theirs := sandbox.TraitsOf(record.Backend).UserMachine && record.UserID == user.ID && record.Runner == user.Runner
	if theirs && !record.Status.Final() {
		if record, err = r.awaitEnd(ctx, execID); err != nil {
			return err
		}
	}
	if !theirs || record.Status != audit.Lost {
		r.cfg.Logger.InfoContext(ctx, "a late result belongs to no lost row", "exec", execID, "user", user.ID, "runner", user.Runner)
		return nil
	}
	snapshot, err := policy.ParseSnapshot(record.PolicySnapshot)
	if err != nil {
		return err
	}
	if record.StartedAt.IsZero() { // this node died before it could record it
		record.StartedAt = record.CreatedAt
	}
	record.EndedAt = later(r.commands.Now(), record.StartedAt)
	record.DurationMS = record.Duration().Milliseconds()
	record.Status, record.ErrorReason, record.Detail = verdict(&result, snapshot)
	record.ExitCode = exitCode(&result)
	record.StdoutBytes, record.StderrBytes = result.StdoutBytes, result.StderrBytes
	record.StdoutTruncated = result.StdoutBytes > snapshot.Values.MaxStdoutBytes
	record.StderrTruncated = result.StderrBytes > snapshot.Values.MaxStderrBytes
	spooled, err := r.cfg.Log.Close(context.WithoutCancel(ctx), &record)
	if err != nil {
		return err
	}
	if spooled { // the spool keeps the first end, which is the lost one
		return fault.New(fault.DatabaseUnavailable, "exec %s cannot be corrected now; report it again later", execID)
	}
	if r.cfg.Observer != nil {
		r.cfg.Observer.Ended(record)
	}
	return nil
}

// lateTimeout is how long a late result waits for its row to be closed, which may take some seconds
// when the database is slow.
const lateTimeout = 15 * time.Second

// awaitEnd waits for the end of a command that runs on this node, and returns its row.
func (r *Recorder) awaitEnd(ctx context.Context, execID string) (audit.Record, error) {
	if ended := r.commands.Ended(execID); ended != nil {
		select {
		case <-ended:
		case <-time.After(lateTimeout):
		case <-ctx.Done():
			return audit.Record{}, ctx.Err()
		}
	}
	record, err := r.cfg.Log.Get(ctx, execID)
	if err == nil && !record.Status.Final() {
		err = fault.New(fault.DatabaseUnavailable, "exec %s is not on record as ended yet; report it again later", execID)
	}
	return record, err
}
