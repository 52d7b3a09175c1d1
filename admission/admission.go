// Package admission lets a bounded number be at work at once and a bounded number wait for that: first come, first served, and among several
// clients one after the other.
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
	waiting []*Ticket // in order of arrival
	queue   int       // how many may wait
	each    Share     // at most, of one client with a name; zero: no bound

	clients map[string]*client // those with a name that have a place or wait for one
	turns   uint64             // places given out
}

// Share is how many of one client may be at work and wait.
type Share struct{ AtOnce, Queue int }

// client is what a client has.
type client struct {
	running, waiting int
	turn             uint64 // when it was given a place last
}

// New makes a Gate through which atOnce may be at work, and at which queue may wait.
func New(atOnce, queue int) *Gate {
	return &Gate{free: atOnce, queue: queue, clients: map[string]*client{}}
}

// NewShared makes a Gate at which no client with a name has more than its share. Of those that wait, the client has the next turn whose last
// one is longest ago.
func NewShared(atOnce, queue int, each Share) *Gate {
	g := New(atOnce, queue)
	g.each = each
	return g
}

// Ticket is a place: either one at work that was free, or one in the queue. Leave gives back the one or the other.
type Ticket struct {
	g    *Gate
	name string
	turn chan struct{} // closed when its turn comes; nil: no waiting
	once sync.Once
}

// Enter takes a place for a client without a name, which has no bound of its own; nil when as many wait as may.
func (g *Gate) Enter() *Ticket {
	t, _ := g.EnterAs("")
	return t
}

// EnterAs takes a place for a client; nil when as many wait as may, of all or of this client: then its is true.
func (g *Gate) EnterAs(name string) (t *Ticket, its bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.client(name)
	defer g.forget(name)
	switch {
	case g.free > 0 && g.mayRun(name): // this overtakes none: all that wait have their share
		g.give(c)
		return &Ticket{g: g, name: name}, false
	case g.limited(name) && c.waiting >= g.each.Queue:
		return nil, true
	case len(g.waiting) >= g.queue:
		return nil, false
	}
	t = &Ticket{g: g, name: name, turn: make(chan struct{})}
	g.waiting = append(g.waiting, t)
	c.waiting++
	return t, false
}

func (g *Gate) client(name string) *client {
	c := g.clients[name]
	if c == nil {
		c = &client{}
		g.clients[name] = c
	}
	return c
}

func (g *Gate) forget(name string) {
	if c := g.clients[name]; c != nil && c.running == 0 && c.waiting == 0 {
		delete(g.clients, name)
	}
}

func (g *Gate) limited(name string) bool { return name != "" && g.each.AtOnce > 0 }

func (g *Gate) mayRun(name string) bool {
	return !g.limited(name) || g.clients[name].running < g.each.AtOnce
}

func (g *Gate) give(c *client) {
	g.free--
	g.turns++
	c.running++
	c.turn = g.turns
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
	g := t.g
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.forget(t.name)
	if i := slices.Index(g.waiting, t); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
		g.clients[t.name].waiting--
		return
	}
	g.clients[t.name].running--
	g.free++
	next := -1
	for i, w := range g.waiting {
		if g.mayRun(w.name) && (next < 0 || g.clients[w.name].turn < g.clients[g.waiting[next].name].turn) {
			next = i
		}
	}
	if next < 0 {
		return
	}
	w := g.waiting[next]
	g.waiting = slices.Delete(g.waiting, next, next+1)
	c := g.clients[w.name]
	c.waiting--
	g.give(c)
	close(w.turn)
}

// Load is how many wait and how many more could be at work.
func (g *Gate) Load() (waiting, free int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting), g.free
}
