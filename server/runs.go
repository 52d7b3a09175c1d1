package server

import (
	"context"
	"io"

	"secbox/audit"
	"secbox/runner"
	"secbox/sandbox/record"
)

// runs are the commands in execs' containers and in sandboxes.
type runs struct {
	*runner.Runner
	sandboxes *record.Recorder
}

func (r runs) Cancel(ctx context.Context, execID string) error {
	if r.sandboxes.Cancel(ctx, execID) {
		return nil
	}
	return r.Runner.Cancel(ctx, execID)
}

// Follow implements follow.Runner.
func (r runs) Follow(ctx context.Context, execID string, seen runner.Progress) (runner.Progress, error) {
	if now, err := r.Runner.Follow(ctx, execID, seen); err != nil || now.Here {
		return now, err
	}
	return r.sandboxes.Follow(ctx, execID, seen)
}

// OpenOutput opens the output of an exec. While a command runs in a sandbox, it opens the beginning
// of the command's output.
func (r runs) OpenOutput(ctx context.Context, rec audit.Record, stream string) (io.ReadSeekCloser, int64, error) {
	if !rec.Status.Final() {
		if out, size := r.sandboxes.OpenOutput(rec.ExecID, stream); out != nil {
			return out, size, nil
		}
	}
	return r.Runner.OpenOutput(ctx, rec, stream)
}

// followed are the same for those who follow a command: they also read what it wrote last.
type followed struct{ runs }

// OpenOutput implements follow.Runner.
func (f followed) OpenOutput(ctx context.Context, rec audit.Record, stream string) (io.ReadSeekCloser, int64, error) {
	if out, size := f.sandboxes.OpenOutput(rec.ExecID, stream); out != nil {
		return out, size, nil
	}
	return f.Runner.OpenOutput(ctx, rec, stream)
}
