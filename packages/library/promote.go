package library

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"secbox/fault"
	"secbox/packages/content"
	"secbox/packages/versions"
	"secbox/pathadapter"
	"secbox/skills"
	"secbox/workspace/tree"
)

// Promoted is the result of a promotion.
type Promoted struct {
	Digest   string
	Previous string // the baseline before; empty: none
}

// Promote makes the user's version of a skill the agent's baseline. It must be MODIFIED or NEW:
// fault.SkillConflict otherwise. When the baseline is not the base of the user's version, others'
// changes would be lost: fault.SkillMoved, unless force is set. Concurrent writes of execs or edits
// are in the new baseline completely or not at all, and stay in the user's copy. Other users keep
// their versions and see OUT_OF_SYNC. If digests of reviewed versions are given, the user's version
// must be one of them: fault.PreconditionFailed.
func (l *Library) Promote(ctx context.Context, o Owner, skillID string, force bool, reviewed ...string) (Promoted, error) {
	defer l.Changed(o, Baseline)
	if err := checkIDs(o, skillID); err != nil {
		return Promoted{}, err
	}
	agent, err := l.Versions.Agent(o.AgentID)
	if err != nil {
		return Promoted{}, err
	}
	release, err := l.claim(ctx, agent, o, Baseline, skillID)
	if err != nil {
		return Promoted{}, err
	}
	defer release()
	done, err := l.lock(ctx, o, skillID)
	if err != nil {
		return Promoted{}, err
	}
	defer done()
	p := promotion{l: l, o: o, skillID: skillID, agent: agent, force: force}
	if err := p.capture(ctx); err != nil {
		return Promoted{}, err
	}
	if p.staged != nil {
		defer p.staged.Discard()
	}
	if len(reviewed) > 0 && !slices.Contains(reviewed, p.digest) {
		return Promoted{}, fault.New(fault.PreconditionFailed,
			"the skill %q has changed since the review, to version %s: review its diff, and send the ETag of that as If-Match", skillID,
			p.digest)
	}
	return p.publish(ctx)
}

type promotion struct {
	l       *Library
	o       Owner
	skillID string
	agent   *versions.Agent
	force   bool

	saw    *skills.PointerState // the user's pointer; nil: none
	base   string               // the base of the user's version
	digest string               // of the user's version
	staged *tree.Staged         // the user's version, if it is not stored yet
}

// capture finds the user's version, and stages it if it is a copy in the workspace.
func (p *promotion) capture(ctx context.Context) error {
	row, ok, err := p.l.pointer(ctx, p.o, p.skillID)
	if err != nil {
		return err
	}
	p.base = row.BaseDigest
	p.saw = stateOf(row, ok)
	copied, err := p.l.openCopy(p.o, p.skillID)
	if err != nil {
		return err
	}
	if copied == nil {
		if !ok || row.Digest == "" {
			return unknownSkill(p.skillID)
		}
		p.digest = row.Digest
		return nil
	}
	defer copied.Close()
	if p.staged, err = p.agent.Stage(); err != nil {
		return err
	}
	c, err := p.l.capture(ctx, p.o, p.skillID, copied, p.staged)
	if err == nil {
		err = p.l.checkSkill(c)
	}
	if err != nil {
		p.staged.Discard()
		return failed(err, "the skill "+p.skillID)
	}
	p.digest, err = p.l.named(ctx, p.o.AgentID, p.skillID, c)
	return err
}

// publish moves the pointers.
func (p *promotion) publish(ctx context.Context) (Promoted, error) {
	stored := p.staged == nil
	for {
		key := p.o.baseline(p.skillID)
		baseline, ok, err := p.l.Registry.Get(ctx, key)
		if err != nil {
			return Promoted{}, err
		}
		switch s, moved := statusOf(p.digest, p.base, baseline.Digest); {
		case s != Modified && s != NewSkill:
			return Promoted{}, fault.New(fault.SkillConflict,
				"the skill %q is %s, so there is nothing to promote: change it first", p.skillID, s)
		case moved && !p.force:
			return Promoted{}, baselineMoved(p.skillID)
		}
		if !stored {
			if _, err := p.l.commit(ctx, p.agent, p.staged, p.skillID); err != nil {
				return Promoted{}, err
			}
			stored = true
		}
		_, err = p.l.swap(ctx, key, stateOf(baseline, ok), skills.PointerState{Digest: p.digest})
		if fault.Is(err, fault.SkillMoved) { // the new baseline may be a conflict
			continue
		}
		if err != nil {
			return Promoted{}, err
		}
		// The baseline is the user's version now. After a crash here, List finds them equal and
		// says UNCHANGED. If another node has set the user's pointer meanwhile, its state stays.
		_, err = p.l.swap(ctx, p.o.key(p.skillID), p.saw, skills.PointerState{Digest: p.digest, BaseDigest: p.digest})
		if fault.Is(err, fault.SkillMoved) {
			err = nil
		}
		return Promoted{Digest: p.digest, Previous: baseline.Digest}, err
	}
}

