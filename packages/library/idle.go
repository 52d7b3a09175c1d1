package library

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"secbox/packages/content"
	"secbox/workspace"
	"secbox/workspace/tree"
)

// DropIdleCopies removes copies of skills from workspaces that were not used for idleFor, until ctx
// ends: each copy that equals the version that the user's pointer names, byte for byte. It is made
// again when it is needed. Errors of one workspace are logged.
func (l *Library) DropIdleCopies(ctx context.Context, idleFor time.Duration) error {
	return l.Workspace.Workspaces(func(p *workspace.Project) error {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		err := p.IfIdle(idleFor, func(work *tree.Tree, unused func() bool) error {
			return l.dropStoredCopies(ctx, p, work, unused)
		})
		if err != nil && ctx.Err() == nil {
			l.Log.DebugContext(ctx, "copies of skills stay in an idle workspace", "project", p.ID(), "error", err)
		}
		return nil
	})
}

func (l *Library) dropStoredCopies(ctx context.Context, p *workspace.Project, work *tree.Tree, unused func() bool) error {
	agentID, userID, _ := strings.Cut(p.ID(), "~")
	o := Owner{AgentID: agentID, UserID: userID}
	copies, err := work.Dir(skillsDir)
	if err != nil {
		return ignoreInvalidCopy(err)
	}
	defer copies.Close()
	names, err := copyNames(copies)
	if err != nil {
		return ignoreInvalidCopy(err)
	}
	for skillID := range names {
		if err := l.dropStoredCopy(ctx, o, p, skillID, work, unused); err != nil {
			return err
		}
	}
	return nil
}

// dropStoredCopy compares a copy with the stored version, moves it to where no command can reach
// it, and compares it again before it is removed. Editors and other requests of this process are
// locked out; a command, or an upload on another node, is noticed. All files are read: neither
// sizes nor times nor caches decide.
func (l *Library) dropStoredCopy(ctx context.Context, o Owner, p *workspace.Project, skillID string, work *tree.Tree,
	unused func() bool,
) error {
	release, err := l.lock(ctx, o, skillID)
	if err != nil {
		return err
	}
	defer release()
	unlock, err := work.LockEdits(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	copied, err := work.Dir(skillPath(skillID))
	if err != nil {
		return ignoreInvalidCopy(err)
	}
	defer copied.Close()
	if same, err := l.isStored(ctx, o, p, skillID, copied); !same || err != nil || !unused() {
		return err
	}
	staged, err := p.Stage()
	if err != nil {
		return err
	}
	defer staged.Discard()
	if err := work.Take(staged, skillPath(skillID)); err != nil {
		return err
	}
	if same, err := l.isStored(ctx, o, p, skillID, copied); !same || err != nil || !unused() {
		return errors.Join(err, work.Return(staged, skillPath(skillID)))
	}
	return nil
}

// ignoreInvalidCopy returns nil for the errors of an entry that is not a copy of a skill. Such an
// entry stays.
func ignoreInvalidCopy(err error) error {
	if errors.Is(err, fs.ErrNotExist) || tree.IsRefused(err) || errors.Is(err, tree.ErrTooLarge) {
		return nil
	}
	return err
}

// isStored compares the user's copy with the version that the user would read without it.
func (l *Library) isStored(ctx context.Context, o Owner, p *workspace.Project, skillID string, copied *tree.Tree) (bool, error) {
	row, ok, err := l.Registry.Get(ctx, o.key(skillID))
	if err != nil || !ok || row.Digest == "" {
		return false, err
	}
	stored, err := l.version(o, skillID, row.Digest)
	if err != nil {
		return false, nil //nolint:nilerr // the version is gone from the server, so the copy is all there is
	}
	defer stored.Close()
	// The cheap comparison comes first: a command can make arbitrarily large files.
	if same, err := copied.LooksCopied(ctx, stored, content.Bounds, p.Owner()); !same || err != nil {
		return false, ignoreInvalidCopy(err)
	}
	for _, t := range []*tree.Tree{copied, stored} {
		c, err := l.read(ctx, t)
		if err != nil {
			return false, ignoreInvalidCopy(err)
		}
		if digest, err := l.named(ctx, o.AgentID, skillID, c); err != nil || digest != row.Digest {
			return false, err
		}
	}
	return true, nil
}
