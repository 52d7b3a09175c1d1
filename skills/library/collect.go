package library

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"secbox/fault"
	"secbox/skills"
	"secbox/skills/versions"
	"secbox/workspace"
)

// Grace is how old a version is before it may go, and for how long it is out of reach before it goes. No request takes as long, and the
// clocks of two nodes must not be further apart.
const Grace = time.Hour

// maxCollected bounds what one collection puts out of reach or removes. What is left is there the next time.
const maxCollected = 5_000

// Collected is what a collection has done.
type Collected struct {
	PutAway  int // versions put out of reach
	Restored int // put back, because somebody wants them after all
	Removed  int // gone for good
}

// Collect removes the versions that no pointer names, as its digest or its base. It may run beside everything else, on any number of
// nodes.
//
// A version goes in three steps. Nobody names it and it was stored longer ago than Grace: it is put out of reach, by a rename (Retire).
// After that the registry is asked again, and from then on at each collection: when somebody names it by now, it is put back. When it has
// been out of reach for longer than Grace, still without a pointer, it is renamed once more, to where nobody finds it, and removed.
//
// Against that, everybody who sets a pointer looks afterwards whether what it names is in its place, and puts it back otherwise (swap).
// Between somebody who sets a pointer and looks, and a collection that puts away and looks, one sees what the other has done, in
// whatever order the four come:
//   - set, look, put away, ask: the question finds the pointer, and the version is put back. Who reads in between puts it back (version).
//   - set, put away, look, ask, or set, put away, ask, look: both put it back; one of the two finds that done.
//   - put away, set, in any order with the rest: the look finds it out of reach and puts it back, or it is there again.
//   - put away, ask, set, look: the question finds nothing, but the removal is Grace away. The look puts it back.
//
// The removal takes the version by the name that it got when it was put away. Once it was put back that name is gone, also when another
// node has put it away anew meanwhile: that has a name of its own, and is asked about by itself. So what is removed had no pointer when
// it was asked about, and nobody has looked for it since: it could only be named by somebody who had seen it in its place before it was
// put away, and took longer than Grace from there to setting the pointer. An upload does not even then lose anything: it stores it again
// (Upload).
//
// A version that is stored in this moment, before its pointer is set, is younger than Grace. One that is found stored already may be
// put away before the pointer is set; that is one of the cases above. A pin names what is a baseline at the moment of its commit, which
// is a pointer itself. To copy a version into a workspace is to read it: an open one is still whole for Grace after it was put away,
// under its handle. Being killed leaves it out of reach or in its place, and in the former case the next reader, or the next collection,
// puts back what has a pointer; what was being removed is swept from .staging.
//
// An agent of whom the registry has no row at all is left alone: it is likelier that the table was lost than that everything was
// deleted. See Repair.
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

// full reports that this was enough for once.
func (c *collection) full() bool { return c.done.PutAway+c.done.Removed >= maxCollected }

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
		err := errors.Join(c.putAway(ctx, agent, id, skillID), c.remove(ctx, agent, id, skillID))
		if ctx.Err() != nil || fault.Is(err, fault.DatabaseUnavailable) {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, agent.Tidy(names))...)
}

// putAway is the first step for the versions of one skill.
func (c *collection) putAway(ctx context.Context, agent *versions.Agent, agentID, skillID string) error {
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
		c.done.PutAway++
	}
	return nil
}

// remove is the second step and the third for the versions of a skill that are out of reach.
func (c *collection) remove(ctx context.Context, agent *versions.Agent, agentID, skillID string) error {
	stored, err := agent.RetiredVersions(skillID)
	if err != nil || len(stored) == 0 {
		return err
	}
	used, err := skills.UsedDigests(ctx, c.l.Registry, agentID, skillID) // after they were put away: that is the point
	if err != nil {
		return err
	}
	there, _, err := agent.Versions(skillID)
	if err != nil {
		return err
	}
	for _, v := range stored {
		again := slices.ContainsFunc(there, func(t versions.Stored) bool { return t.Digest == v.Digest }) // it was stored anew meanwhile
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
