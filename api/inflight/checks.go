package inflight

import (
	"context"
	"sync"
	"time"
)

const (
	checksAtOnce = 2    // of all
	checksKept   = 1000 // results; above that, old ones are forgotten
)

// Checks verifies again and again that the callers of long answers are still valid: one look-up
// serves all answers of a session or token. Few look-ups run at once, so that execs never wait for
// viewers. It is safe for concurrent use.
type Checks struct {
	permits chan struct{}
	mu      sync.Mutex
	last    map[string]*checked
}

type checked struct {
	begun time.Time
	done  chan struct{} // closed when err is set
	err   error
}

// NewChecks makes a Checks.
func NewChecks() *Checks {
	return &Checks{permits: make(chan struct{}, checksAtOnce), last: map[string]*checked{}}
}

// Do returns the result of verify for a key. It shares a call that began less than within ago, or
// begins one. If ctx ends first, Do returns the error of ctx. now is the time of the caller's
// clock.
func (c *Checks) Do(ctx context.Context, key string, now time.Time, within time.Duration, verify func(context.Context) error) error {
	c.mu.Lock()
	last := c.last[key]
	if last == nil || now.Sub(last.begun) >= within {
		last = &checked{begun: now, done: make(chan struct{})}
		if len(c.last) >= checksKept {
			for k, old := range c.last {
				if now.Sub(old.begun) >= time.Minute {
					delete(c.last, k)
				}
			}
		}
		c.last[key] = last
		go c.run(context.WithoutCancel(ctx), last, verify) // others wait for it, also when this caller leaves
	}
	c.mu.Unlock()
	select {
	case <-last.done:
		return last.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Checks) run(ctx context.Context, this *checked, verify func(context.Context) error) {
	defer close(this.done)
	c.permits <- struct{}{}
	defer func() { <-c.permits }()
	this.err = verify(ctx)
}
