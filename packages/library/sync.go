package library

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"

	"secbox/fault"
	"secbox/packages/content"
	"secbox/pathadapter"
	"secbox/skills"
	"secbox/workspace/tree"
)

// Synced is the result of a sync. Paths are in byte order; the lists are never nil.
type Synced struct {
	Baseline  string   // the digest that the user's version derives from now
	Updated   []string // files taken from the baseline, new or changed
	Removed   []string // files removed because the baseline does not have them any more
	Conflicts []string // files that both sides have changed; the user's stay
}

// Sync updates the user's version of a skill to the baseline, file by file: changes of the baseline
// are applied, changes of the user stay, and a file that both have changed stays the user's and is
// listed as a conflict. With force, the baseline replaces the user's version, even a deleted one.
// It is all or nothing. fault.SkillConflict when there is no baseline, when the user has deleted
// the skill, or when the copy cannot be a version.
func (l *Library) Sync(ctx context.Context, o Owner, skillID string, force bool) (Synced, error) {
	defer l.Changed(o, Overlay)
	if err := checkIDs(o, skillID); err != nil {
		return Synced{}, err
	}
	release, err := l.lock(ctx, o, skillID)
	if err != nil {
		return Synced{}, err
	}
	defer release()
	for range tries {
		done, again, err := l.syncOnce(ctx, o, skillID, force)
		if err != nil || !again {
			return done, err
		}
	}
	return Synced{}, failed(tree.ErrChanged, "the skill "+skillID)
}

// syncOnce syncs with the present pointers; again means that another node has moved the user's
// pointer before anything of the user's was lost, and the sync must start again.
func (l *Library) syncOnce(ctx context.Context, o Owner, skillID string, force bool) (synced Synced, again bool, err error) {
	row, ok, err := l.pointer(ctx, o, skillID)
	if err != nil {
		return Synced{}, false, err
	}
	baseline, official, err := l.Registry.Get(ctx, o.baseline(skillID))
	if err != nil {
		return Synced{}, false, err
	}
	copied, err := l.openCopy(o, skillID)
	if err != nil && !force {
		return Synced{}, false, err
	}
	here := copied != nil
	if here {
		copied.Close()
	}
	switch gone := !here && (!ok || row.Digest == ""); {
	case !official && gone:
		return Synced{}, false, unknownSkill(skillID)
	case !official:
		return Synced{}, false, fault.New(fault.SkillConflict,
			"the agent has no baseline of %q, so there is nothing to sync with: keep the skill as the user's own, delete it, or promote it",
			skillID)
	case gone && !force:
		return Synced{}, false, fault.New(fault.SkillConflict,
			"the skill %q was deleted in this workspace: force the sync to get the baseline", skillID)
	}
	if !force && (here || row.Digest != row.BaseDigest) {
		done, err := l.merge(ctx, o, skillID, row, ok, baseline.Digest)
		return done, false, err
	}
	return l.takeBaseline(ctx, o, skillID, row, ok, baseline.Digest, force)
}

// takeBaseline replaces the user's version. As with an upload, the copy comes before the pointer.
// The pointer moves only if its state is still the one that was read: otherwise an upload on
// another node would be lost silently, or its copy would get a base that is too new. Then the sync
// starts again, and without force it merges that upload.
func (l *Library) takeBaseline(
	ctx context.Context, o Owner, skillID string, row skills.Pointer, ok bool, baseline string, force bool,
) (synced Synced, again bool, err error) {
	done := Synced{Baseline: baseline, Updated: []string{}, Removed: []string{}, Conflicts: []string{}}
	if err := l.compare(ctx, o, skillID, row.Digest, baseline, &done); err != nil {
		return Synced{}, false, err
	}
	var replaced bool
	if force {
		if replaced, err = l.replaceCopy(ctx, o, skillID, baseline); err != nil {
			return Synced{}, false, err
		}
	}
	taken := skills.PointerState{Digest: baseline, BaseDigest: baseline}
	if _, err := l.swap(ctx, o.key(skillID), stateOf(row, ok), taken); err != nil || replaced {
		if fault.Is(err, fault.SkillMoved) {
			return Synced{}, true, nil
		}
		return done, false, err
	}
	// As in overlay: another node may have made a copy of the previous version.
	if force {
		_, err = l.replaceCopy(ctx, o, skillID, baseline)
		return done, false, err
	}
	copied, err := l.openCopy(o, skillID)
	if copied == nil || err != nil {
		return done, false, err
	}
	defer copied.Close()
	// The copy is the user's, of the version that the pointer named before. If the pointer has
	// moved again, the other node's state stays.
	if _, err := l.swap(ctx, o.key(skillID), &taken, row.PointerState); err != nil && !fault.Is(err, fault.SkillMoved) {
		return Synced{}, false, err
	}
	return Synced{}, true, nil
}

