package library

import (
	"context"
	"maps"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"secbox/skills"
	"secbox/workspace/tree"
)

// Status compares a user's skill with the agent's.
type Status string

// The values of Status.
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
	// Digest is the user's version; empty if the copy cannot be a version, for example because of a
	// link in it.
	Digest string
	// Warning says what of its name and description cannot be read; see metadata.About.
	Warning string
}

// List returns the user's skills by id. It reads no files that have not changed since the last
// call, and for skills without a copy it does not access the disk. A copy that cannot be read does
// not hide the others: it is MODIFIED, without a digest.
func (l *Library) List(ctx context.Context, o Owner) ([]Listed, error) {
	all, err := l.all(ctx, o, !l.viewing)
	if err != nil {
		return nil, err
	}
	defer all.close()
	baselines, err := skills.PointersOf(ctx, l.Registry, o.AgentID, "")
	if err != nil {
		return nil, err
	}
	list := make([]Listed, len(all.ids))
	err = inParallel(len(list), func(n int) error {
		one := &list[n]
		one.SkillID = all.ids[n]
		from := all.copies
		if !all.copied[one.SkillID] {
			from = nil
		}
		return l.complete(ctx, o, one, all.rows[one.SkillID], baselines[one.SkillID], from)
	})
	if err != nil {
		return nil, err
	}
	return l.withGlobal(ctx, list), nil
}

// userSkills has the pointers and copies of a user's skills.
type userSkills struct {
	rows   map[string]skills.Pointer
	copies *tree.Tree      // work/skills/; nil when there is none
	copied map[string]bool // the names in it that can be copies
	ids    []string        // of the skills that the user has, sorted
}

func (s *userSkills) close() {
	if s.copies != nil {
		s.copies.Close()
	}
}

// all finds the user's skills, and pins the user to all baselines of the agent. With unnest it
// completes interrupted calls of unnest.
func (l *Library) all(ctx context.Context, o Owner, unnest bool) (s *userSkills, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if _, err := l.Registry.Pin(ctx, o.AgentID, o.UserID); err != nil {
		return nil, err
	}
	s = &userSkills{}
	if s.rows, err = skills.PointersOf(ctx, l.Registry, o.AgentID, o.UserID); err != nil {
		return nil, err
	}
	if s.copies, err = l.openCopies(o); err != nil {
		return nil, err
	}
	s.copied, err = copyNames(s.copies)
	if err == nil && unnest && l.finishUnnest(ctx, o, s.copies, s.copied) {
		s.copied, err = copyNames(s.copies)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	ids := maps.Clone(s.copied)
	for id, row := range s.rows {
		if row.Digest != "" {
			ids[id] = true
		}
	}
	s.ids = slices.Sorted(maps.Keys(ids))
	return s, nil
}

// inParallel calls f with 0 to n-1, as many at once as there are processors. It returns the first
// error.
func inParallel(n int, f func(int) error) error {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for at := range n {
		group.Go(func() error { return f(at) })
	}
	return group.Wait()
}
