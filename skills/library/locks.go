package library

import (
	"context"
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

// change takes the lock of one skill of one user.
func (l *Library) change(ctx context.Context, o Owner, skillID string) (release func(), err error) {
	return l.locks.take(ctx, o.ProjectID()+"/"+skillID)
}
