package library

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"secbox/fault"
	"secbox/packages/archive"
	"secbox/packages/content"
	"secbox/packages/versions"
	"secbox/pathadapter"
	"secbox/skills"
	"secbox/workspace/tree"
)

// Uploaded is the result of an upload.
type Uploaded struct {
	SkillID string
	Scope   Scope
	Digest  string
	Files   int
	Bytes   int64
	Warning string // what its users will miss; see metadata.About
}

// UploadSome makes the picked skills of a ZIP archive the agent's baselines or the user's own
// versions. Each replaces the previous one as a whole; versions that users are pinned to stay. All
// are unpacked and checked before the first is stored, and then stored one after the other. An
// error means that nothing has changed, with two exceptions. After DatabaseUnavailable, the upload
// may have succeeded, and can be repeated. If skills were stored before the error, its message
// names them. Errors are the errors of archive.OpenSome and Unpack, fault.SkillConflict for a name
// that differs only by case or Unicode form from another skill's name, and fault.InvalidRequest.
func (l *Library) UploadSome(ctx context.Context, o Owner, scope Scope, filename string, pick archive.Pick, zip io.ReaderAt,
	size int64,
) ([]Uploaded, error) {
	defer l.Changed(o, scope)
	if err := o.check(); err != nil {
		return nil, err
	}
	if scope != Baseline && scope != Overlay {
		return nil, fault.BadField("scope", "must be baseline or overlay")
	}
	all, err := archive.OpenSome(ctx, zip, size, filename, pick, l.Limits)
	if err != nil {
		return nil, err
	}
	if err := l.checkRoom(all); err != nil {
		return nil, err
	}
	agent, err := l.Versions.Agent(o.AgentID)
	if err != nil {
		return nil, err
	}
	uploads := make([]upload, len(all))
	for i, packed := range all {
		staged, err := unpack(ctx, agent, packed)
		if err != nil {
			return nil, err
		}
		one := &uploads[i]
		*one = upload{packed, staged}
		defer func() { one.staged.Discard() }()
	}
	var done []Uploaded
	for i := range uploads {
		one, err := l.store(ctx, agent, o, scope, &uploads[i])
		if err != nil {
			return nil, afterSome(done, err)
		}
		done = append(done, one)
	}
	return done, nil
}

// upload is a skill that is being uploaded.
type upload struct {
	packed *archive.Archive
	staged *tree.Staged
}

// afterSome is an error after some skills of an archive were stored.
func afterSome(done []Uploaded, err error) error {
	if len(done) == 0 {
		return err
	}
	ids := make([]string, len(done))
	for i, one := range done {
		ids[i] = strconv.Quote(one.SkillID)
	}
	e := *fault.From(err)
	e.Message = fmt.Sprintf("%s; stored before it: %s", e.Message, strings.Join(ids, ", "))
	return &e
}

