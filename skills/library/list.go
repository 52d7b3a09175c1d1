package library

import (
	"context"
	"maps"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"secbox/skills"
)

// Status compares a user's skill with the agent's.
type Status string

const (
	Unchanged Status = "UNCHANGED"   // equal to the baseline
	Modified  Status = "MODIFIED"    // changed by the user
	NewSkill  Status = "NEW"         // the user's own: the agent has no skill with this name
	OutOfSync Status = "OUT_OF_SYNC" // not changed by the user, but the baseline has changed
)

// Listed is one skill of a user.
type Listed struct {
	SkillID     string
	Name        string
	Description string
	Status      Status
	// BaselineChanged says that the baseline is not the one that the user's version derives from.
	BaselineChanged bool
	// Digest is the user's version; empty if the copy cannot be a version, for example because of a link in it.
	Digest string
}

// List returns the user's skills by id. It reads no files that have not changed since the last call, and for skills without a copy it does
// not access the disk. A copy that cannot be read does not hide the others: it is MODIFIED, without a digest.
func (l *Library) List(ctx context.Context, o Owner) ([]Listed, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if _, err := l.Registry.Pin(ctx, o.AgentID, o.UserID); err != nil {
		return nil, err
	}
	rows, err := skills.PointersOf(ctx, l.Registry, o.AgentID, o.UserID)
	if err != nil {
		return nil, err
	}
	baselines, err := skills.PointersOf(ctx, l.Registry, o.AgentID, "")
	if err != nil {
		return nil, err
	}
	dir, err := l.openCopies(o)
	if err != nil {
		return nil, err
	}
	if dir != nil {
		defer dir.Close()
	}
	copied, err := copyNames(dir)
	if err == nil && l.finishUnnest(ctx, o, dir, copied) {
		copied, err = copyNames(dir)
	}
	if err != nil {
		return nil, err
	}
	ids := maps.Clone(copied)
	for id, row := range rows {
		if row.Digest != "" {
			ids[id] = true
		}
	}
	list := make([]Listed, 0, len(ids))
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		list = append(list, Listed{SkillID: id})
	}
	err = inParallel(len(list), func(n int) error {
		one := &list[n]
		from := dir
		if !copied[one.SkillID] {
			from = nil
		}
		return l.complete(ctx, o, one, rows[one.SkillID], baselines[one.SkillID], from)
	})
	if err != nil {
		return nil, err
	}
	return l.withGlobal(ctx, list), nil
}

// inParallel calls f with 0 to n-1, as many at once as there are processors. It returns the first error.
func inParallel(n int, f func(int) error) error {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for at := range n {
		group.Go(func() error { return f(at) })
	}
	return group.Wait()
}
