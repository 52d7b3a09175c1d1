package library

import (
	"context"
	"errors"
	"io/fs"

	"secbox/packages/archive"
	"secbox/packages/metadata"
	"secbox/skills"
	"secbox/workspace/tree"
)

// complete fills in an entry of a list. in is nil when there is no copy of this skill.
func (l *Library) complete(ctx context.Context, o Owner, one *Listed, row, baseline skills.Pointer, in *tree.Tree) error {
	one.Name, one.Description = one.SkillID, metadata.NoDescription
	if in != nil {
		if err := l.readCopy(ctx, o, one, in); err != nil {
			return err
		}
	} else {
		one.Digest = row.Digest
		if about, ok := l.about.get(one.SkillID, row.Digest); ok {
			one.say(about)
		} else if t, err := l.version(o, one.SkillID, row.Digest); err == nil {
			one.describe(l, t)
			t.Close()
		} else {
			l.Log.WarnContext(ctx, "a version of a skill is missing", "agent", o.AgentID, "skill", one.SkillID, "digest", row.Digest,
				"error", err)
		}
	}
	one.Status, one.BaselineChanged = statusOf(one.Digest, row.BaseDigest, baseline.Digest)
	return nil
}

func (l *Library) readCopy(ctx context.Context, o Owner, one *Listed, in *tree.Tree) error {
	var err error
	for range tries {
		var again bool
		if again, err = l.tryCopy(ctx, o, one, in); !again {
			break
		}
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.Log.InfoContext(ctx, "a user's copy of a skill cannot be read", "agent", o.AgentID, "user", o.UserID, "skill", one.SkillID, "error",
		err)
	return nil
}

// tryCopy reads a copy; again means that it was replaced meanwhile, and is being removed.
func (l *Library) tryCopy(ctx context.Context, o Owner, one *Listed, in *tree.Tree) (again bool, err error) {
	key := o.ProjectID() + "/" + one.SkillID
	if digest, ok := l.files.Unchanged(key, one.SkillID, in); ok {
		digest = l.known(o.AgentID, one.SkillID, digest)
		if known, ok := l.about.get(one.SkillID, digest); ok { // an empty digest is never in it
			one.Digest = digest
			one.say(known)
			return false, nil
		}
	}
	t, err := in.Dir(one.SkillID)
	if err != nil {
		return false, err
	}
	defer t.Close()
	c, err := l.files.Read(ctx, key, t, l.Limits.Bytes)
	if now, e := in.Lstat(one.SkillID); e == nil && !t.Is(now) && ctx.Err() == nil {
		return true, err
	}
	if err == nil && !l.viewing && isNested(c, one.SkillID) {
		l.files.Distrust(key)
		if l.unnest(ctx, o, one.SkillID, in) {
			return true, nil
		}
	}
	if err == nil {
		one.Digest, err = l.named(ctx, o.AgentID, one.SkillID, c)
		one.describe(l, t)
	}
	return false, err
}

// statusOf compares the user's digest with its base and the present baseline; each may be empty. A
// skill whose baseline was deleted is the user's own.
func statusOf(has, base, baseline string) (s Status, baselineChanged bool) {
	switch {
	case has != "" && has == baseline: // even if they became equal independently
		return Unchanged, false
	case baseline == "":
		return NewSkill, false
	case has != "" && has == base:
		return OutOfSync, true
	}
	return Modified, base != baseline
}

// describe reads, or gets from the cache, what the skill says of itself.
func (one *Listed) describe(l *Library, t *tree.Tree) {
	known, ok := l.about.get(one.SkillID, one.Digest)
	if !ok {
		known = metadata.Describe(t.FS(), one.SkillID)
		l.about.put(one.SkillID, one.Digest, known)
	}
	one.say(known)
}

func (one *Listed) say(about metadata.About) {
	one.Name, one.Description, one.Warning = about.Name, about.Description, about.Warning
}

// openCopies opens the user's work/skills/; nil when there is none.
func (l *Library) openCopies(o Owner) (*tree.Tree, error) {
	work, err := l.work(o)
	if work == nil || err != nil {
		return nil, err
	}
	defer work.Close()
	dir, err := work.Dir(skillsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return dir, failed(err, "skills in the workspace")
}

// copyNames returns the names of directories that can be copies of skills.
func copyNames(copies *tree.Tree) (map[string]bool, error) {
	names := map[string]bool{}
	if copies == nil {
		return names, nil
	}
	list, err := fs.ReadDir(copies.FS(), ".")
	if err != nil {
		return nil, failed(err, "skills in the workspace")
	}
	for _, e := range list {
		if e.IsDir() && archive.CheckID(e.Name()) == nil {
			names[e.Name()] = true
		}
	}
	return names, nil
}

// maxAbout bounds the cached names and descriptions, which take at most 5 KB each and usually 200
// bytes.
const maxAbout = 10_000