func baselineMoved(skillID string) error {
	return fault.New(fault.SkillMoved,
		"the baseline of %q has changed since the user's version was based on it: sync the skill first, or force the promotion "+
			"(force=true), which drops the other changes", skillID)
}

// capture copies a user's copy of a skill as of one moment: it repeats until the result equals a
// previous listing of the files.
func (l *Library) capture(ctx context.Context, o Owner, skillID string, from *tree.Tree, to *tree.Staged) (content.Content, error) {
	for range tries {
		before, err := l.read(ctx, from)
		if movedAway(ctx, err) {
			continue
		}
		if err != nil {
			return content.Content{}, err
		}
		if before.Invalid != "" {
			return content.Content{}, fault.New(fault.SkillConflict, "the skill %q cannot be copied: %s; remove or rename it", skillID,
				before.Invalid)
		}
		if err := l.checkRoomFor(uint64(before.Bytes()), uint64(len(before.Files))); err != nil {
			return content.Content{}, err
		}
		err = to.CopyFrom(ctx, from, content.Bounds, nil)
		if movedAway(ctx, err) {
			if err := to.Empty(ctx); err != nil {
				return content.Content{}, err
			}
			continue
		}
		if err != nil {
			return content.Content{}, err
		}
		copied, err := l.contentsOf(ctx, to)
		if err != nil {
			return content.Content{}, err
		}
		if copied.Digest == before.Digest {
			if !l.current(o, skillID, from) { // another node has replaced it, and is removing it file by file
				return content.Content{}, tree.ErrChanged
			}
			return copied, nil
		}
		if err := to.Empty(ctx); err != nil {
			return content.Content{}, err
		}
	}
	return content.Content{}, tree.ErrChanged
}

// movedAway reports whether an error means that a file was replaced or removed after it was listed,
// as by an edit.
func movedAway(ctx context.Context, err error) bool {
	return ctx.Err() == nil && (errors.Is(err, tree.ErrChanged) || errors.Is(err, fs.ErrNotExist) || tree.IsRefused(err))
}

func (l *Library) contentsOf(ctx context.Context, staged *tree.Staged) (content.Content, error) {
	t, err := staged.Tree()
	if err != nil {
		return content.Content{}, err
	}
	defer t.Close()
	return l.read(ctx, t)
}

// checkSkill applies the rules for uploads: a baseline must be one that could have been uploaded,
// so that it can be taken elsewhere.
func (l *Library) checkSkill(c content.Content) error {
	refuse := func(format string, args ...any) error {
		return fault.New(fault.SkillConflict, "the skill cannot be a version: "+format, args...)
	}
	var total int64
	described, below := false, ""
	spelled := map[string]string{}
	for _, f := range c.Files {
		total += f.Size
		switch {
		case f.Size > l.Limits.FileBytes:
			return refuse("%q has more than the %d bytes that a file may have: leave it out or split it", f.Path, l.Limits.FileBytes)
		case len(f.Path) > l.Limits.PathBytes:
			return refuse("%.200q… has a path of more than %d bytes: use shorter names", f.Path, l.Limits.PathBytes)
		case strings.Count(f.Path, "/") >= l.Limits.Depth:
			return refuse("%q is deeper than %d levels: use fewer directories", f.Path, l.Limits.Depth)
		}
		switch {
		case checkSkillFile(f.Path) != nil:
			return refuse("%q is ignored under that name: rename it to SKILL.md", f.Path)
		case strings.Contains(f.Path, "/") && pathadapter.FoldName(path.Base(f.Path)) == "skill.md":
			below = f.Path
		}
		if slices.Contains([]string{"SKILL.md", "skill.md", "README.md"}, f.Path) {
			if f.Size == 0 {
				return refuse("%q is empty: describe the skill in it", f.Path)
			}
			described = true
		}
		for _, name := range append(tree.Parents(f.Path), f.Path) {
			fold := pathadapter.FoldName(name)
			if other, ok := spelled[fold]; ok && other != name {
				return refuse("%q and %q are one name on some systems: rename one", other, name)
			}
			spelled[fold] = name
		}
	}
	switch {
	case len(c.Files) == 0:
		return refuse("it has no files: add a SKILL.md that describes it")
	case len(c.Files) > l.Limits.Files:
		return refuse("it has more than the %d files that a skill may have: leave out unneeded files", l.Limits.Files)
	case total > l.Limits.Bytes:
		return refuse("it has more than the %d bytes that a skill may have: leave out unneeded files", l.Limits.Bytes)
	case below != "" && !described:
		return refuse("%q is in a folder of the skill, but the root has none: add one that describes the skill", below)
	}
	return nil
}
