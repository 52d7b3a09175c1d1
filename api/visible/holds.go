package visible

import (
	"context"

	"github.com/google/uuid"

	"secbox/access/tokens"
	"secbox/audit"
	"secbox/audit/retention"
	"secbox/fault"
)

// HoldStore has the holds; see retention.Store.
type HoldStore interface {
	// Holds returns at most limit holds, oldest first, after one of them.
	Holds(ctx context.Context, after retention.HoldCursor, limit int) ([]retention.Hold, error)

	// AddHold adds a hold; fault.InvalidRequest names wrong fields.
	AddHold(ctx context.Context, h retention.Hold) (retention.Hold, error)

	// HoldsOn returns at most limit holds that name an exec, oldest first.
	HoldsOn(ctx context.Context, exec retention.HoldSubject, limit int) ([]retention.Hold, error)

	// Covered returns how many execs each hold names, counting no further than most.
	Covered(ctx context.Context, holds []retention.Hold, most int) ([]int, error)

	// RemoveHold ends a hold; fault.UnknownHold if there is none with this id.
	RemoveHold(ctx context.Context, id, by string) (retention.Hold, error)
}

// Holds are the holds that stop retention. It is safe for concurrent use.
type Holds struct{ Store HoldStore }

// holdList identifies their list in its cursors.
const holdList = "holds"

// List returns a page of at most limit holds that were not removed, oldest first, and the cursor of
// the next page; empty if there is none.
func (h Holds) List(ctx context.Context, cursor string, limit int) (holds []retention.Hold, next string, err error) {
	var after retention.HoldCursor
	if cursor != "" {
		at, err := DecodeCursor(cursor, holdList)
		if err != nil {
			return nil, "", err
		}
		after = retention.HoldCursor{AddedAt: at.CreatedAt, ID: at.ExecID}
	}
	holds, err = h.Store.Holds(ctx, after, limit)
	if n := len(holds); err == nil && n == limit {
		next = EncodeCursor(audit.Cursor{CreatedAt: holds[n-1].AddedAt, ExecID: holds[n-1].ID}, holdList)
	}
	return holds, next, err
}

// Add adds a hold by the caller: fault.InvalidRequest names wrong fields. An empty ID gets a new
// one; any other is a UUID, which no hold had before.
func (h Holds) Add(ctx context.Context, caller tokens.Token, wanted retention.Hold) (retention.Hold, error) {
	if wanted.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return retention.Hold{}, err
		}
		wanted.ID = id.String()
	}
	if id, ok := canonicalID(wanted.ID); !ok || id != wanted.ID {
		return retention.Hold{}, fault.BadField("id", "must be a UUID in lower case")
	}
	wanted.AddedBy = caller.ID
	if err := wanted.Check(); err != nil {
		return retention.Hold{}, err
	}
	return h.Store.AddHold(ctx, wanted)
}

// On returns at most limit holds that name an exec, oldest first. The exec may have been removed.
func (h Holds) On(ctx context.Context, rec audit.Record, limit int) ([]retention.Hold, error) {
	return h.Store.HoldsOn(ctx, retention.HoldSubject{ProjectID: rec.ProjectID, UserID: rec.UserID, TaskID: rec.TaskID, ExecID: rec.ExecID},
		limit)
}

// Covered returns how many execs each hold names, counting no further than most.
func (h Holds) Covered(ctx context.Context, holds []retention.Hold, most int) ([]int, error) {
	return h.Store.Covered(ctx, holds, most)
}

// Remove ends a hold by the caller: fault.UnknownHold.
func (h Holds) Remove(ctx context.Context, caller tokens.Token, id string) (retention.Hold, error) {
	return h.Store.RemoveHold(ctx, id, caller.ID)
}
