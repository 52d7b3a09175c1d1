package library

import (
	"context"

	"secbox/workspace"
)

// Digest names what the user has of a skill at this moment: the version that they are pinned to, or the copy in the workspace, as the
// version that it would be. It is empty when the copy could be none, for a link in it, say. Of a copy every file is looked at, and those
// that look other than the last time are read; fault.TreeTooLarge when it holds more than a version may.
func (l *Library) Digest(ctx context.Context, o Owner, skillID string) (string, error) {
	if err := forReading(o, skillID); err != nil {
		return "", err
	}
	if isGlobal(skillID) {
		return l.globalDigest()
	}
	if isGlobal(skillID) {
		return l.globalDigest()
	}
	key := o.ProjectID() + "/" + skillID
	if digest := l.glanceAt(o, skillID, key); digest != "" {
		return digest, nil
	}
	for range tries {
		t, err := l.mine(o, skillID)
		if err != nil {
			return "", err
		}
		if t == nil {
			row, ok, err := l.pointer(ctx, o, skillID)
			if err == nil && (!ok || row.Digest == "") {
				err = unknownSkill(skillID)
			}
			return row.Digest, err
		}
		c, err := l.contentsUpTo(ctx, key, t, l.Limits.Bytes)
		still := l.current(o, skillID, t)
		t.Close()
		if ctx.Err() != nil || still && !changing(err) {
			return c.digest, failed(err, "the skill "+skillID)
		}
	}
	return "", failed(workspace.ErrChanged, "the skill "+skillID)
}

// glanceAt gives the digest of a copy that looks as it did, and nothing for any other.
func (l *Library) glanceAt(o Owner, skillID, key string) string {
	in, done, err := l.glanceAtCopies(o)
	if err != nil {
		return ""
	}
	defer done()
	if in.Tree == nil {
		return ""
	}
	if digest, ok := l.files.looks(key, skillID, in.glance); ok {
		return digest
	}
	return ""
}
