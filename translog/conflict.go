package translog

import (
	"context"
	"errors"

	"golang.org/x/mod/sumdb/tlog"

	"secbox/fault"
	"secbox/translog/checkpoint"
)

// Conflict reports that the database does not have the log of a checkpoint that was signed before. The log must not be extended then: two
// checkpoints would have trees that do not extend each other.
type Conflict struct {
	Kept   checkpoint.Checkpoint
	Found  State // of the database
	Remedy string
	fault  *fault.Error
}

func (c *Conflict) Error() string { return c.fault.Error() }
func (c *Conflict) Unwrap() error { return c.fault }

// Compare checks that the log in the database has the entries of a checkpoint that was kept elsewhere. It fails with a *Conflict if not.
// where says who keeps it, and away what makes core-api extend the log nonetheless.
func (l Log) Compare(ctx context.Context, kept checkpoint.Checkpoint, where, away string) error {
	state, err := l.Store.State(ctx) // after the checkpoint was read: else a newer one than the state could be no conflict
	if err != nil {
		return err
	}
	reader := tiles{ctx, l.Store}
	err = checkpoint.Extends(kept.Tree, tlog.Tree{N: state.Size, Hash: state.Root}, reader)
	var what string
	switch {
	case errors.Is(err, checkpoint.ErrSmaller):
		what = "it was rolled back to an older copy, or cut"
	case errors.Is(err, checkpoint.ErrForked):
		what = "it was rebuilt, or continued from an older copy"
	case errors.Is(err, checkpoint.ErrHashes):
		return damaged(err)
	default:
		return err
	}
	return &Conflict{
		Kept: kept, Found: state,
		Remedy: "restore the newest database and restart; if it is lost, tell the auditors, then " + away,
		fault: fault.Wrap(fault.Internal, err, "%s has a checkpoint of %s, and the log in the database, with %d entries and root %s, does not have it: %s; the log is not extended",
			where, kept, state.Size, state.Root, what),
	}
}
