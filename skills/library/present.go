package library

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"

	"secbox/fault"
	"secbox/skills/archive"
	"secbox/skills/content"
	"secbox/tree"
)

// MaterialiseAll copies every skill of the user that has no copy into the workspace, where commands find them, and pins the user to new
// baselines first. A skill that cannot be copied is logged and left out: a command may be what repairs it. toolDir is where commands find the
// installation's own skill; a link to it has the skill's place among the others.
//
// It is called before every command. When nothing is missing, it costs two reads of the registry and one of the directory of copies. It keeps
// no state, so that an interrupted call, or copies that a command has removed, need no special care.
func (l *Library) MaterialiseAll(ctx context.Context, o Owner, toolDir string) error {
	all, err := l.all(ctx, o, false)
	if fault.Is(err, fault.PathRefused) || fault.Is(err, fault.ProjectDamaged) { // a command has put something else in the place of skills/
		l.Log.DebugContext(ctx, "a user's skills cannot be copied into the workspace", "agent", o.AgentID, "user", o.UserID, "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	defer all.close()
	missing := slices.DeleteFunc(all.ids, func(id string) bool { return all.copied[id] })
	if err := inParallel(len(missing), func(n int) error {
		err := l.checkRoomFor(0, 1)
		if err == nil {
			err = l.Materialise(ctx, o, missing[n])
		}
		if err != nil && !fault.Is(err, fault.UnknownSkill) { // it was deleted meanwhile
			level := slog.LevelWarn
			if fault.Is(err, fault.PathRefused) { // a command can cause it at will
				level = slog.LevelDebug
			}
			l.Log.Log(ctx, level, "a skill was not copied into the workspace", "agent", o.AgentID, "user", o.UserID, "skill", missing[n], "error", err)
		}
		return context.Cause(ctx)
	}); err != nil {
		return err
	}
	if err := l.linkTool(o, toolDir, all.copies); err != nil {
		l.Log.DebugContext(ctx, "the installation's own skill has no link in the workspace", "agent", o.AgentID, "user", o.UserID, "error", err)
	}
	return nil
}

// linkTool makes work/skills/skill-creator a link to the installation's own skill, unless something else is in its place. copies is
// work/skills/; nil when there was none.
func (l *Library) linkTool(o Owner, toolDir string, copies *tree.Tree) error {
	if l.Versions.Tool() == nil {
		return nil
	}
	if copies != nil {
		if target, err := copies.Readlink(archive.ReservedID); err == nil && target == toolDir {
			return nil
		}
	}
	work, err := l.makeWork(o)
	if err != nil {
		return err
	}
	defer work.Close()
	return work.Link(toolDir, skillPath(archive.ReservedID))
}

// withoutCopy reports whether a clean path below work/ is a file of a skill that has no copy, nor anything else in its place.
func withoutCopy(work *tree.Tree, path string) (skillID, below string, ok bool) {
	skillID, below, ok = inSkill(path)
	if !ok || archive.CheckID(skillID) != nil {
		return "", "", false
	}
	if work == nil {
		return skillID, below, true
	}
	_, err := work.Lstat(skillPath(skillID))
	return skillID, below, errors.Is(err, fs.ErrNotExist)
}

// storedFiles lists the files of the user's skills without copies, with their paths below work/, at most as many as bounds allow beside have.
func (l *Library) storedFiles(ctx context.Context, o Owner, work *tree.Tree, have int) ([]string, error) {
	var list []string
	all, err := l.all(ctx, o, false)
	if fault.Is(err, fault.PathRefused) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer all.close()
	for _, skillID := range all.ids {
		if all.copied[skillID] {
			continue
		}
		if _, _, ok := withoutCopy(work, skillPath(skillID)+"/x"); !ok {
			continue
		}
		t, err := l.version(o, skillID, all.rows[skillID].Digest)
		if err != nil {
			l.Log.WarnContext(ctx, "a version of a skill is missing", "agent", o.AgentID, "skill", skillID, "error", err)
			continue
		}
		names, err := files(ctx, t, content.Bounds)
		t.Close()
		if err != nil {
			return nil, failed(err, "the skill "+skillID)
		}
		if have += len(names); have > tree.MaxEntries {
			return nil, failed(tree.ErrTooLarge, "the workspace")
		}
		for _, name := range names {
			list = append(list, skillPath(skillID)+"/"+name)
		}
	}
	return list, nil
}
