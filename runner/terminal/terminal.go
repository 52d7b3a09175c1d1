// Package terminal keeps the terminals of execs while they run: it passes on what clients type,
// keeps the newest output for clients that come again, and records both. It must not know HTTP, nor
// where a terminal's job runs.
package terminal

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"syscall"

	"secbox/engine/initproto"
)

const (
	// Kept is how many bytes of the newest output a client can still get.
	Kept = 128 << 10
	// MaxTyped is the most bytes that Type takes at once.
	MaxTyped = 16 << 10

	// MaxSize is the most columns or rows.
	MaxSize = initproto.MaxTerminal

	queued = 4 // frames that wait for the job
)

// Size is the size of a terminal in characters.
type Size = initproto.TerminalSize

// ErrEnded is the error of a terminal whose job has ended.
var ErrEnded = errors.New("the terminal's job has ended")

// Terminal is the terminal of a job that runs. It is safe for concurrent use, except Read.
type Terminal struct {
	input chan typed
	rest  []byte // of a frame that was read in part
	over  chan struct{}
	end   sync.Once

	mu    sync.Mutex
	cast  *Recording
	from  int64 // offset of the first byte of shown
	shown []byte
	grown chan struct{} // closed by the next change; nil: no one waits
	ended bool
}

// typed is a frame for the job, and its event in the recording.
type typed struct {
	frame []byte
	kind  string
	data  []byte
}

// New makes the terminal of a job that is about to begin. The caller must call End.
func New(cast *Recording) *Terminal {
	return &Terminal{cast: cast, input: make(chan typed, queued), over: make(chan struct{})}
}

// Argv is the command of a job that runs another command in a terminal: program is sandbox-init.
func Argv(program string, size Size, command []string) []string {
	return append([]string{program, initproto.TerminalVerb, size.String()}, command...)
}

// Read is the standard input of the job: frames, until End.
func (t *Terminal) Read(p []byte) (int, error) {
	if len(t.rest) == 0 {
		select {
		case next := <-t.input:
			t.rest = next.frame
			t.mu.Lock()
			if !t.ended {
				t.cast.add(next.kind, next.data) // before its echo
			}
			t.mu.Unlock()
		case <-t.over:
			return 0, io.EOF
		}
	}
	n := copy(p, t.rest)
	t.rest = t.rest[n:]
	return n, nil
}

// Write takes what the terminal shows. It never fails.
func (t *Terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cast.add("o", p)
	t.shown = append(t.shown, p...)
	if old := len(t.shown) - Kept; old > Kept {
		t.from += int64(old)
		t.shown = slices.Delete(t.shown, 0, old)
	}
	t.wake()
	return len(p), nil
}

func (t *Terminal) wake() {
	if t.grown != nil {
		close(t.grown)
		t.grown = nil
	}
}

// Type passes on what a client has typed, at most MaxTyped bytes. It waits while the job reads
// nothing; ErrEnded.
func (t *Terminal) Type(ctx context.Context, keys []byte) error {
	return t.send(ctx, typed{initproto.Append(nil, initproto.TypeStdin, keys), "i", keys})
}

// Resize changes the size, which must be valid, like Type.
func (t *Terminal) Resize(ctx context.Context, size Size) error {
	return t.send(ctx, typed{initproto.AppendResize(nil, size), "r", []byte(size.String())})
}

// Signal sends one of initproto.Signals to the foreground processes, like Type.
func (t *Terminal) Signal(ctx context.Context, s syscall.Signal) error {
	return t.send(ctx, typed{initproto.Append(nil, initproto.TypeSignal, []byte{byte(s)}), "m", []byte("signal: " + s.String())})
}

func (t *Terminal) send(ctx context.Context, what typed) error {
	select {
	case t.input <- what:
		return nil
	case <-t.over:
		return ErrEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Next waits for output after an offset, and copies it to p. It begins at from: the output between
// the two is no longer kept. Its error is io.EOF after the last output.
func (t *Terminal) Next(ctx context.Context, at int64, p []byte) (from int64, n int, err error) {
	for {
		t.mu.Lock()
		from = max(at, t.from)
		if i := from - t.from; i < int64(len(t.shown)) {
			n = copy(p, t.shown[i:])
			t.mu.Unlock()
			return from, n, nil
		}
		if t.ended {
			t.mu.Unlock()
			return from, 0, io.EOF
		}
		if t.grown == nil {
			t.grown = make(chan struct{})
		}
		grown := t.grown
		t.mu.Unlock()
		select {
		case <-grown:
		case <-ctx.Done():
			return from, 0, ctx.Err()
		}
	}
}

// At is the offset of the next output.
func (t *Terminal) At() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.from + int64(len(t.shown))
}

// End ends the terminal. Safe to call twice.
func (t *Terminal) End() {
	t.end.Do(func() { close(t.over) })
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.wake()
}

// Set are the terminals of execs, by their ids. The zero value is ready.
type Set struct {
	mu  sync.Mutex
	all map[string]*Terminal
}

// Add adds the terminal of an exec until remove.
func (s *Set) Add(execID string, t *Terminal) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]*Terminal{}
	}
	s.all[execID] = t
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, execID)
	}
}

// Of returns the terminal of an exec; nil if there is none.
func (s *Set) Of(execID string) *Terminal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[execID]
}
