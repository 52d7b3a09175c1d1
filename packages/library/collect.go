package library

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"secbox/fault"
	"secbox/packages/versions"
	"secbox/skills"
	"secbox/workspace"
)

// Grace is the minimal age of a version before it is retired, and the time from then until its
// removal. It is longer than any request, and than any difference between the clocks of two nodes.
const Grace = time.Hour

// maxCollected bounds the versions that one collection retires or removes. The next one continues.
const maxCollected = 5_000

// Collected is the result of a collection.
type Collected struct {
	Retired  int // versions retired
	Restored int // put back, because a pointer names them after all
	Removed  int // deleted
}

// Collect removes the versions that no pointer names, as its digest or its base. It may run at any
// time, on any number of nodes.
//
// A version goes in three steps. If no pointer names it and it was stored longer ago than Grace, a
// rename retires it: it cannot be opened by its digest any more. Then the registry is asked again,
// and once more at each further collection: a version that a pointer names by now is put back. When
// it has been retired for longer than Grace, still without a pointer, it is renamed to .staging and
// removed.
//
// Conversely, every caller that sets a pointer then looks for the version that it names, and puts
// it back if it is retired (swap). Of a caller that sets and looks, and a collection that retires
// and asks, one sees the other, in any order:
//   - set, look, retire, ask: asking finds the pointer, and the collection puts the version back.
//     Readers in between put it back (version).
//   - set, retire, look, ask, or set, retire, ask, look: both put it back; the second one finds
//     that done.
//   - retire, set, and the rest in any order: the look finds it retired and puts it back, or finds
//     it in its place.
//   - retire, ask, set, look: asking finds nothing, but the removal is Grace away. The look puts it
//     back.
//
// The removal uses the name that the version got when it was retired. Putting it back removes that
// name, even if another node has retired the version again: it has a new name then, and is asked
// about again. So a removed version had no pointer when the registry was asked, and no caller has
// looked for it since: only one that saw it before it was retired, and took longer than Grace to
// set the pointer, could name it. Even then an upload loses nothing, as it stores the version again
// (Upload).
//
// A version that has just been stored, before its pointer is set, is younger than Grace. One that
// was stored before may be retired before the pointer is set, which is one of the cases above. A
// pin names the baseline at the moment of its commit, which is a pointer itself. Copying a version
// into a workspace only reads it: an open version stays complete for Grace after it was retired. A
// crash leaves a version retired or in its place; a retired one with a pointer is put back by the
// next reader or collection, and .staging is swept.
//
// An agent without any row in the registry is left alone: probably the table was lost. See Repair.
func (l *Library) Collect(ctx context.Context, now time.Time) (Collected, error) {
	c := collection{l: l, now: now}
	ids, err := l.Versions.AgentIDs()
	if err != nil {
		return Collected{}, err
	}
	var errs []error
	for _, id := range ids {
		if workspace.CheckPart("agent_id", id) != nil {
			continue
		}
		err := c.agent(ctx, id)
		if ctx.Err() != nil || fault.Is(err, fault.DatabaseUnavailable) {
			return c.done, err
		}
		errs = append(errs, err)
	}
	return c.done, errors.Join(errs...)
}

type collection struct {
	l    *Library
	now  time.Time
	done Collected
}

// full reports whether the collection has done enough.
func (c *collection) full() bool { return c.done.Retired+c.done.Removed >= maxCollected }

func (c *collection) agent(ctx context.Context, id string) error {
	agent, err := c.l.Versions.ExistingAgent(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	rows, err := c.l.Registry.Rows(ctx, id, skills.PointerKey{}, 1)
	if err != nil || len(rows) == 0 {
		return err
	}
	names, err := agent.SkillNames()
	if err != nil {
		return err
	}
	away, err := agent.RetiredSkills()
	if err != nil {
		return err
	}
	names = append(names, away...)
	slices.Sort(names)
	names = slices.Compact(names)
	var errs []error
	for _, skillID := range names {
		err := errors.Join(c.retire(ctx, agent, id, skillID), c.remove(ctx, agent, id, skillID))
		if ctx.Err() != nil || fault.Is(err, fault.DatabaseUnavailable) {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, agent.Tidy(names))...)
}

// retire is the first step, for the versions of one skill.
func (c *collection) retire(ctx context.Context, agent *versions.Agent, agentID, skillID string) error {
	stored, _, err := agent.Versions(skillID)
	if err != nil {
		return err
	}
	stored = slices.DeleteFunc(stored, func(v versions.Stored) bool { return c.now.Sub(v.At) <= Grace })
	if len(stored) == 0 {
		return nil
	}
	used, err := skills.UsedDigests(ctx, c.l.Registry, agentID, skillID)
	if err != nil {
		return err
	}
	for _, v := range stored {
		if used[v.Digest] || c.full() {
			continue
		}
		if err := errors.Join(context.Cause(ctx), agent.Retire(v, c.now)); err != nil {
			return err
		}
		c.done.Retired++
	}
	return nil
}

// remove is the second and third step, for the retired versions of one skill.
func (c *collection) remove(ctx context.Context, agent *versions.Agent, agentID, skillID string) error {
	stored, err := agent.RetiredVersions(skillID)
	if err != nil || len(stored) == 0 {
		return err
	}
	used, err := skills.UsedDigests(ctx, c.l.Registry, agentID, skillID) // it must come after they were retired
	if err != nil {
		return err
	}
	there, _, err := agent.Versions(skillID)
	if err != nil {
		return err
	}
	for _, v := range stored {
		again := slices.ContainsFunc(there, func(t versions.Stored) bool { return t.Digest == v.Digest }) // it was stored again meanwhile
		switch {
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case used[v.Digest] && !again:
			if _, err := agent.Restore(skillID, v.Digest); err != nil {
				return err
			}
			c.done.Restored++
		case c.now.Sub(v.Retired) > Grace && !c.full():
			gone, err := agent.Drop(ctx, v)
			if err != nil {
				return err
			}
			if gone {
				c.done.Removed++
			}
		}
	}
	return nil
}
