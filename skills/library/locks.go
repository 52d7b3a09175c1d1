package library

import (
	"context"
	"errors"
	"io/fs"
)

// change takes the lock of one skill of one user, and keeps the workspace in its place, if there is one: between two looks at it, a copy
// must not go because nobody uses it.
func (l *Library) change(ctx context.Context, o Owner, skillID string) (release func(), err error) {
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
