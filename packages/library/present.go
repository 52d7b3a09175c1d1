package library

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"secbox/fault"
	"secbox/packages/archive"
	"secbox/packages/content"
	"secbox/skills"
	"secbox/workspace/tree"
)

// MaterialiseAll copies every skill of the user that has no copy into the workspace, where commands
// find them, and pins the user to new baselines first. A skill that cannot be copied is logged and
// left out: a command may be what repairs it. toolDir is where commands find the installation's own
// skill; a link to it has the skill's place among the others.
//
// It is called before every command. When nothing was missing within the last second, and neither a
// pointer nor work/skills/ has changed since, it costs one stat. All other calls look at every
// skill: an interrupted call, or copies that a command has removed, need no special care. So a
// change of pointers on another node is noticed after a second at most.
func (l *Library) MaterialiseAll(ctx context.Context, o Owner, toolDir string) error {
	if err := o.check(); err != nil {
		return err
	}
	now := placed{moves: l.moves.Load(), at: l.Now()}
	now.copies, _ = l.statCopies(o)
	if known, ok := l.placed.get(o.ProjectID(), toolDir); ok && known.holds(now) {
		return nil
	}
	all, err := l.materialiseAll(ctx, o, toolDir)
	if all && now.at.Sub(now.copies.Newest()) > settle {
		l.placed.put(o.ProjectID(), toolDir, now)
	}
	return err
}

// placed is a moment at which a workspace had copies of all skills.
type placed struct {
	at     time.Time
	moves  uint64        // of pointers, by this process
	copies tree.FileStat // of work/skills/
}

// holds reports whether the workspace still has all copies.
func (c placed) holds(now placed) bool {
	age := now.at.Sub(c.at)
	return c.moves == now.moves && c.copies == now.copies && age >= 0 && age < recheck
}

const (
	// recheck is how long a complete workspace is taken for complete, whatever other nodes do.
	recheck = time.Second
	// settle is the age of the last change of work/skills/ from which on its stat data is trusted:
	// longer than a tick of any file system's clock.
	settle = 2 * time.Second
	// maxComplete bounds the workspaces that are known to be complete, at about 300 bytes each.
	maxComplete = 10_000
)

// countedRegistry counts the calls that may have moved pointers.
type countedRegistry struct {
	skills.Registry
	moves *atomic.Uint64
}

func (r countedRegistry) Set(ctx context.Context, key skills.PointerKey, saw *skills.PointerState,
	want skills.PointerState,
) (skills.Pointer, error) {
	defer r.moves.Add(1)
	return r.Registry.Set(ctx, key, saw, want)
}

func (r countedRegistry) Pin(ctx context.Context, agentID, userID string) (skills.Pinned, error) {
	pinned, err := r.Registry.Pin(ctx, agentID, userID)
	if pinned.Added > 0 || err != nil {
		r.moves.Add(1)
	}
	return pinned, err
}

func (r countedRegistry) Remove(ctx context.Context, key skills.PointerKey, saw skills.PointerState) error {
	defer r.moves.Add(1)
	return r.Registry.Remove(ctx, key, saw)
}

// statCopies returns the stat data of work/skills/.
func (l *Library) statCopies(o Owner) (tree.FileStat, error) {
	work, err := l.work(o)
	if err != nil {
		return tree.FileStat{}, err
	}
	if work == nil {
		return tree.FileStat{}, fs.ErrNotExist
	}
	defer work.Close()
	fi, err := work.Lstat(skillsDir)
	if err != nil {
		return tree.FileStat{}, err
	}
	return tree.StatOf(fi), nil
}

// materialiseAll reports whether nothing was missing.
func (l *Library) materialiseAll(ctx context.Context, o Owner, toolDir string) (all bool, err error) {
	have, err := l.all(ctx, o, false)
	if fault.Is(err, fault.PathRefused) { // a command has put something else in the place of skills/
		if e := l.freeCopies(o); e != nil {
			err = errors.Join(err, e)
		} else {
			have, err = l.all(ctx, o, false)
		}
	}
	if fault.Is(err, fault.PathRefused) {
		l.Log.DebugContext(ctx, "a user's skills cannot be copied into the workspace", "agent", o.AgentID, "user", o.UserID, "error", err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer have.close()
	missing := slices.DeleteFunc(have.ids, func(id string) bool { return have.copied[id] })
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
			l.Log.Log(ctx, level, "a skill was not copied into the workspace", "agent", o.AgentID, "user", o.UserID, "skill", missing[n],
				"error", err)
		}
		return context.Cause(ctx)
	}); err != nil {
		return false, err
	}
	if err := l.linkTool(o, toolDir, have.copies); err != nil {
		l.Log.DebugContext(ctx, "the installation's own skill has no link in the workspace", "agent", o.AgentID, "user", o.UserID, "error",
			err)
	}
	return len(missing) == 0, nil
}

// freeCopies moves aside what is in the place of work/skills/ and is no directory: by a link, the
// next command would run what another one has put where it leads as the installation's own skill.
func (l *Library) freeCopies(o Owner) error {
	work, err := l.work(o)
	if work == nil || err != nil {
		return err
	}
	defer work.Close()
	return work.MoveAside(skillsDir)
}

// ToolLink is the path below work/ where commands find the installation's own skill among the
// others.
const ToolLink = skillsDir + "/" + archive.ReservedID

// linkTool makes ToolLink a link to the installation's own skill: commands must not run what
// another one has put in its place, which is moved aside. copies is work/skills/; nil when there
// was none.
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
	return work.Link(toolDir, ToolLink)
}

// withoutCopy reports whether a clean path below work/ is a file of a skill that has no copy, nor
// anything else in its place.
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

// storedFiles lists the files of the user's skills without copies, with their paths below work/, at
// most as many as bounds allow beside have.
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
