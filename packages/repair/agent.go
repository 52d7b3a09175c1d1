package repair

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"secbox/fault"
	"secbox/packages/archive"
	"secbox/packages/content"
	"secbox/packages/versions"
	"secbox/skills"
	"secbox/workspace/tree"
)

// agentRepair repairs one agent, step by step. Rows are read in pages and not kept, so its memory
// grows with the versions only.
type agentRepair struct {
	*repair
	id  string
	dir *versions.Agent // nil: the agent has no directory

	stored    map[skills.Version]found       // versions that pointers can name
	baselines map[string]skills.PointerState // after the repair
	named     map[string]bool                // skills that have a row
	asBase    map[skills.Version]bool        // versions that were a baseline: the base of some user
	asOwn     map[skills.Version]bool        // versions that users have uploaded for themselves
}

// found is a version on disk.
type found struct {
	versions.Stored
	intact bool // it has been read and has its digest. Retired versions are read when they are needed.
}

func (a *agentRepair) key(skillID string) skills.PointerKey {
	return skills.PointerKey{AgentID: a.id, SkillID: skillID}
}

// readDisk reads all versions and quarantines invalid ones.
func (a *agentRepair) readDisk(ctx context.Context) error {
	if a.dir == nil {
		return nil
	}
	names, err := a.dir.SkillNames()
	if err != nil {
		a.say(Failed, a.key(""), "%s", message(err))
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
			a.say(Failed, a.key(name), "%s", message(err))
		}
		for _, other := range others {
			a.quarantine(name, "is no version", name, other)
		}
		all = append(all, versions...)
	}
	if err := a.verify(ctx, all); err != nil {
		return err
	}
	retired, err := a.dir.RetiredSkills()
	if err != nil {
		a.say(Failed, a.key(""), "%s", message(err))
	}
	for _, name := range retired {
		versions, err := a.dir.RetiredVersions(name)
		if err != nil {
			a.say(Failed, a.key(name), "%s", message(err))
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
	key, where := a.key(content.Legible(skillID)), content.Legible(strings.Join(path, "/"))
	if a.opts.DryRun {
		a.say(Quarantined, key, "skills/%s %s: it goes to quarantine", where, why)
		return
	}
	to, err := a.dir.Quarantine(a.opts.Now, path...)
	if err != nil {
		a.say(Failed, key, "skills/%s %s: %s", where, why, message(err))
		return
	}
	a.say(Quarantined, key, "skills/%s %s: it is in quarantine now, at agents/%s/%s", where, why, a.id, content.Legible(to))
}

// verify compares every version with its digest.
func (a *agentRepair) verify(ctx context.Context, all []versions.Stored) error {
	var mu sync.Mutex
	damaged := map[int]string{}
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for n, v := range all {
		group.Go(func() error {
			t, err := a.dir.Version(v.SkillID, v.Digest)
			var why string
			var bytes int64
			if err == nil {
				why, bytes, err = a.damage(ctx, t, v.Digest)
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
			case err != nil: // perhaps not damaged, so it counts as intact
				a.say(Failed, a.key(v.SkillID), "version %s cannot be read and was left as it is: %s", short(v.Digest), message(err))
			case why != "":
				damaged[n] = why
				return nil
			}
			a.stored[skills.Version{SkillID: v.SkillID, Digest: v.Digest}] = found{Stored: v, intact: true}
			return nil
		})
	}
	err := group.Wait()
	for _, n := range slices.Sorted(maps.Keys(damaged)) {
		a.quarantine(all[n].SkillID, damaged[n], all[n].SkillID, all[n].Digest)
	}
	return err
}

// damage says why a tree is not the version with this digest; empty if it is.
func (a *agentRepair) damage(ctx context.Context, t *tree.Tree, digest string) (why string, bytes int64, err error) {
	c, err := content.Read(ctx, t, a.MaxBytes)
	switch {
	case errors.Is(err, tree.ErrTooLarge):
		return "has more files than a version can", 0, nil
	case tree.IsRefused(err):
		return "holds something that is no plain file", 0, nil
	case err != nil:
		return "", 0, err
	case c.Invalid != "":
		why = "is damaged: " + c.Invalid
	case !c.Has(digest):
		why = "is damaged: its content has the digest " + short(c.Digest)
	}
	return why, c.Bytes(), nil
}

// readRows records the versions that pointers name, and removes pointers with invalid ids.
func (a *agentRepair) readRows(ctx context.Context) error {
	return a.rows(ctx, a.id, func(row skills.Pointer) error {
		a.report.Pointers++
		if why := invalid(row.PointerKey); why != "" {
			return a.unpoint(ctx, row, why)
		}
		a.named[row.SkillID] = true
		switch {
		case row.UserID == "":
			a.baselines[row.SkillID] = row.PointerState
		case row.Digest != row.BaseDigest:
			a.asOwn[skills.Version{SkillID: row.SkillID, Digest: row.Digest}] = true
		}
		if row.BaseDigest != "" {
			a.asBase[skills.Version{SkillID: row.SkillID, Digest: row.BaseDigest}] = true
		}
		return nil
	})
}

// available reports whether a pointer can name a version. A retired one that is intact is restored.
func (a *agentRepair) available(ctx context.Context, skillID, digest string) (bool, error) {
	at := skills.Version{SkillID: skillID, Digest: digest}
	v, ok := a.stored[at]
	if !ok || v.intact {
		return ok, nil
	}
	t, err := a.dir.OpenRetired(v.Stored)
	why := ""
	if err == nil {
		why, _, err = a.damage(ctx, t, digest)
		t.Close()
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if err != nil || why != "" {
		delete(a.stored, at)
		return false, nil //nolint:nilerr // an unreadable retired version is as good as gone
	}
	if !a.opts.DryRun {
		if there, err := a.dir.Restore(skillID, digest); err != nil || !there {
			delete(a.stored, at)
			return false, err
		}
	}
	a.say(Restored, a.key(skillID), "version %s was retired but is named by a pointer: it is in its place again", short(digest))
	v.intact = true
	a.stored[at] = v
	return true, nil
}

// candidate returns the best version for a baseline: the newest that was one before, else the
// newest that is not some user's own.
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
		if ok, err := a.available(ctx, skillID, v.Digest); ok || err != nil {
			return v, ok, err
		}
	}
	return found{}, false, nil
}
