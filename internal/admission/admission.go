// Package admission limits how many callers work at once and how many wait for that. Waiting
// callers are served in order of arrival, and different clients take turns. It must not know what
// its callers do.
package admission

import (
	"context"
	"slices"
	"sync"
)

// Gate admits callers. It is safe for concurrent use.
type Gate struct {
	mu      sync.Mutex
	free    int
	waiting []*Ticket // in order of arrival
	queue   int       // how many may wait
	each    Share     // limits of each client with a name; zero: none

	clients map[string]*client // clients that work or wait
	turns   uint64             // callers admitted so far

	background     int // callers from the background at work
	idle           int // of them, for no client yet
	mostBackground int
	freed          func() // never nil
}

// Share is how many callers of one client may work at once and wait.
type Share struct{ AtOnce, Queue int }

// client is the state of one client.
type client struct {
	running, waiting int
	turn             uint64 // when one of its callers was last admitted
}

// New makes a Gate for atOnce callers at work and queue callers that wait.
func New(atOnce, queue int) *Gate {
	return &Gate{free: atOnce, queue: queue, clients: map[string]*client{}, freed: func() {}}
}

// NewShared makes a Gate that limits each client with a name to a share. The next turn goes to the
// waiting client whose last turn was longest ago.
func NewShared(atOnce, queue int, each Share) *Gate {
	g := New(atOnce, queue)
	g.each = each
	return g
}

// AllowBackground lets most callers from the background work at once. freed, which must not block,
// is called when there may be a place for one. Call it before the Gate is used.
func (g *Gate) AllowBackground(most int, freed func()) {
	g.mostBackground, g.freed = most, freed
}

// Ticket is a place at work or in the queue. Leave gives it back.
type Ticket struct {
	g          *Gate
	name       string
	turn       chan struct{} // closed when its turn comes; nil: it does not wait
	background bool
	idle       bool // from the background, for no client yet
	once       sync.Once
}

// EnterBackground takes a place for a caller from the background, which does not know its client
// yet; nil if there is none.
func (g *Gate) EnterBackground() *Ticket {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.free == 0 || g.background >= g.mostBackground {
		return nil
	}
	g.give(g.client(""))
	g.background++
	g.idle++
	return &Ticket{g: g, background: true, idle: true}
}

// MayRun reports whether the client has work left in its share.
func (g *Gate) MayRun(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.clients[name] == nil || g.mayRun(name)
}

// WorkFor gives the place of a caller from the background to a client.
func (t *Ticket) WorkFor(name string) {
	t.g.mu.Lock()
	defer t.g.mu.Unlock()
	t.g.clients[t.name].running--
	t.g.forget(t.name)
	if t.idle {
		t.g.idle--
	}
	t.name, t.idle = name, false
	c := t.g.client(name)
	c.running++
	c.turn = t.g.turns
}

// Enter takes a place for a client without a name, which has no share; nil when the queue is full.
func (g *Gate) Enter() *Ticket {
	t, _ := g.EnterAs("")
	return t
}

// EnterAs takes a place for a client; nil when the queue, or the client's share of it, is full:
// then overShare is true.
func (g *Gate) EnterAs(name string) (t *Ticket, overShare bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.client(name)
	defer g.forget(name)
	switch {
	case g.free > 0 && g.mayRun(name): // no client is overtaken: all that wait have used up their share
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

// MustWait reports whether the ticket was for the queue.
func (t *Ticket) MustWait() bool { return t.turn != nil }

// Wait waits for the ticket's turn. When ctx ends first, it gives the place back and returns the
// cause.
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

// Leave gives the place back. Safe to call twice.
func (t *Ticket) Leave() {
	t.once.Do(func() {
		t.leave()
		if !t.idle { // else nothing has changed for the background
			t.g.freed()
		}
	})
}

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
	if t.background {
		g.background--
	}
	if t.idle {
		g.idle--
	}
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

// Load returns how many wait and how many more could work. A place of the background that has no
// client is free.
func (g *Gate) Load() (waiting, free int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting), g.free + g.idle
}
