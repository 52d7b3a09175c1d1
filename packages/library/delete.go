package library

import (
	"context"
	"errors"
	"io/fs"

	"secbox/fault"
	"secbox/skills"
)

// Delete deletes a skill. With Overlay it is gone for this user, even if the agent has it; a sync
// with force, or an upload, brings it back. With Baseline it is gone for new users only. Versions
// stay on disk until they are collected. fault.UnknownSkill when there is none.
func (l *Library) Delete(ctx context.Context, o Owner, skillID string, scope Scope) error {
	defer l.Changed(o, scope)
	if err := checkIDs(o, skillID); err != nil {
		return err
	}
	switch scope {
	case Baseline:
		return l.deleteBaseline(ctx, o, skillID)
	case Overlay:
		return l.deleteOverlay(ctx, o, skillID)
	}
	return fault.BadField("scope", "must be baseline or overlay")
}

func (l *Library) deleteBaseline(ctx context.Context, o Owner, skillID string) error {
	for {
		row, ok, err := l.Registry.Get(ctx, o.baseline(skillID))
		if err != nil {
			return err
		}
		if !ok {
			return unknownSkill(skillID)
		}
		if err := l.Registry.Remove(ctx, o.baseline(skillID), row.PointerState); !fault.Is(err, fault.SkillMoved) {
			return err
		}
	}
}

// deleteOverlay moves the pointer before it removes the copy: in between, and after a crash there,
// the user has the skill as before. In the other order, they would have the version that they were
// pinned to.
func (l *Library) deleteOverlay(ctx context.Context, o Owner, skillID string) error {
	release, err := l.lock(ctx, o, skillID)
	if err != nil {
		return err
	}
	defer release()
	row, ok, err := l.pointer(ctx, o, skillID)
	if err != nil {
		return err
	}
	if ok && row.Digest != "" {
		// An empty pointer is needed: a missing one would be pinned again at the next access.
		if _, err := l.set(ctx, o.key(skillID), skills.PointerState{}); err != nil {
			return err
		}
	}
	taken, err := l.takeCopy(o, skillID)
	if err == nil && !taken && (!ok || row.Digest == "") {
		return unknownSkill(skillID)
	}
	return err
}

// takeCopy atomically removes the user's copy, or anything else in its place.
func (l *Library) takeCopy(o Owner, skillID string) (taken bool, err error) {
	work, err := l.work(o)
	if work == nil || err != nil {
		return false, err
	}
	defer work.Close()
	if _, err := work.Lstat(skillPath(skillID)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	staged, err := l.stage(o)
	if err != nil {
		return false, err
	}
	defer staged.Discard()
	err = work.Take(staged, skillPath(skillID))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, failed(err, "skills/"+skillID+" in the workspace")
}