// store stores an unpacked skill.
func (l *Library) store(ctx context.Context, agent *versions.Agent, o Owner, scope Scope, u *upload) (Uploaded, error) {
	skill := u.packed.Skill()
	release, err := l.claim(ctx, agent, o, scope, skill.ID)
	if err != nil {
		return Uploaded{}, err
	}
	defer release()
	digest := ""
	for again := range 2 { // again if the version was collected before its pointer was set
		if again > 0 {
			next, err := unpack(ctx, agent, u.packed) // the first staged tree may have become the collected version
			if err != nil {
				return Uploaded{}, err
			}
			u.staged.Discard()
			u.staged = next
		}
		if digest, err = l.commit(ctx, agent, u.staged, skill.ID); err != nil {
			return Uploaded{}, err
		}
		if scope == Baseline {
			_, err = l.set(ctx, o.baseline(skill.ID), skills.PointerState{Digest: digest})
		} else {
			err = l.overlay(ctx, o, skill.ID, digest)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return Uploaded{}, err
	}
	known, _ := l.about.get(skill.ID, digest) // commit has described it
	return Uploaded{SkillID: skill.ID, Scope: scope, Digest: digest, Files: skill.Files, Bytes: skill.Bytes, Warning: known.Warning}, nil
}

func unpack(ctx context.Context, agent *versions.Agent, packed *archive.Archive) (*tree.Staged, error) {
	staged, err := agent.Stage()
	if err != nil {
		return nil, err
	}
	if err := packed.Unpack(ctx, staged.Root); err != nil {
		staged.Discard()
		return nil, err
	}
	return staged, nil
}

// claim prevents two names that some systems do not distinguish from getting their pointers at the
// same time; release it after setting the pointer. Within the process it is a lock, and between
// nodes a claim on disk: a node that finds a rival's claim gives up. A rival without a claim has
// set its pointer, so the pointers are checked after the claims.
func (l *Library) claim(ctx context.Context, agent *versions.Agent, o Owner, scope Scope, skillID string) (release func(), err error) {
	fold := pathadapter.FoldName(skillID)
	unlock, err := l.locks.Take(ctx, o.AgentID+"/"+fold)
	if err != nil {
		return nil, err
	}
	rival, withdraw, err := agent.Claim(fold, skillID)
	if err != nil {
		unlock()
		return nil, err
	}
	release = func() { withdraw(); unlock() }
	if rival {
		err = fault.New(fault.SkillConflict,
			"another request is storing a skill whose name some systems do not distinguish from %q: list the skills, and try again or "+
				"use another name", skillID)
	} else {
		err = l.checkSpelling(ctx, agent, o, scope, skillID)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// checkSpelling refuses a name that some systems do not distinguish from another skill's.
func (l *Library) checkSpelling(ctx context.Context, agent *versions.Agent, o Owner, scope Scope, skillID string) error {
	names, err := agent.SkillNames()
	if err != nil {
		return err
	}
	for _, name := range names {
		if !alike(name, skillID) {
			continue
		}
		used, err := l.Registry.Digests(ctx, o.AgentID, skills.Version{SkillID: name}, 1)
		if err != nil {
			return err
		}
		if len(used) == 1 && used[0].SkillID == name {
			return sameName(name, skillID)
		}
	}
	if scope == Baseline {
		return nil
	}
	copies, err := l.openCopies(o)
	if copies == nil || err != nil {
		return err
	}
	defer copies.Close()
	copied, err := copyNames(copies)
	if err != nil {
		return err
	}
	for name := range copied {
		if alike(name, skillID) {
			return sameName(name, skillID)
		}
	}
	return nil
}

func alike(name, skillID string) bool {
	return name != skillID && pathadapter.FoldName(name) == pathadapter.FoldName(skillID)
}

func sameName(name, skillID string) error {
	return fault.New(fault.SkillConflict,
		"there is a skill %q, and some systems do not distinguish %q from it: use that spelling, or another name", name, skillID)
}

// commit makes a staged tree a version, named by its digest.
func (l *Library) commit(ctx context.Context, agent *versions.Agent, staged *tree.Staged, skillID string) (digest string, err error) {
	t, err := staged.Tree()
	if err != nil {
		return "", failed(err, "the new version")
	}
	defer t.Close()
	c, err := l.read(ctx, t)
	if err != nil {
		return "", failed(err, "the new version")
	}
	if c.Invalid != "" {
		return "", fault.New(fault.InvalidArchive, "the skill cannot be a version: %s", c.Invalid)
	}
	if digest, err = l.named(ctx, agent.ID(), skillID, c); err != nil {
		return "", err
	}
	(&Listed{SkillID: skillID, Digest: digest}).describe(l, t) // so that List need not open it
	return digest, agent.Commit(staged, skillID, digest, func(there *tree.Tree) bool {
		now, err := l.read(ctx, there)
		return err == nil && now.Digest == c.Digest
	})
}

// set sets a pointer unconditionally. Each lost compare-and-swap means that another caller
// succeeded, so it terminates.
func (l *Library) set(ctx context.Context, key skills.PointerKey, want skills.PointerState) (skills.Pointer, error) {
	for {
		row, ok, err := l.Registry.Get(ctx, key)
		if err != nil {
			return skills.Pointer{}, err
		}
		row, err = l.swap(ctx, key, stateOf(row, ok), want)
		if !fault.Is(err, fault.SkillMoved) {
			return row, err
		}
	}
}

// swap moves a pointer, and restores the versions that it names now if they are retired; see
// Collect.
func (l *Library) swap(ctx context.Context, key skills.PointerKey, saw *skills.PointerState, want skills.PointerState) (skills.Pointer,
	error,
) {
	row, err := l.Registry.Set(ctx, key, saw, want)
	if err != nil {
		return row, err
	}
	for _, digest := range []string{want.Digest, want.BaseDigest} {
		if digest == "" {
			continue
		}
		t, err := l.version(Owner{AgentID: key.AgentID}, key.SkillID, digest)
		if err != nil {
			return row, err
		}
		t.Close()
	}
	return row, nil
}

// overlay gives the user their own version. It replaces a copy in the workspace before it moves the
// pointer: a crash in between leaves the new skill with a base that is too old, not the old skill
// with a base that is too new.
func (l *Library) overlay(ctx context.Context, o Owner, skillID, digest string) error {
	release, err := l.lock(ctx, o, skillID)
	if err != nil {
		return err
	}
	defer release()
	if _, err := l.Registry.Pin(ctx, o.AgentID, o.UserID); err != nil {
		return err
	}
	base, _, err := l.Registry.Get(ctx, o.baseline(skillID))
	if err != nil {
		return err
	}
	replaced, err := l.replaceCopy(ctx, o, skillID, digest)
	if err != nil {
		return err
	}
	if _, err := l.set(ctx, o.key(skillID), skills.PointerState{Digest: digest, BaseDigest: base.Digest}); err != nil {
		return err
	}
	if !replaced {
		// Another node may have made a copy of the previous version. It checks the pointer after
		// that, and we look for a copy after setting the pointer: one of us sees the other.
		_, err = l.replaceCopy(ctx, o, skillID, digest)
	}
	return err
}

// replaceCopy replaces the user's copy, if there is one, or anything else in its place, by a
// version.
func (l *Library) replaceCopy(ctx context.Context, o Owner, skillID, digest string) (replaced bool, err error) {
	work, err := l.work(o)
	if work == nil || err != nil {
		return false, err
	}
	defer work.Close()
	if _, err := work.Lstat(skillPath(skillID)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return false, failed(err, "skills in the workspace")
	}
	staged, err := l.stageCopy(ctx, o, skillID, digest)
	if err != nil {
		return false, err
	}
	defer staged.Discard()
	if err := work.Replace(staged, skillPath(skillID), nil); err != nil {
		return false, failed(err, "skills/"+skillID+" in the workspace")
	}
	return true, nil
}

// stageCopy copies a version to a place from which a rename puts it into the user's workspace.
func (l *Library) stageCopy(ctx context.Context, o Owner, skillID, digest string) (*tree.Staged, error) {
	from, err := l.version(o, skillID, digest)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	staged, err := l.stage(o)
	if err != nil {
		return nil, err
	}
	if err = staged.CopyFrom(ctx, from, content.Bounds, nil); err != nil {
		staged.Discard()
		return nil, failed(err, "the copy of skill "+skillID)
	}
	return staged, nil
}

// stage makes an empty directory from which a rename moves a tree into the user's workspace.
func (l *Library) stage(o Owner) (*tree.Staged, error) {
	p, err := l.Workspace.Project(o.ProjectID())
	if err != nil {
		return nil, err
	}
	return p.Stage()
}
