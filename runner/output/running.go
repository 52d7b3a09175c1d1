package output

import (
	"context"
	"io"
	"sync"
	"time"

	"secbox/runner/lifecycle"
)

// Progress is how far a command is on this node. The zero value means that this node does not run
// the command, or that its row is closed.
type Progress struct {
	Here    bool  // it waits for its turn, runs, or is being recorded
	Started bool  // its row is running, and its job has begun or is about to
	Stdout  int64 // bytes kept so far, which can be read
	Stderr  int64
	Usage   Usage
}

// Running is the output of the commands that run now. It is safe for concurrent use.
type Running struct {
	commands *lifecycle.Commands
	started  signal // a capture was added

	mu       sync.Mutex
	captures map[string]*running // by exec id; of commands that can write
}

// running is the capture of a command.
type running struct {
	*Capture
	followed bool
}

// Of returns the output of commands. None may have written any yet.
func Of(commands *lifecycle.Commands) *Running {
	return &Running{commands: commands, captures: map[string]*running{}}
}

// Add makes the output of a command readable and tells its followers that it has started, until
// remove. Callers that followed the command can read the output for some time after that.
func (r *Running) Add(execID string, c *Capture, after time.Duration) (remove func()) {
	one := &running{Capture: c}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.captures[execID] = one
	r.started.wake()
	forget := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.captures, execID)
	}
	return func() {
		r.mu.Lock()
		linger := one.followed && after > 0
		r.mu.Unlock()
		if linger {
			time.AfterFunc(after, forget)
			return
		}
		forget()
	}
}

// of returns the capture of a command; nil if there is none.
func (r *Running) of(execID string, follow bool) *Capture {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.captures[execID]
	if one == nil {
		return nil
	}
	one.followed = one.followed || follow
	return one.Capture
}

// Follow waits until the progress of a command differs from what the caller has seen, and returns
// it. It returns at once for a command that is not here: the row says whether it has ended. It
// fails only with ctx. Callers that read at intervals lose nothing: each change is compared with
// seen, not delivered.
func (r *Running) Follow(ctx context.Context, execID string, seen Progress) (Progress, error) {
	for {
		started := r.started.next()
		ended := r.commands.Ended(execID)
		if ended == nil {
			return Progress{}, nil
		}
		now, printed := Progress{Here: true}, (<-chan struct{})(nil)
		if c := r.of(execID, true); c != nil {
			printed, started = c.grown.next(), nil
			now.Started, now.Stdout, now.Stderr = true, c.Stdout.Kept(), c.Stderr.Kept()
			now.Usage = c.used()
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

// Open opens what a command has written to "stdout" or "stderr" so far, and returns its size in
// bytes; nil for a command without output here.
func (r *Running) Open(execID, stream string) (io.ReadSeekCloser, int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.captures[execID]
	if one == nil {
		return nil, 0
	}
	reader, size, err := one.stream(stream).open()
	if err != nil {
		return nil, 0
	}
	return reader, size
}

// signal wakes all who wait for a change. The zero value is ready, and costs nothing while no one
// waits.
type signal struct {
	mu      sync.Mutex
	waiting chan struct{} // nil: no one waits
}

// next returns a channel that the next wake closes. What is read after next is not older than the
// wake before.
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
