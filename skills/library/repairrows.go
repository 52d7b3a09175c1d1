package library

import (
	"context"
	"maps"
	"slices"

	"secbox/skills"
)

// repairBaselines sees to it that every baseline names a version that is there.
func (a *agentRepair) repairBaselines(ctx context.Context) error {
	for _, skillID := range slices.Sorted(maps.Keys(a.baselines)) {
		state := a.baselines[skillID]
		if ok, err := a.reach(ctx, skillID, state.Digest); ok || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		v, ok, err := a.candidate(ctx, skillID)
		if err != nil {
			return err
		}
		if !ok {
			delete(a.baselines, skillID)
			row, there, err := a.l.Registry.Get(ctx, a.key(skillID))
			if err == nil && there {
				err = a.unpoint(ctx, row, "the baseline is gone from the disk, and so is everything that could be it")
			}
			if err != nil {
				return err
			}
			continue
		}
		want := skills.PointerState{Digest: v.Digest}
		a.baselines[skillID] = want
		why := "the baseline " + short(state.Digest) + " is gone from the disk: it is version " + short(v.Digest) + " now, stored " + stored(v)
		if err := a.point(ctx, RepairPointed, a.key(skillID), &state, want, why); err != nil {
			return err
		}
	}
	return nil
}

func stored(v found) string { return v.At.UTC().Format("2006-01-02 15:04:05") + " UTC" }

// adopt gives a skill that no pointer knows of its newest version as its baseline. Where somebody has a pointer, even an empty one, the
// table knows of the skill, and that it has no baseline is somebody's doing.
func (a *agentRepair) adopt(ctx context.Context) error {
	lost := map[string]bool{}
	for at, v := range a.stored {
		if v.intact && !a.named[at.SkillID] {
			lost[at.SkillID] = true
		}
	}
	for _, skillID := range slices.Sorted(maps.Keys(lost)) {
		v, ok, err := a.candidate(ctx, skillID)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		want := skills.PointerState{Digest: v.Digest}
		a.baselines[skillID] = want
		why := "no pointer knows of this skill: its newest version " + short(v.Digest) + ", stored " + stored(v) + ", is the baseline now"
		if err := a.point(ctx, RepairAdopted, a.key(skillID), nil, want, why); err != nil {
			return err
		}
	}
	return nil
}

// repairUsers sees to it that every user's pointer names versions that are there.
func (a *agentRepair) repairUsers(ctx context.Context) error {
	return a.rows(ctx, a.id, func(row skills.Pointer) error {
		if row.UserID == "" || impossible(row.PointerKey) != "" {
			return nil
		}
		digest, base := true, true
		var err error
		if row.Digest != "" {
			if digest, err = a.reach(ctx, row.SkillID, row.Digest); err != nil {
				return err
			}
		}
		if row.BaseDigest != "" {
			if base, err = a.reach(ctx, row.SkillID, row.BaseDigest); err != nil {
				return err
			}
		}
		if digest && base {
			return nil
		}
		return a.repairUser(ctx, row, digest, base)
	})
}

// repairUser mends the row of a user of which the version, or its base, is not there.
func (a *agentRepair) repairUser(ctx context.Context, row skills.Pointer, digest, base bool) error {
	o := Owner{AgentID: a.id, UserID: row.UserID}
	copied, err := a.l.mine(o, row.SkillID)
	if copied != nil {
		copied.Close()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	mine := copied != nil || err != nil // what cannot be opened is there, and the user's
	baseline := a.baselines[row.SkillID]
	want, why := row.PointerState, ""
	switch {
	case mine:
		if !digest {
			want.Digest = baseline.Digest
		}
		if !base {
			want.BaseDigest = ""
		}
		why = "the copy in the workspace stays as it is"
	case digest:
		want.BaseDigest = ""
		why = "version " + short(row.Digest) + " stays the user's"
		if row.Digest == "" {
			why = "the skill stays deleted"
		}
	case baseline.Digest == "":
		return a.unpoint(ctx, row, "version "+short(row.Digest)+" is gone from the disk, and there is no baseline")
	default:
		want = skills.PointerState{Digest: baseline.Digest, BaseDigest: baseline.Digest}
		why = "version " + short(row.Digest) + " is gone from the disk: the user has the baseline " + short(baseline.Digest) + " now"
	}
	if !base && want.BaseDigest == "" {
		why += "; what it is based on, " + short(row.BaseDigest) + ", is gone from the disk, so a sync will report conflicts"
	}
	return a.point(ctx, RepairPointed, row.PointerKey, &row.PointerState, want, why)
}

// repairCopies gives a pointer to copies that have none and of which there is a baseline. At the next access the user would be pinned to
// the baseline of today, and it would look as if the copy were made from that: what changed in between would be lost at a promotion.
func (a *agentRepair) repairCopies(ctx context.Context) error {
	if len(a.baselines) == 0 {
		return nil
	}
	for _, userID := range a.users[a.id] {
		o := Owner{AgentID: a.id, UserID: userID}
		rows, err := a.l.pointers(ctx, a.id, userID)
		if err != nil {
			return err
		}
		missing := slices.DeleteFunc(slices.Sorted(maps.Keys(a.baselines)), func(skillID string) bool { _, ok := rows[skillID]; return ok })
		for _, skillID := range missing {
			copied, err := a.l.mine(o, skillID)
			if err != nil {
				a.say(RepairFailed, o.key(skillID), "%s", message(err))
			}
			if copied == nil {
				continue
			}
			want := skills.PointerState{Digest: a.baselines[skillID].Digest}
			why := "there is a copy in the workspace and no pointer: what it is based on is not known, so a sync will report conflicts"
			if c, err := a.l.contents(ctx, "", copied); err == nil && c.digest == want.Digest {
				want.BaseDigest = want.Digest
				why = "there is a copy in the workspace and no pointer: it is the baseline, and so is the pointer now"
			}
			copied.Close()
			if err := a.point(ctx, RepairPointed, o.key(skillID), nil, want, why); err != nil {
				return err
			}
		}
	}
	return nil
}

// finish counts what is left to garbage collection, and sweeps up.
func (a *agentRepair) finish(ctx context.Context) error {
	if a.dir == nil {
		return nil
	}
	used := map[string]map[string]bool{}
	for at := range a.stored {
		if used[at.SkillID] == nil {
			var err error
			if used[at.SkillID], err = a.l.used(ctx, a.id, at.SkillID); err != nil {
				return err
			}
		}
		if !used[at.SkillID][at.Digest] && a.baselines[at.SkillID].Digest != at.Digest {
			a.report.Unused++
		}
	}
	n := a.dir.Leftovers()
	if n == 0 {
		return nil
	}
	a.say(RepairSwept, a.key(""), "%d things that were begun and never finished lay in agents/%s/.staging for more than an hour", n, a.id)
	if a.opts.DryRun {
		return nil
	}
	return a.dir.Tidy(nil)
}
