package record

import (
	"context"

	"secbox/audit"
	"secbox/fault"
	"secbox/policy"
	"secbox/sandbox"
)

// Late takes the result of a command whose row was ended as lost because nobody could tell how it would end: the row is corrected, and both
// stay in its history. A row that is not lost, or is of another user or another of their machines, is left alone: a runner speaks for
// what it was asked to run. It is safe to call again, and must be after an error.
func (r *Recorder) Late(ctx context.Context, user sandbox.User, execID string, result sandbox.ExecResult) error {
	res := &result
	record, err := r.cfg.Log.Get(ctx, execID)
	if err != nil {
		return err
	}
	if record.Status != audit.Lost || record.Backend != sandbox.Remote || record.UserID != user.ID || record.Runner != user.Runner {
		r.cfg.Logger.InfoContext(ctx, "a late result is of no row that waits for it", "exec", execID, "user", user.ID, "runner", user.Runner)
		return nil
	}
	snapshot, err := policy.ParseSnapshot(record.PolicySnapshot)
	if err != nil {
		return err
	}
	record.EndedAt = r.now()
	if record.EndedAt.Before(record.StartedAt) {
		record.EndedAt = record.StartedAt
	}
	record.DurationMS = record.EndedAt.Sub(record.StartedAt).Milliseconds()
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
