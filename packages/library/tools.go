package library

import (
	"context"
	"errors"
	"io/fs"
	"sync/atomic"

	"secbox/fault"
	"secbox/packages/archive"
	"secbox/skills"
	"secbox/skills/invoke"
	"secbox/workspace/tree"
)

// Tools returns the user's packages with a manifest.json, by id: the valid ones, and the broken
// ones with their problems. A copy in the workspace comes before the version that the user is
// pinned to. Packages are cached by digest, so a call costs as much as List. Packages that exceed
// maxListed are broken.
func (l *Library) Tools(ctx context.Context, o Owner) ([]*skills.Skill, []skills.Broken, error) {
	all, err := l.all(ctx, o, false)
	if err != nil {
		return nil, nil, err
	}
	defer all.close()
	found := make([]toolState, len(all.ids))
	var held atomic.Int64
	err = inParallel(len(found), func(n int) (err error) {
		id := all.ids[n]
		if all.copied[id] {
			found[n], err = l.toolInCopy(ctx, o, id, all.copies)
		} else {
			found[n], err = l.toolInVersion(ctx, o, id, all.rows[id].Digest)
		}
		if err != nil && ctx.Err() == nil { // it hides only itself
			l.Log.InfoContext(ctx, "a package cannot be read", "agent", o.AgentID, "user", o.UserID, "skill", id, "error", err)
			found[n], err = broken("cannot be read: %s", fault.From(failed(err, "the package")).Message), nil
		}
		if found[n].skill != nil && held.Add(int64(found[n].weight())) > maxListed {
			found[n] = broken("exceeds a limit: the tools of this user take more than %d MiB of memory together", maxListed>>20)
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
			bad = append(bad, skills.Broken{Folder: all.ids[n], Source: skills.Package, Problems: one.problems})
		}
	}
	return tools, bad, nil
}

// Tool returns one package, ready to run: its folder, with exactly the content of its digest, is in
// the inputs of the workspace, and later changes of the copy do not affect it. fault.UnknownSkill
// when there is no such package, or it has no manifest.json, or is broken; fault.SkillChanged when
// it changes faster than it can be copied.
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
				"the package %q is broken: %s; GET /skills?broken=true&agent_id=…&user_id=… lists its problems", skillID, sentence(p))
		case one.skill == nil:
			return nil,
				fault.New(fault.UnknownSkill,
					"the package %q has no %s: it can be read, and commands can run in it, but it cannot be invoked",
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

// ToolVersion is Tool for the version with this digest: the user's own copy, or a stored version
// that is not removed yet. fault.UnknownSkill when there is none.
func (l *Library) ToolVersion(ctx context.Context, o Owner, skillID, digest string) (*skills.Skill, error) {
	if one, err := l.Tool(ctx, o, skillID); err == nil && one.Digest == digest {
		return one, nil
	}
	if archive.CheckID(skillID) != nil || !tree.IsDigest(digest) {
		return nil, unknownSkill(skillID)
	}
	one, err := l.toolInVersion(ctx, o, skillID, digest)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (one.skill == nil || one.skill.Digest != digest) {
		return nil, unknownSkill(skillID)
	}
	return one.skill, failed(err, "the skill "+skillID)
}

// sentence describes a problem as part of a sentence.
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

func (l *Library) tool(ctx context.Context, o Owner, skillID string) (toolState, error) {
	in, err := l.openCopies(o)
	if err != nil {
		return toolState{}, err
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
		return toolState{}, err
	}
	if !ok || row.Digest == "" {
		return toolState{}, unknownSkill(skillID)
	}
	return l.toolInVersion(ctx, o, skillID, row.Digest)
}

// toolInVersion loads a stored version, which is immutable.
func (l *Library) toolInVersion(ctx context.Context, o Owner, skillID, digest string) (toolState, error) {
	files := reopened(func() (*tree.Tree, error) { return l.version(o, skillID, digest) })
	if one, ok := l.tools.get(skillID, digest); ok {
		return one.from(files), nil
	}
	t, err := l.version(o, skillID, digest)
	if err != nil {
		return toolState{}, err
	}
	defer t.Close()
	one, err := l.load(ctx, o, "", skillID, digest, t)
	if err == nil {
		l.tools.put(skillID, digest, one)
	}
	return one.from(files), err
}

// toolInCopy loads the user's copy; fs.ErrNotExist when there is none. It repeats if the copy is
// replaced meanwhile.
func (l *Library) toolInCopy(ctx context.Context, o Owner, skillID string, in *tree.Tree) (one toolState, err error) {
	key := o.ProjectID() + "/" + skillID
	files := reopened(func() (*tree.Tree, error) { return l.openCopy(o, skillID) })
	if digest, ok := l.files.Unchanged(key, skillID, in); ok {
		digest = l.known(o.AgentID, skillID, digest)
		if one, ok := l.tools.get(skillID, digest); ok { // an empty digest is never in it
			return one.from(files), nil
		}
	}
	for range tries {
		var t *tree.Tree
		if t, err = in.Dir(skillID); err != nil {
			return toolState{}, err
		}
		one, err = l.load(ctx, o, key, skillID, "", t)
		now, gone := in.Lstat(skillID)
		still := gone == nil && t.Is(now)
		t.Close()
		if ctx.Err() != nil || still && !changing(err) {
			return one.from(files), err
		}
	}
	return toolState{}, failed(tree.ErrChanged, "the skill "+skillID)
}

// changing reports whether an error means that the files changed meanwhile. A file that cannot be
// opened as one was replaced after it was listed, as by an edit.
func changing(err error) bool {
	return errors.Is(err, skills.ErrChanged) || errors.Is(err, tree.ErrChanged) || tree.IsRefused(err)
}

// load loads a package. key is the tree's in the cache of files, and digest names a stored version;
// empty for a copy.
func (l *Library) load(ctx context.Context, o Owner, key, skillID, digest string, t *tree.Tree) (toolState, error) {
	if _, err := t.Lstat(skills.ManifestFile); errors.Is(err, fs.ErrNotExist) {
		return toolState{}, nil // most packages are for reading, not calling
	}
	c, err := l.files.Read(ctx, key, t, skills.MaxPackageBytes)
	switch {
	case errors.Is(err, tree.ErrTooLarge):
		return broken("holds more than %d MiB, or too many files, to be copied for every project that invokes it",
			skills.MaxPackageBytes>>20), nil
	case err != nil:
		return toolState{}, err
	case c.Invalid != "":
		return broken("cannot be invoked: %s; a package that can be invoked holds plain files and directories only", c.Invalid), nil
	}
	if digest == "" || !c.Has(digest) { // a damaged version is not what its digest says
		if digest, err = l.named(ctx, o.AgentID, skillID, c); err != nil {
			return toolState{}, err
		}
	}
	if one, ok := l.tools.get(skillID, digest); ok {
		return one, nil
	}
	skill, problems, err := skills.LoadPackage(skillID, c.Files, t.FS())
	if skill != nil {
		skill.Digest = digest
	}
	one := toolState{skill, problems}
	if err == nil {
		l.tools.put(skillID, digest, one)
	}
	return one, err
}
