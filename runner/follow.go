package runner

import (
	"context"

	"secbox/runner/output"
)

// Progress is how far an exec is on this node.
type Progress = output.Progress

// Follow waits until the progress of an exec differs from what the caller has seen; see
// output.Running.
func (r *Runner) Follow(ctx context.Context, execID string, seen Progress) (Progress, error) {
	return r.outputs.Follow(ctx, execID, seen)
}

// Await returns a channel that is closed when an exec is here, in the sense of Progress; at once if
// it is. The caller must call leave.
func (r *Runner) Await(execID string) (here <-chan struct{}, leave func()) {
	return r.commands.Await(execID)
}
