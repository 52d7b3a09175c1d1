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
		n := c.now.Add(1)
		for top := c.top.Load(); n > top && !c.top.CompareAndSwap(top, n); top = c.top.Load() {
		}
		defer c.now.Add(-1)
		c.entered <- struct{}{}
		<-c.open
	}
	return c.History.List(ctx, f, after, limit)
}

// TestListsTakeTurns: many lists of one token leave room for the lists of another token.
func TestListsTakeTurns(t *testing.T) {
	t.Parallel()
	const lists, atOnce = 12, 4
	busy := &crowded{open: make(chan struct{}), entered: make(chan struct{}, lists)}
	f := start(t, func(c *api.Config) { busy.History, c.History = c.History, busy })
	greedy, secret := f.token(tokens.Spec{Role: tokens.Worker})
	busy.token = greedy
	_, other := f.token(tokens.Spec{Role: tokens.Worker})
	var all sync.WaitGroup
	for range lists {
		all.Go(func() {
			if r := f.do(request{path: "/sandbox/execs", token: secret}); r.StatusCode != 200 {
				t.Errorf("%d %s", r.StatusCode, r.body)
			}
		})
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
