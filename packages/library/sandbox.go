package library

import (
	"context"
	"io"
	"slices"
	"strings"

	"secbox/fault"
	"secbox/packages/archive"
	"secbox/pathadapter"
	"secbox/workspace/tree"
)

// SandboxFiles lists the regular files in the user's work/, in byte order of their paths, with the
// user's skills, whether or not they have been copied there. fault.TreeTooLarge when there are more
// than 10,000 entries, or more than 64 levels of directories.
func (l *Library) SandboxFiles(ctx context.Context, o Owner) ([]string, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	work, err := l.work(o)
	if err != nil {
		return nil, err
	}
	list := []string{}
	if work != nil {
		defer work.Close()
		if list, err = files(ctx, work, tree.ListingBounds); err != nil {
			return nil, failed(err, "the workspace")
		}
	}
	stored, err := l.storedFiles(ctx, o, work, len(list))
	if err != nil {
		return nil, err
	}
	if len(stored) > 0 {
		list = append(list, stored...)
		slices.Sort(list)
	}
	return slices.DeleteFunc(slices.Compact(list), shadowsGlobal), nil
}

// SandboxRead returns a file in the user's work/, of at most MaxFileBytes. Paths below
// skills/skill-creator/ lead to the installation's skill.
func (l *Library) SandboxRead(ctx context.Context, o Owner, path string) (content []byte, err error) {
	err = l.inSandbox(ctx, o, path, func(t *tree.Tree, path string) (err error) {
		content, _, err = readFile(t, path)
		return err
	})
	return content, err
}

// SandboxReadLines is ReadLines for a file in the user's work/.
func (l *Library) SandboxReadLines(ctx context.Context, o Owner, path string, r LineRange) (some []string, err error) {
	err = l.inSandbox(ctx, o, path, func(t *tree.Tree, path string) (err error) {
		some, err = readLines(ctx, t, path, r)
		return err
	})
	return some, err
}

// inSandbox calls f with the tree that a path in the user's work/ leads into, and the path in that
// tree.
func (l *Library) inSandbox(ctx context.Context, o Owner, path string, f func(*tree.Tree, string) error) error {
	if err := o.check(); err != nil {
		return err
	}
	path, err := cleanPath(path, "the workspace")
	if err != nil {
		return err
	}
	if skillID, below, ok := inSkill(path); ok && shadowsGlobal(path) {
		return l.inSkillFile(ctx, o, skillID, below, f)
	}
	work, err := l.work(o)
	if err != nil {
		return err
	}
	if work != nil {
		defer work.Close()
	}
	if skillID, below, ok := withoutCopy(work, path); ok { // as MaterialiseAll would copy it
		if err := l.inSkillFile(ctx, o, skillID, below, f); !fault.Is(err, fault.UnknownSkill) {
			return err
		}
	}
	if work == nil {
		return fault.New(fault.UnknownFile, "there is no file %q: the workspace is empty", path)
	}
	return f(work, path)
}

// SandboxEdit writes a file in the user's work/, as Edit does in a skill. For a file of a skill it
// first makes the user's copy: a copy with this one file would hide all the others.
func (l *Library) SandboxEdit(ctx context.Context, o Owner, file string, content []byte, r *LineRange) (d Digests, err error) {
	file, err = checkSandboxFile(o, file)
	if err != nil {
		return d, err
	}
	if err := checkSize(content); err != nil {
		return d, err
	}
	err = l.changeInSandbox(ctx, o, file, l.edit(content, r, &d))
	return d, err
}

// checkSandboxFile checks a path in the user's work/ that is to be written, and cleans it.
func checkSandboxFile(o Owner, file string) (string, error) {
	if err := o.check(); err != nil {
		return "", err
	}
	file, err := cleanPath(file, "the workspace")
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(file, "/")
	skillID, below, isSkill := inSkill(file)
	switch {
	case first != skillsDir && pathadapter.FoldName(first) == skillsDir:
		err = refused("differs from skills only by case, which some systems do not distinguish: write skills, or use another name")
	case first == skillsDir && !isSkill:
		err = refused("is not allowed: skills/ has one directory for each skill; give skills/<skill>/<file>")
	case isSkill:
		if err = checkIDs(o, skillID); err == nil {
			err = checkSkillFile(below)
		}
	}
	return file, err
}

// changeInSandbox makes a change to a file that checkSandboxFile allows.
func (l *Library) changeInSandbox(ctx context.Context, o Owner, file string, c change) error {
	skillID, below, isSkill := inSkill(file)
	if !isSkill {
		return l.changeInWork(ctx, o, file, c)
	}
	err := l.changeCopy(ctx, o, skillID, below, c)
	if !fault.Is(err, fault.UnknownSkill) {
		return err
	}
	// It begins a skill of the user's own.
	release, err := l.locks.Take(ctx, o.AgentID+"/"+pathadapter.FoldName(skillID))
	if err != nil {
		return err
	}
	defer release()
	agent, err := l.Versions.Agent(o.AgentID)
	if err != nil {
		return err
	}
	if err := l.checkSpelling(ctx, agent, o, Overlay, skillID); err != nil {
		return err
	}
	done, err := l.lock(ctx, o, skillID)
	if err != nil {
		return err
	}
	defer done()
	// Another request may have begun the same skill meanwhile.
	if err := l.materialise(ctx, o, skillID); err != nil && !fault.Is(err, fault.UnknownSkill) {
		return err
	}
	return l.changeInWork(ctx, o, file, c)
}

func (l *Library) changeInWork(ctx context.Context, o Owner, file string, c change) error {
	work, err := l.makeWork(o)
	if err != nil {
		return err
	}
	defer work.Close()
	return write(ctx, work, file, c)
}

// makeWork opens the user's work/, and makes it if it does not exist yet.
func (l *Library) makeWork(o Owner) (*tree.Tree, error) {
	p, err := l.Workspace.Project(o.ProjectID())
	if err != nil {
		return nil, err
	}
	return p.Work()
}

// Download writes the user's version of a skill to w, as a ZIP archive that can be uploaded again.
// fault.SkillConflict when an archive cannot hold it, for example because of a link. Nothing is
// written to w on errors about the skill.
func (l *Library) Download(ctx context.Context, o Owner, skillID string, w io.Writer) error {
	if err := checkIDsForReading(o, skillID); err != nil {
		return err
	}
	t, release, err := l.snapshot(ctx, o, skillID)
	if err != nil {
		return err
	}
	defer release()
	return archive.Pack(ctx, w, t.FS(), skillID)
}

// snapshot returns a tree that does not change while a slow client downloads it: the version
// itself, or a copy of the user's copy.
func (l *Library) snapshot(ctx context.Context, o Owner, skillID string) (*tree.Tree, func(), error) {
	done, err := l.lock(ctx, o, skillID)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	copied, err := l.openCopy(o, skillID)
	if err != nil {
		return nil, nil, err
	}
	if copied == nil {
		t, _, err := l.open(ctx, o, skillID)
		if err != nil {
			return nil, nil, err
		}
		return t, func() { t.Close() }, nil
	}
	defer copied.Close()
	staged, err := l.stage(o)
	if err != nil {
		return nil, nil, err
	}
	if _, err = l.capture(ctx, o, skillID, copied, staged); err == nil {
		var t *tree.Tree
		if t, err = staged.Tree(); err == nil {
			return t, func() { t.Close(); staged.Discard() }, nil
		}
	}
	staged.Discard()
	return nil, nil, failed(err, "the skill "+skillID)
}
