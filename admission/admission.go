// Package admission lets a bounded number be at work at once and a bounded number wait for that, first come, first served.
package admission

import (
	"context"
	"slices"
	"sync"
)

// Gate gives out places. It is safe for concurrent use.
type Gate struct {
	mu      sync.Mutex
	free    int
	waiting []chan struct{} // in order of arrival; closed when its turn comes
	queue   int             // how many may wait
}

// New makes a Gate through which atOnce may be at work, and at which queue may wait.
func New(atOnce, queue int) *Gate { return &Gate{free: atOnce, queue: queue} }

// Ticket is a place: either one at work that was free, or one in the queue. Leave gives back the one or the other.
type Ticket struct {
	g    *Gate
	turn chan struct{} // nil: no waiting
	once sync.Once
}

// Enter takes a place; nil when as many wait as may.
func (g *Gate) Enter() *Ticket {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.free > 0 {
		g.free--
		return &Ticket{g: g}
	}
	if len(g.waiting) >= g.queue {
		return nil
	}
	t := &Ticket{g: g, turn: make(chan struct{})}
	g.waiting = append(g.waiting, t.turn)
	return t
}

// MustWait reports whether the ticket is for the queue.
func (t *Ticket) MustWait() bool { return t.turn != nil }

// Wait waits for the turn; an error, and the place given up, when ctx ends first.
func (t *Ticket) Wait(ctx context.Context) error {
	if t.turn == nil {
		return nil
	}
	select {
	case <-t.turn:
		return nil
	case <-ctx.Done():
		t.Leave()
		return context.Cause(ctx)
	}
}

// Leave gives the place to the next one. Safe to call twice.
func (t *Ticket) Leave() { t.once.Do(t.leave) }

func (t *Ticket) leave() {
	t.g.mu.Lock()
	defer t.g.mu.Unlock()
	if i := slices.Index(t.g.waiting, t.turn); t.turn != nil && i >= 0 {
		t.g.waiting = slices.Delete(t.g.waiting, i, i+1)
		return
	}
	if len(t.g.waiting) > 0 {
		close(t.g.waiting[0])
		t.g.waiting = slices.Delete(t.g.waiting, 0, 1)
		return
	}
	t.g.free++
}

// Load is how many wait and how many more could be at work.
func (g *Gate) Load() (waiting, free int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting), g.free
}
