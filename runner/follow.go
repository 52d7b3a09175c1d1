package runner

import (
	"context"
	"sync"
)

// Progress is how far an exec is on this node. The zero value is that of an exec that this node does not run, or whose row is closed.
type Progress struct {
	Here    bool  // it waits for its turn, runs, or is being recorded
	Started bool  // its row is running, and its job has begun or is about to
	Stdout  int64 // bytes kept so far, which OpenOutput reads
	Stderr  int64
}

// Follow waits until the progress of an exec differs from what the caller has seen, and returns it. It returns at once for an exec that is not
// here: the row says whether it has ended. The only error is that of ctx. Callers that read at intervals lose nothing: each change is compared
// with seen, not delivered.
func (r *Runner) Follow(ctx context.Context, execID string, seen Progress) (Progress, error) {
	for {
		started := r.started.next()
		ended := r.commands.Ended(execID)
		if ended == nil {
			return Progress{}, nil
		}
		now, printed := Progress{Here: true}, (<-chan struct{})(nil)
		r.mu.Lock()
		c := r.captures[execID]
		r.mu.Unlock()
		if c != nil {
			printed, started = c.grown.next(), nil
			now.Started, now.Stdout, now.Stderr = true, c.stdout.size(), c.stderr.size()
		} else if seen.Started { // its row was closed a moment ago
			now = seen
		}
		if now != seen {
			return now, nil
		}
		select {
		case <-ctx.Done():
			return now, ctx.Err()
		case <-started:
		case <-printed:
		case <-ended:
		}
	}
}

// Await returns a channel that is closed when an exec is here, in the sense of Progress; at once if it is. The caller must call leave.
func (r *Runner) Await(execID string) (here <-chan struct{}, leave func()) {
	return r.commands.Await(execID)
}

// signal wakes all who wait for a change. The zero value is ready, and costs nothing while no one waits.
type signal struct {
	mu      sync.Mutex
	waiting chan struct{} // nil: no one waits
}

// next returns a channel that the next wake closes. What is read after next is not older than the wake before.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == nil {
		s.waiting = make(chan struct{})
	}
	return s.waiting
}

func (s *signal) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting != nil {
		close(s.waiting)
		s.waiting = nil
	}
}
