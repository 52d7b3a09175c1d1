package api_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/audit"
)

// crowded is a History whose lists of one token end when open is closed.
type crowded struct {
	api.History
	token    string
	open     chan struct{}
	entered  chan struct{}
	now, top atomic.Int32
}

func (c *crowded) List(ctx context.Context, f audit.Filter, after *audit.Cursor, limit int) ([]audit.Record, *audit.Cursor, error) {
	if f.RequestedBy == c.token {
		defer c.enter()()
	}
	return c.History.List(ctx, f, after, limit)
}

func (c *crowded) Task(ctx context.Context, taskID, requestedBy string) (audit.Task, error) {
	if requestedBy == c.token {
		defer c.enter()()
	}
	return c.History.Task(ctx, taskID, requestedBy)
}

func (c *crowded) enter() (leave func()) {
	n := c.now.Add(1)
	for top := c.top.Load(); n > top && !c.top.CompareAndSwap(top, n); top = c.top.Load() {
	}
	c.entered <- struct{}{}
	<-c.open
	return func() { c.now.Add(-1) }
}

// TestListsTakeTurns: many lists of one token, and waits for its tasks, leave room for the lists of
// another token.
func TestListsTakeTurns(t *testing.T) {
	t.Parallel()
	const lists, atOnce = 12, 4
	busy := &crowded{open: make(chan struct{}), entered: make(chan struct{}, lists)}
	f := start(t, func(c *api.Config) { busy.History, c.History = c.History, busy })
	greedy, secret := f.token(tokens.Spec{Role: tokens.Worker})
	busy.token = greedy
	_, other := f.token(tokens.Spec{Role: tokens.Worker})
	var all sync.WaitGroup
	for range lists / 2 {
		for path, status := range map[string]int{"/sandbox/execs": 200, "/sandbox/execs/wait?task_id=x": 404} {
			all.Go(func() {
				if r := f.do(request{path: path, token: secret}); r.StatusCode != status {
					t.Errorf("%s: %d %s", path, r.StatusCode, r.body)
				}
			})
		}
	}
	for range atOnce {
		<-busy.entered
	}
	if r := f.do(request{path: "/sandbox/execs", token: other}); r.StatusCode != 200 {
		t.Errorf("another token: %d %s", r.StatusCode, r.body)
	}
	close(busy.open)
	all.Wait()
	if top := busy.top.Load(); top > atOnce {
		t.Errorf("%d lists of one token ran at once", top)
	}
}