// stateOf returns the state for a compare-and-swap of a row that was looked up.
func stateOf(row skills.Pointer, ok bool) *skills.PointerState {
	if !ok {
		return nil
	}
	return &row.PointerState
}

// compare lists the changes for the user: against the copy, or the version with the digest has.
func (l *Library) compare(ctx context.Context, o Owner, skillID, has, baseline string, done *Synced) error {
	before := map[string]skills.File{}
	if copied, err := l.openCopy(o, skillID); err == nil && copied != nil {
		defer copied.Close()
		if c, err := l.read(ctx, copied); err == nil { // an unreadable copy is replaced too
			before = c.ByPath()
		}
	} else if has != "" {
		c, err := l.stored(ctx, o, skillID, has)
		if err != nil {
			return err
		}
		before = c.ByPath()
	}
	c, err := l.stored(ctx, o, skillID, baseline)
	if err != nil {
		return err
	}
	after := c.ByPath()
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] != after[name] {
			done.Updated = append(done.Updated, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, stays := after[name]; !stays {
			done.Removed = append(done.Removed, content.Legible(name))
		}
	}
	return nil
}

// stored reads a stored version; an empty digest is one without files.
func (l *Library) stored(ctx context.Context, o Owner, skillID, digest string) (content.Content, error) {
	if digest == "" {
		return content.Content{}, nil
	}
	t, err := l.version(o, skillID, digest)
	if err != nil {
		return content.Content{}, err
	}
	defer t.Close()
	c, err := l.files.Read(ctx, o.AgentID+"/"+skillID+"/"+digest, t, l.Limits.Bytes)
	return c, failed(err, "the version")
}

// merge applies the baseline's changes. After that, the pointer moves only if its state is still
// the one that was read. A pointer that another node has moved meanwhile stays: either an upload
// has replaced the copy, or the other node has merged the same copy. Its base is at worst older
// than ours, which means needless conflicts; ours could be newer than the copy that is there now,
// and hide changes of others.
func (l *Library) merge(ctx context.Context, o Owner, skillID string, row skills.Pointer, ok bool, baseline string) (Synced, error) {
	if err := l.materialise(ctx, o, skillID); err != nil {
		return Synced{}, err
	}
	ours, err := l.stored(ctx, o, skillID, row.BaseDigest)
	if err != nil {
		return Synced{}, err
	}
	theirs, err := l.stored(ctx, o, skillID, baseline)
	if err != nil {
		return Synced{}, err
	}
	last := tree.ErrChanged
	for range tries {
		done, again, err := l.mergeOnce(ctx, o, skillID, ours.ByPath(), theirs.ByPath(), baseline)
		if again && ctx.Err() == nil {
			if last = tree.ErrChanged; tree.IsRefused(err) {
				last = err // it may be permanent, so the caller should know
			}
			continue
		}
		if err != nil || again {
			return Synced{}, failed(errors.Join(err, context.Cause(ctx)), "the skill "+skillID)
		}
		_, err = l.swap(ctx, o.key(skillID), stateOf(row, ok), skills.PointerState{Digest: baseline, BaseDigest: baseline})
		if fault.Is(err, fault.SkillMoved) {
			err = nil
		}
		return done, err
	}
	return Synced{}, failed(last, "the skill "+skillID)
}

