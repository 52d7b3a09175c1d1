package library

import (
	"context"
	"maps"
	"slices"
)

// Status is how a user's skill stands to the agent's.
type Status string

// The statuses.
const (
	Unchanged Status = "UNCHANGED"   // the same as the baseline
	Modified  Status = "MODIFIED"    // the user has changed it
	NewSkill  Status = "NEW"         // the user's own, the agent has none of that name
	OutOfSync Status = "OUT_OF_SYNC" // the user has not changed it, and the baseline is another by now
)

// Listed is one skill of a user.
type Listed struct {
	SkillID     string
	Name        string
	Description string
	Status      Status
	// BaselineChanged says that the baseline is not any more the one that the user's version is based on.
	BaselineChanged bool
	// Digest is of what the user has; empty when that could not be a version, for a link in it, say.
	Digest string
}

// List gives the user's skills by id. A skill whose files nobody has touched since the last look costs no reading of files, and one that
// the user has no copy of does not even cost a look at the disk. A copy that cannot be read does not hide the others: it is MODIFIED, without a
// digest.
func (l *Library) List(ctx context.Context, o Owner) ([]Listed, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if _, err := l.Registry.Pin(ctx, o.AgentID, o.UserID); err != nil {
		return nil, err
	}
	rows, err := l.pointers(ctx, o.AgentID, o.UserID)
	if err != nil {
		return nil, err
	}
	baselines, err := l.pointers(ctx, o.AgentID, "")
	if err != nil {
		return nil, err
	}
	copies, err := l.copies(ctx, o)
	if err != nil {
		return nil, err
	}
	ids := maps.Clone(copies)
	for id, row := range rows {
		if row.Digest != "" {
			ids[id] = true
		}
	}
	list := make([]Listed, 0, len(ids))
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		one := Listed{SkillID: id}
		if err := l.look(ctx, o, &one, rows[id], baselines[id], copies[id]); err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, nil
}
