package library

import (
	"context"
	"errors"
	"io/fs"
	"sync"
)

// locks are one lock for each name that somebody holds or waits for.
type locks struct {
	mu   sync.Mutex
	held map[string]*lock
}

type lock struct {
	turn  chan struct{} // one token: whose turn it is
	users int
}

// take waits for its turn, or for the end of ctx.
func (l *locks) take(ctx context.Context, name string) (release func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*lock{}
	}
	k := l.held[name]
	if k == nil {
		k = &lock{turn: make(chan struct{}, 1)}
		l.held[name] = k
	}
	k.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(l.held, name)
		}
	}
	select {
	case k.turn <- struct{}{}:
		return func() { <-k.turn; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

// change takes the lock of one skill of one user, and keeps the workspace in its place, if there is one: between two looks at it, a copy
// must not go because nobody uses it.
func (l *Library) change(ctx context.Context, o Owner, skillID string) (release func(), err error) {
	unlock, err := l.locks.take(ctx, o.ProjectID()+"/"+skillID)
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
