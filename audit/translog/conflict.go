package translog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit/admin"
	"secbox/audit/translog/checkpoint"
	"secbox/fault"
)

// Conflict reports that the database does not have the log of a checkpoint that was signed before.
// The log must not be extended then: two checkpoints would have trees that do not extend each
// other.
type Conflict struct {
	Kept   checkpoint.Checkpoint // also one under another key, whose signature cannot be verified
	Found  State                 // of the database
	Remedy string
	fault  *fault.Error
}

func (c *Conflict) Error() string { return c.fault.Error() }
func (c *Conflict) Unwrap() error { return c.fault }

// Compare checks that the log in the database has the entries of a checkpoint that was kept
// elsewhere. It fails with a *Conflict if not. where says who keeps it, and away what makes
// core-api extend the log nonetheless.
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
		fault: fault.Wrap(fault.Internal, err, "%s has a checkpoint of %s, and the log in the database, with %d entries and root %s, "+
			"does not have it: %s; the log is not extended",
			where, kept, state.Size, state.Root, what),
	}
}

// Replacement is the data of admin.LogKeyReplaced, whose subject is the id of the former key: an
// operator lets the log go on with another key than the key of this checkpoint.
type Replacement struct {
	Key        string `json:"key"` // public, of the log from now on
	Entries    int64  `json:"entries"`
	Root       string `json:"root"`
	Checkpoint string `json:"checkpoint"` // the former key's last checkpoint, which nothing verifies
	Reason     string `json:"reason"`
}

// maxReplacements bounds how many events are read. Each is the act of an operator.
const maxReplacements = 100

// CompareOther checks that an operator has recorded that this log goes on without the key of a
// checkpoint that was kept elsewhere; own is the id of the present key, empty if there is none. It
// fails with a *Conflict if not, and with errNoKey if the log in the database is of the
// checkpoint's key, and another node extends it. accept names the command that records it.
func (l Log) CompareOther(ctx context.Context, kept checkpoint.Claim, own, where, accept string) error {
	state, err := l.Store.State(ctx)
	if err != nil {
		return err
	}
	if state.VerifierKey != "" && checkpoint.KeyID(state.VerifierKey) == kept.KeyID {
		return errNoKey
	}
	if replaced, err := l.replaced(ctx, kept, own); replaced || err != nil {
		return err
	}
	present := "is empty"
	if state.Size > 0 {
		present = fmt.Sprintf("has %d entries and root %s under the key %s", state.Size, state.Root, checkpoint.KeyID(state.VerifierKey))
	}
	return &Conflict{
		Kept: kept.Checkpoint, Found: state,
		Remedy: "restore the newest database and its log.key, and restart; if they are lost, tell the auditors, then " + accept +
			" and restart",
		fault: fault.New(fault.Internal, "%s has a checkpoint of %s under another key, %s, and the log in the database %s: it was "+
			"rebuilt, or its key was replaced; the log is not extended",
			where, kept.Checkpoint, kept.KeyID, present),
	}
}

// replaced reports whether an administrative event says that the key of the checkpoint was replaced
// by this one.
func (l Log) replaced(ctx context.Context, kept checkpoint.Claim, own string) (bool, error) {
	if l.Events == nil || own == "" {
		return false, nil
	}
	events, err := l.Events.List(ctx, admin.Filter{Kind: admin.LogKeyReplaced, Subject: kept.KeyID}, nil, maxReplacements)
	if err != nil {
		return false, err
	}
	for _, e := range events {
		var r Replacement
		if json.Unmarshal([]byte(e.Data), &r) != nil || checkpoint.KeyID(r.Key) != own {
			continue
		}
		if kept.Tree.N < r.Entries || kept.Tree.N == r.Entries && kept.Tree.Hash.String() == r.Root {
			return true, nil
		}
	}
	return false, nil
}