// mergeOnce makes the merged tree beside the copy and exchanges the two; again means that the copy
// has changed meanwhile, and stays.
func (l *Library) mergeOnce(ctx context.Context, o Owner, skillID string, base, theirs map[string]skills.File,
	baseline string,
) (done Synced, again bool, err error) {
	copied, err := l.openCopy(o, skillID)
	if err != nil {
		return Synced{}, false, err
	}
	if copied == nil {
		return Synced{}, false, tree.ErrChanged
	}
	defer copied.Close()
	before, err := l.read(ctx, copied)
	if err != nil { // another node may have replaced the copy, and be removing it
		return Synced{}, movedAway(ctx, err), err
	}
	if before.Invalid != "" {
		return Synced{}, false, fault.New(fault.SkillConflict, "the skill %q cannot be merged: %s; remove or rename it, or force the sync",
			skillID, before.Invalid)
	}
	keep, take, done := threeWay(before.ByPath(), base, theirs)
	done.Baseline = baseline
	if len(done.Updated)+len(done.Removed) == 0 {
		return done, !l.current(o, skillID, copied), nil
	}
	p, err := l.Workspace.Project(o.ProjectID())
	if err != nil {
		return Synced{}, false, err
	}
	staged, err := p.Stage()
	if err != nil {
		return Synced{}, false, err
	}
	defer staged.Discard()
	from, err := l.version(o, skillID, baseline)
	if err != nil {
		return Synced{}, false, err
	}
	defer from.Close()
	if err := staged.CopyFrom(ctx, copied, content.Bounds, func(name string) bool { return keep[name] }); err != nil {
		return Synced{}, movedAway(ctx, err) || !l.current(o, skillID, copied), err
	}
	if err := staged.CopyFrom(ctx, from, content.Bounds, func(name string) bool { return take[name] }); err != nil {
		return Synced{}, false, err
	}
	if now, err := l.read(ctx, copied); err != nil || now.Digest != before.Digest {
		return Synced{}, true, nil
	}
	work, err := p.Work()
	if err != nil {
		return Synced{}, false, err
	}
	defer work.Close()
	err = work.Replace(staged, skillPath(skillID), copied)
	if errors.Is(err, tree.ErrChanged) {
		return Synced{}, true, nil
	}
	if err != nil {
		return Synced{}, false, err
	}
	late, err := l.carryOver(ctx, copied, before, work, skillID)
	done.Conflicts = append(done.Conflicts, late...)
	slices.Sort(done.Conflicts)
	done.Conflicts = slices.Compact(done.Conflicts)
	return done, false, err
}

// carryOver finds late writes in the replaced copy, repeats them in the new one, and returns their
// paths, as the user should review them.
func (l *Library) carryOver(ctx context.Context, old *tree.Tree, before content.Content, work *tree.Tree, skillID string) (late []string,
	err error,
) {
	var now content.Content
	for range tries {
		if now, err = l.read(ctx, old); !movedAway(ctx, err) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	seen := before.ByPath()
	for name, file := range now.ByPath() {
		if file == seen[name] {
			continue
		}
		late = append(late, name)
		content, _, err := readFile(old, name)
		if err == nil {
			err = writeAs(work, skillPath(skillID)+"/"+name, content, file.Executable)
		}
		if err != nil {
			return late, err
		}
	}
	return late, nil
}

// writeAs writes a file that is executable or not, whatever it replaces.
func writeAs(work *tree.Tree, path string, content []byte, executable bool) error {
	c, err := work.NewContent()
	if err != nil {
		return err
	}
	defer c.Discard()
	c.Mode = tree.PlainMode(executable)
	if _, err := c.Write(content); err != nil {
		return err
	}
	return work.Place(c, path, nil)
}

// threeWay decides about each file: keep has the files of mine that stay, and take has the files of
// theirs that replace or join them. Two files whose names some systems do not distinguish, or a
// file in the place of a directory, are a conflict like two contents of one file.
func threeWay(mine, base, theirs map[string]skills.File) (keep, take map[string]bool, done Synced) {
	keep, take = map[string]bool{}, map[string]bool{}
	done = Synced{Updated: []string{}, Removed: []string{}, Conflicts: []string{}}
	taken := spellings{}
	var wanted []string
	all := maps.Clone(mine)
	maps.Copy(all, base)
	maps.Copy(all, theirs)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m, hasMine := mine[name]
		b, hadBase := base[name]
		t, hasTheirs := theirs[name]
		switch {
		case hasMine == hasTheirs && m == t: // equal on both sides
		case hadBase == hasTheirs && b == t: // theirs is unchanged
		case hasMine == hadBase && m == b: // mine is unchanged
			if hasTheirs {
				wanted = append(wanted, name)
			} else {
				done.Removed = append(done.Removed, name)
			}
			continue
		default:
			done.Conflicts = append(done.Conflicts, name)
		}
		if hasMine {
			keep[name] = true
			taken.add(name)
		}
	}
	for _, name := range wanted {
		if taken.clash(name) {
			done.Conflicts = append(done.Conflicts, name)
			if _, ok := mine[name]; ok {
				keep[name] = true
			}
			continue
		}
		take[name] = true
		done.Updated = append(done.Updated, name)
	}
	slices.Sort(done.Conflicts)
	return keep, take, done
}

// spellings has, by folded name, the spelling of files and directories.
type spellings map[string]spelling

type spelling struct {
	name string
	file bool
}

func (s spellings) add(file string) {
	s[pathadapter.FoldName(file)] = spelling{file, true}
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		s[pathadapter.FoldName(dir)] = spelling{dir, false}
	}
}

// clash reports whether a file cannot coexist with the added ones.
func (s spellings) clash(file string) bool {
	if _, ok := s[pathadapter.FoldName(file)]; ok {
		return true
	}
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		if other, ok := s[pathadapter.FoldName(dir)]; ok && (other.file || other.name != dir) {
			return true
		}
	}
	return false
}
