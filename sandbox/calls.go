package sandbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"secbox/fault"
)

// ErrClosed is the error of a call that ends because its sandbox is closed, or that comes after
// that.
var ErrClosed = fault.New(fault.ShuttingDown, "the sandbox was closed")

// Busy returns a fault.SandboxBusy for a call beyond a limit, which may be tried again after a
// second.
func Busy(format string, args ...any) error {
	e := fault.New(fault.SandboxBusy, format, args...)
	e.RetryAfter = time.Second
	return e
}

// Calls are the calls under way in a backend, so that Close and CloseForUser can end them. The zero
// Calls is ready for use. Safe for concurrent use.
type Calls struct {
	mu     sync.Mutex
	closed bool
	active map[*activeCall]bool
}

type activeCall struct {
	user   User
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// Do runs f for a user. f's context also ends when the calls of the user are stopped; the error is
// ErrClosed then.
func (c *Calls) Do(ctx context.Context, user User, f func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	call := &activeCall{user: user, cancel: cancel, done: make(chan struct{})}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	if c.active == nil {
		c.active = map[*activeCall]bool{}
	}
	c.active[call] = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.active, call)
		c.mu.Unlock()
		close(call.done)
	}()
	err := f(within)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(within), ErrClosed) {
		return ErrClosed
	}
	return err
}

// Check returns the error of ctx, or ErrClosed after Close.
func (c *Calls) Check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	return nil
}

// Close ends all calls and waits for them. Later calls fail.
func (c *Calls) Close() { c.stop(true, func(User) bool { return true }) }

// CloseForUser ends the calls of the user, as User.Holds understands it, and waits for them.
func (c *Calls) CloseForUser(user User) { c.stop(false, user.Holds) }

func (c *Calls) stop(closing bool, match func(User) bool) {
	c.mu.Lock()
	c.closed = c.closed || closing
	var stopped []*activeCall
	for call := range c.active {
		if match(call.user) {
			stopped = append(stopped, call)
		}
	}
	c.mu.Unlock()
	for _, call := range stopped {
		call.cancel(ErrClosed)
	}
	for _, call := range stopped {
		<-call.done
	}
}
