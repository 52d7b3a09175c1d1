package repair

import (
	"context"
	"maps"
	"slices"

	"secbox/packages/content"
	"secbox/skills"
)

// repairBaselines makes every baseline name an available version.
func (a *agentRepair) repairBaselines(ctx context.Context) error {
	for _, skillID := range slices.Sorted(maps.Keys(a.baselines)) {
		state := a.baselines[skillID]
		ok, err := a.available(ctx, skillID, state.Digest)
		if err != nil {
			return err
		}
		if ok {
			continue
		}
		v, ok, err := a.candidate(ctx, skillID)
		if err != nil {
			return err
		}
		if !ok {
			delete(a.baselines, skillID)
			row, there, err := a.Registry.Get(ctx, a.key(skillID))
			if err == nil && there {
				err = a.unpoint(ctx, row, "the baseline is gone from the disk, and so is every version that could replace it")
			}
			if err != nil {
				return err
			}
			continue
		}
		want := skills.PointerState{Digest: v.Digest}
		a.baselines[skillID] = want
		why := "the baseline " + short(state.Digest) + " is gone from the disk: it is version " + short(v.Digest) + " now, stored " +
			storedAt(v)
		if err := a.point(ctx, Pointed, a.key(skillID), &state, want, why); err != nil {
			return err
		}
	}
	return nil
}

func storedAt(v found) string { return v.At.UTC().Format("2006-01-02 15:04:05") + " UTC" }

// adopt makes the newest version of a skill without any pointer its baseline. A skill with a
// pointer, even an empty one, is in the table, and lacks a baseline on purpose.
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
		why := "no pointer names this skill: its newest version " + short(v.Digest) + ", stored " + storedAt(v) + ", is the baseline now"
		if err := a.point(ctx, Adopted, a.key(skillID), nil, want, why); err != nil {
			return err
		}
	}
	return nil
}

// repairUsers makes every user's pointer name available versions.
func (a *agentRepair) repairUsers(ctx context.Context) error {
	return a.rows(ctx, a.id, func(row skills.Pointer) error {
		if row.UserID == "" || invalid(row.PointerKey) != "" {
			return nil
		}
		digest, base := true, true
		var err error
		if row.Digest != "" {
			if digest, err = a.available(ctx, row.SkillID, row.Digest); err != nil {
				return err
			}
		}
		if row.BaseDigest != "" {
			if base, err = a.available(ctx, row.SkillID, row.BaseDigest); err != nil {
				return err
			}
		}
		if digest && base {
			return nil
		}
		return a.repairUser(ctx, row, digest, base)
	})
}

// repairUser repairs the row of a user whose version (digest) or base is not available.
func (a *agentRepair) repairUser(ctx context.Context, row skills.Pointer, digest, base bool) error {
	copied, err := a.Copy(a.id, row.UserID, row.SkillID)
	if copied != nil {
		copied.Close()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	hasCopy := copied != nil || err != nil // one that cannot be opened exists
	baseline := a.baselines[row.SkillID]
	want, why := row.PointerState, ""
	switch {
	case hasCopy:
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
		why += "; its base " + short(row.BaseDigest) + " is gone from the disk, so a sync will report conflicts"
	}
	return a.point(ctx, Pointed, row.PointerKey, &row.PointerState, want, why)
}

// repairCopies makes pointers for copies that have a baseline but no pointer. Otherwise the next
// access would pin the user to the present baseline, as if the copy derived from it, and a
// promotion would lose the baseline's changes.
func (a *agentRepair) repairCopies(ctx context.Context) error {
	if len(a.baselines) == 0 {
		return nil
	}
	for _, userID := range a.users[a.id] {
		rows, err := skills.PointersOf(ctx, a.Registry, a.id, userID)
		if err != nil {
			return err
		}
		for _, skillID := range slices.Sorted(maps.Keys(a.baselines)) {
			if _, ok := rows[skillID]; ok {
				continue
			}
			if err := a.repairCopy(ctx, userID, skillID); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *agentRepair) repairCopy(ctx context.Context, userID, skillID string) error {
	key := skills.PointerKey{AgentID: a.id, UserID: userID, SkillID: skillID}
	copied, err := a.Copy(a.id, userID, skillID)
	if err != nil {
		a.say(Failed, key, "%s", message(err))
	}
	if copied == nil {
		return nil
	}
	defer copied.Close()
	want := skills.PointerState{Digest: a.baselines[skillID].Digest}
	why := "there is a copy in the workspace and no pointer: its base is unknown, so a sync will report conflicts"
	if c, err := content.Read(ctx, copied, a.MaxBytes); err == nil && c.Has(want.Digest) {
		want.BaseDigest = want.Digest
		why = "there is a copy in the workspace and no pointer: it equals the baseline, which the pointer names now"
	}
	return a.point(ctx, Pointed, key, nil, want, why)
}

// finish counts the versions left to garbage collection, and removes leftovers.
func (a *agentRepair) finish(ctx context.Context) error {
	if a.dir == nil {
		return nil
	}
	used := map[string]map[string]bool{}
	for at := range a.stored {
		if used[at.SkillID] == nil {
			var err error
			if used[at.SkillID], err = skills.UsedDigests(ctx, a.Registry, a.id, at.SkillID); err != nil {
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
	a.say(Swept, a.key(""), "agents/%s/.staging held %d leftovers of interrupted work, older than an hour", a.id, n)
	if a.opts.DryRun {
		return nil
	}
	return a.dir.Tidy(nil)
}
