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

// PackIdle packs workspaces that have not been used for idleFor, one after the other until ctx ends; their files come back at the next access.
// A copy of a skill is dropped if it equals the version that the user's pointer names, byte for byte: it is made again when needed. PackIdle
// returns the number of packed workspaces. An error in one workspace leaves it as it is.
func (l *Library) PackIdle(ctx context.Context, idleFor time.Duration) (packed int, err error) {
	err = l.Workspace.Workspaces(func(p *workspace.Project) error {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		done, err := p.PackIdle(ctx, idleFor, func(ctx context.Context, work *tree.Tree) (map[string]bool, error) {
			return l.storedCopies(ctx, p, work)
		})
		if done {
			packed++
		}
		if err != nil && ctx.Err() == nil {
			l.Log.DebugContext(ctx, "a workspace was not packed", "project", p.ID(), "error", err)
		}
		return nil
	})
	return packed, err
}

// storedCopies returns the copies below work/ that equal the versions that the user's pointers name. The workspace is unreachable meanwhile,
// so nothing changes between the check and the removal. All files are read: neither sizes nor times nor caches decide.
func (l *Library) storedCopies(ctx context.Context, p *workspace.Project, work *tree.Tree) (map[string]bool, error) {
	agentID, userID, _ := strings.Cut(p.ID(), "~")
	o := Owner{AgentID: agentID, UserID: userID}
	copies, err := work.Dir(skillsDir)
	if err != nil {
		return nil, ignoreInvalidCopy(err)
	}
	defer copies.Close()
	names, err := copyNames(copies)
	if err != nil {
		return nil, ignoreInvalidCopy(err)
	}
	stored := map[string]bool{}
	for skillID := range names {
		same, err := l.isStored(ctx, o, p, skillID, copies)
		if err != nil {
			return nil, err
		}
		if same {
			stored[skillPath(skillID)] = true
		}
	}
	return stored, nil
}

// ignoreInvalidCopy returns nil for the errors of an entry that is not a copy of a skill. Such an entry is packed as it is, or packing fails.
func ignoreInvalidCopy(err error) error {
	if errors.Is(err, fs.ErrNotExist) || tree.IsRefused(err) || errors.Is(err, tree.ErrTooLarge) {
		return nil
	}
	return err
}

// isStored compares the user's copy with the version that the user would read without it.
func (l *Library) isStored(ctx context.Context, o Owner, p *workspace.Project, skillID string, copies *tree.Tree) (bool, error) {
	row, ok, err := l.Registry.Get(ctx, o.key(skillID))
	if err != nil || !ok || row.Digest == "" {
		return false, err
	}
	stored, err := l.version(o, skillID, row.Digest)
	if err != nil {
		return false, nil //nolint:nilerr // the version is gone from the server, so the copy is all there is
	}
	defer stored.Close()
	copied, err := copies.Dir(skillID)
	if err != nil {
		return false, ignoreInvalidCopy(err)
	}
	defer copied.Close()
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
