package library

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"secbox/fault"
	"secbox/skills"
	"secbox/skills/archive"
	"secbox/skills/versions"
	"secbox/tree"
)

// agentRepair repairs one agent, step by step. Rows are read in pages and not kept: what is kept grows with the versions.
type agentRepair struct {
	*repair
	id  string
	dir *versions.Agent // nil: the agent has no directory

	stored    map[skills.Version]found       // what can be pointed to
	baselines map[string]skills.PointerState // as they will be
	named     map[string]bool                // skills that have a row
	asBase    map[skills.Version]bool        // versions that were a baseline: somebody's base, or a pin
	asOwn     map[skills.Version]bool        // versions that users have uploaded for themselves
}

// found is a version on the disk.
type found struct {
	versions.Stored
	intact bool // read, and what its name says. Versions out of reach are read when they are wanted.
}

func (a *agentRepair) key(skillID string) skills.PointerKey {
	return skills.PointerKey{AgentID: a.id, SkillID: skillID}
}

// readDisk reads all versions, and puts away what is none.
func (a *agentRepair) readDisk(ctx context.Context) error {
	if a.dir == nil {
		return nil
	}
	names, err := a.dir.SkillNames()
	if err != nil {
		a.say(RepairFailed, a.key(""), "%s", message(err))
		return nil
	}
	slices.Sort(names)
	var all []versions.Stored
	for _, name := range names {
		if err := archive.CheckID(name); err != nil && !fault.Is(err, fault.ReservedSkill) || !a.dir.HasSkill(name) {
			a.quarantine(name, "is no skill's directory", name)
			continue
		}
		versions, others, err := a.dir.Versions(name)
		if err != nil {
			a.say(RepairFailed, a.key(name), "%s", message(err))
		}
		for _, other := range others {
			a.quarantine(name, "is no version", name, other)
		}
		all = append(all, versions...)
	}
	if err := a.verify(ctx, all); err != nil {
		return err
	}
	away, err := a.dir.UnusedSkills()
	if err != nil {
		a.say(RepairFailed, a.key(""), "%s", message(err))
	}
	for _, name := range away {
		versions, err := a.dir.UnusedVersions(name)
		if err != nil {
			a.say(RepairFailed, a.key(name), "%s", message(err))
		}
		for _, v := range versions {
			if at := (skills.Version{SkillID: name, Digest: v.Digest}); a.stored[at].Digest == "" {
				a.stored[at] = found{Stored: v}
			}
		}
	}
	return nil
}

func (a *agentRepair) quarantine(skillID, why string, path ...string) {
	if a.opts.DryRun {
		a.say(RepairQuarantined, a.key(legible(skillID)), "skills/%s %s: it goes to quarantine", joined(path...), why)
		return
	}
	to, err := a.dir.Quarantine(a.opts.Now, path...)
	if err != nil {
		a.say(RepairFailed, a.key(legible(skillID)), "skills/%s %s: %s", joined(path...), why, message(err))
		return
	}
	a.say(RepairQuarantined, a.key(legible(skillID)), "skills/%s %s: it is in quarantine now, at agents/%s/%s", joined(path...), why, a.id, legible(to))
}

