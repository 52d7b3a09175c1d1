package runner

import (
	"context"
	"sync"
	"time"

	"secbox/fault"
)

// admission lets a bounded number of execs run and a bounded number wait, first come, first served.
type admission struct {
	mu      sync.Mutex
	free    int
	waiting []chan struct{} // in order of arrival; closed when its turn comes
	queue   int             // how many may wait
}

func newAdmission(concurrent, queue int) *admission {
	return &admission{free: concurrent, queue: queue}
}

// ticket is a place: either a slot that was free, or one in the queue. Exactly one of leave's two meanings applies: giving back the slot,
// or leaving the queue.
type ticket struct {
	a    *admission
	turn chan struct{} // nil: no waiting
	once sync.Once
}

// enter takes a place; fault.QueueFull when there is none.
func (a *admission) enter() (*ticket, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.free > 0 {
		a.free--
		return &ticket{a: a}, nil
	}
	if len(a.waiting) >= a.queue {
		e := fault.New(fault.QueueFull, "%d execs are waiting already; try again shortly", len(a.waiting))
		e.RetryAfter = time.Second
		return nil, e
	}
	t := &ticket{a: a, turn: make(chan struct{})}
	a.waiting = append(a.waiting, t.turn)
	return t, nil
}

// mustWait reports whether the ticket is for the queue.
func (t *ticket) mustWait() bool { return t.turn != nil }

// wait waits for the turn; an error, and the place given up, when ctx ends first.
func (t *ticket) wait(ctx context.Context) error {
	if t.turn == nil {
		return nil
	}
	select {
	case <-t.turn:
		return nil
	case <-ctx.Done():
		t.leave()
		return context.Cause(ctx)
	}
}

// leave gives the place to the next one. Safe to call twice.
func (t *ticket) leave() {
	t.once.Do(func() {
		t.a.mu.Lock()
		defer t.a.mu.Unlock()
		if t.turn != nil {
			for i, turn := range t.a.waiting {
				if turn == t.turn {
					t.a.waiting = append(t.a.waiting[:i], t.a.waiting[i+1:]...)
					return
				}
			}
		}
		if len(t.a.waiting) > 0 {
			close(t.a.waiting[0])
			t.a.waiting = t.a.waiting[1:]
			return
		}
		t.a.free++
	})
}

// load is how many wait and how many more could run.
func (a *admission) load() (waiting, free int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.waiting), a.free
}
