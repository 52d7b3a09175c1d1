package library

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync/atomic"

	"secbox/fault"
	"secbox/skills"
	"secbox/skills/archive"
	"secbox/skills/invoke"
	"secbox/tree"
)

// Tools are the user's packages that carry a manifest.json, by id: those that can be invoked, and the others with what is wrong with them.
// Of each it is the user's own version that counts, the copy in the workspace before the version that the user is pinned to. What is known
// of a version is remembered by its digest, so that a look costs what List costs; packages without a manifest.json cost next to nothing.
// Those that would make the answer larger than maxListed are broken.
func (l *Library) Tools(ctx context.Context, o Owner) ([]*skills.Skill, []skills.Broken, error) {
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	if _, err := l.Registry.Pin(ctx, o.AgentID, o.UserID); err != nil {
		return nil, nil, err
	}
	rows, err := skills.PointersOf(ctx, l.Registry, o.AgentID, o.UserID)
	if err != nil {
		return nil, nil, err
	}
	in, err := l.openCopies(o)
	if err != nil {
		return nil, nil, err
	}
	if in != nil {
		defer in.Close()
	}
	ids, err := copyNames(in)
	if err != nil {
		return nil, nil, err
	}
	copied := maps.Clone(ids)
	for id, row := range rows {
		if row.Digest != "" {
			ids[id] = true
		}
	}
	order := slices.Sorted(maps.Keys(ids))
	found := make([]judged, len(order))
	var held atomic.Int64
	err = inParallel(len(order), func(n int) (err error) {
		id := order[n]
		if copied[id] {
			found[n], err = l.toolInCopy(ctx, o, id, in)
		} else {
			found[n], err = l.toolInVersion(ctx, o, id, rows[id].Digest)
		}
		if err != nil && ctx.Err() == nil { // it hides only itself
			l.Log.InfoContext(ctx, "a package cannot be looked at", "agent", o.AgentID, "user", o.UserID, "skill", id, "error", err)
			found[n], err = broken("cannot be read: %s", fault.From(failed(err, "the package")).Message), nil
		}
		if found[n].skill != nil && held.Add(int64(found[n].weight())) > maxListed {
			found[n] = broken("is one too many: the tools of this user take more than %d MiB of memory together", maxListed>>20)
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	var tools []*skills.Skill
	var bad []skills.Broken
	for n, one := range found {
		switch {
		case one.skill != nil:
			tools = append(tools, one.skill)
		case one.problems != nil:
			bad = append(bad, skills.Broken{Folder: order[n], Source: skills.Package, Problems: one.problems})
		}
	}
	return tools, bad, nil
}

// Tool is one of them, ready to run: its folder, which is exactly what its digest names, lies in the inputs of the workspace, and changes of
// the copy do not reach it any more. fault.UnknownSkill when there is no such package, when it carries no manifest.json and when it is
// broken; fault.SkillChanged when it changes faster than it can be copied.
func (l *Library) Tool(ctx context.Context, o Owner, skillID string) (*skills.Skill, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if archive.CheckID(skillID) != nil {
		return nil, unknownSkill(skillID)
	}
	for try := 1; ; try++ {
		one, err := l.tool(ctx, o, skillID)
		switch {
		case err != nil:
			return nil, failed(err, "the skill "+skillID)
		case one.problems != nil:
			p := one.problems[0]
			return nil, fault.New(fault.UnknownSkill,
				"the package %q is there, but cannot be invoked: %s; GET /skills?broken=true&agent_id=…&user_id=… says all that is wrong with it", skillID, sentence(p))
		case one.skill == nil:
			return nil, fault.New(fault.UnknownSkill, "the package %q carries no %s, so it can be read and commands can run in it, but it cannot be invoked",
				skillID, skills.ManifestFile)
		}
		p, err := l.Workspace.Project(o.ProjectID())
		if err == nil {
			err = p.PutFolder(invoke.FolderOf(one.skill))
		}
		if err == nil {
			return one.skill, nil
		}
		if try == tries || !fault.Is(err, fault.SkillChanged) || ctx.Err() != nil {
			return nil, err
		}
		l.files.Forget(o.ProjectID() + "/" + skillID)
	}
}

// sentence is a problem as a part of one.
func sentence(p skills.Problem) string {
	place := p.File
	if p.Pointer != "" {
		place += "#" + p.Pointer
	}
	if place == "" {
		place = "it"
	}
	return place + " " + p.Reason
}

func (l *Library) tool(ctx context.Context, o Owner, skillID string) (judged, error) {
	in, err := l.openCopies(o)
	if err != nil {
		return judged{}, err
	}
	if in != nil {
		defer in.Close()
		one, err := l.toolInCopy(ctx, o, skillID, in)
		if !errors.Is(err, fs.ErrNotExist) {
			return one, err
		}
	}
	row, ok, err := l.pointer(ctx, o, skillID)
	if err != nil {
		return judged{}, err
	}
	if !ok || row.Digest == "" {
		return judged{}, unknownSkill(skillID)
	}
	return l.toolInVersion(ctx, o, skillID, row.Digest)
}

// toolInVersion judges a stored version, which never changes.
func (l *Library) toolInVersion(ctx context.Context, o Owner, skillID, digest string) (judged, error) {
	files := versionFiles{l, o, skillID, digest}
	if one, ok := l.tools.get(skillID, digest); ok {
		return one.from(files), nil
	}
	t, err := l.version(o, skillID, digest)
	if err != nil {
		return judged{}, err
	}
	defer t.Close()
	one, err := l.judge(ctx, "", skillID, t)
	if err == nil {
		l.tools.put(skillID, digest, one)
	}
	return one.from(files), err
}

// toolInCopy judges the user's copy; fs.ErrNotExist when there is none. One that is replaced meanwhile is looked at again.
func (l *Library) toolInCopy(ctx context.Context, o Owner, skillID string, in *tree.Tree) (one judged, err error) {
	key, files := o.ProjectID()+"/"+skillID, copyFiles{l, o, skillID}
	if digest, ok := l.files.Unchanged(key, skillID, in); ok {
		if one, ok := l.tools.get(skillID, digest); ok { // never without a digest
			return one.from(files), nil
		}
	}
	for range tries {
		var t *tree.Tree
		if t, err = in.Dir(skillID); err != nil {
			return judged{}, err
		}
		one, err = l.judge(ctx, key, skillID, t)
		now, gone := in.Lstat(skillID)
		still := gone == nil && t.Is(now)
		t.Close()
		if ctx.Err() != nil || still && !changing(err) {
			return one.from(files), err
		}
	}
	return judged{}, failed(tree.ErrChanged, "the skill "+skillID)
}

// changing reports whether an error says that somebody was at the files meanwhile. What was seen as a file and cannot be opened as one was
// replaced in between, as an edit does.
func changing(err error) bool {
	return errors.Is(err, skills.ErrChanged) || errors.Is(err, tree.ErrChanged) || tree.IsRefused(err)
}

// judge reads a package's tree. What lies at key in the cache of files spares reading them.
func (l *Library) judge(ctx context.Context, key, skillID string, t *tree.Tree) (judged, error) {
	if _, err := t.Lstat(skills.ManifestFile); errors.Is(err, fs.ErrNotExist) {
		return judged{}, nil // most packages: to be read by agents, not called
	}
	c, err := l.files.Read(ctx, key, t, skills.MaxPackageBytes)
	switch {
	case errors.Is(err, tree.ErrTooLarge):
		return broken("holds more than %d MiB, or more files than are looked at; what can be invoked is copied for those who do", skills.MaxPackageBytes>>20), nil
	case err != nil:
		return judged{}, err
	case c.Odd != "":
		return broken("cannot be one: %s; a package that can be invoked holds plain files and directories only", c.Odd), nil
	}
	if one, ok := l.tools.get(skillID, c.Digest); ok {
		return one, nil
	}
	skill, problems, err := skills.LoadPackage(skillID, c.Files, t.FS())
	one := judged{skill, problems}
	if err == nil {
		l.tools.put(skillID, c.Digest, one)
	}
	return one, err
}
