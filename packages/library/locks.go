package library

import (
	"context"
	"errors"
	"io/fs"
)

// lock locks one skill of one user, and marks the workspace, if it exists, as in use: otherwise the idle packer could drop the copy
// meanwhile.
func (l *Library) lock(ctx context.Context, o Owner, skillID string) (release func(), err error) {
	unlock, err := l.locks.Take(ctx, o.ProjectID()+"/"+skillID)
	if err != nil {
		return nil, err
	}
	p, err := l.Workspace.Existing(o.ProjectID())
	if errors.Is(err, fs.ErrNotExist) {
		return unlock, nil
	}
	if err == nil {
		var end func()
		if end, err = p.Use(); err == nil {
			return func() { end(); unlock() }, nil
		}
	}
	unlock()
	return nil, err
}