// verify holds every version against its name.
func (a *agentRepair) verify(ctx context.Context, all []versions.Stored) error {
	var mu sync.Mutex
	damaged := map[int]string{}
	err := inParallel(len(all), func(n int) error {
		v := all[n]
		t, err := a.dir.Version(v.SkillID, v.Digest)
		var why string
		var bytes int64
		if err == nil {
			why, bytes, err = a.l.damage(ctx, t, v.Digest)
			t.Close()
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		mu.Lock()
		defer mu.Unlock()
		a.report.Versions++
		a.report.Bytes += bytes
		if a.opts.Progress != nil {
			a.opts.Progress(a.report.Versions, a.total, a.report.Bytes)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil: // not its fault perhaps: it is taken for what it says
			a.say(RepairFailed, a.key(v.SkillID), "version %s cannot be read and was left as it is: %s", short(v.Digest), message(err))
		case why != "":
			damaged[n] = why
			return nil
		}
		a.stored[skills.Version{SkillID: v.SkillID, Digest: v.Digest}] = found{Stored: v, intact: true}
		return nil
	})
	for _, n := range slices.Sorted(maps.Keys(damaged)) {
		a.quarantine(all[n].SkillID, damaged[n], all[n].SkillID, all[n].Digest)
	}
	return err
}

// damage says why a tree is not the version of this name; "" when it is.
func (l *Library) damage(ctx context.Context, t *tree.Tree, digest string) (why string, bytes int64, err error) {
	c, err := l.contents(ctx, "", t)
	switch {
	case errors.Is(err, tree.ErrTooLarge):
		return "has more files than a version can", 0, nil
	case tree.IsRefused(err):
		return "holds something that is no plain file", 0, nil
	case err != nil:
		return "", 0, err
	}
	for _, f := range c.files {
		bytes += f.Size
	}
	switch {
	case c.odd != "":
		return "is damaged: " + c.odd, bytes, nil
	case c.digest != digest:
		return "is damaged: what it holds has the digest " + short(c.digest), bytes, nil
	}
	return "", bytes, nil
}

// readRows learns what the pointers name, and removes those that nobody can have.
func (a *agentRepair) readRows(ctx context.Context) error {
	return a.rows(ctx, a.id, func(row skills.Pointer) error {
		a.report.Pointers++
		if why := impossible(row.PointerKey); why != "" {
			return a.unpoint(ctx, row, why)
		}
		a.named[row.SkillID] = true
		version, base := skills.Version{SkillID: row.SkillID, Digest: row.Digest}, skills.Version{SkillID: row.SkillID, Digest: row.BaseDigest}
		switch {
		case row.UserID == "":
			a.baselines[row.SkillID] = row.PointerState
		case row.Digest != row.BaseDigest:
			a.asOwn[version] = true
		}
		if row.BaseDigest != "" {
			a.asBase[base] = true
		}
		return nil
	})
}

// reach reports whether a version can be pointed to. One that is out of reach and whole is put back.
func (a *agentRepair) reach(ctx context.Context, skillID, digest string) (bool, error) {
	at := skills.Version{SkillID: skillID, Digest: digest}
	v, ok := a.stored[at]
	if !ok || v.intact {
		return ok, nil
	}
	t, err := a.dir.OpenUnused(v.Stored)
	why := ""
	if err == nil {
		why, _, err = a.l.damage(ctx, t, digest)
		t.Close()
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if err != nil || why != "" {
		delete(a.stored, at)
		return false, nil //nolint:nilerr // what cannot be read out there is as good as gone
	}
	if !a.opts.DryRun {
		if there, err := a.dir.Restore(skillID, digest); err != nil || !there {
			delete(a.stored, at)
			return false, err
		}
	}
	a.say(RepairRestored, a.key(skillID), "version %s was out of use and is wanted: it is in its place again", short(digest))
	v.intact = true
	a.stored[at] = v
	return true, nil
}

// candidate finds what can be the baseline: the newest version that was one before, else the newest that is not some user's own.
func (a *agentRepair) candidate(ctx context.Context, skillID string) (found, bool, error) {
	var all []found
	for at, v := range a.stored {
		if at.SkillID == skillID && (a.asBase[at] || !a.asOwn[at]) {
			all = append(all, v)
		}
	}
	rank := func(v found) int {
		if a.asBase[skills.Version{SkillID: skillID, Digest: v.Digest}] {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(v, w found) int {
		return cmp.Or(cmp.Compare(rank(v), rank(w)), w.At.Compare(v.At), cmp.Compare(v.Digest, w.Digest))
	})
	for _, v := range all {
		if ok, err := a.reach(ctx, skillID, v.Digest); ok || err != nil {
			return v, ok, err
		}
	}
	return found{}, false, nil
}
