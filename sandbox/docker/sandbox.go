package docker

import (
	"context"
	"errors"
	"sync"
	"time"

	"secbox/engine"
	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/files"
)

// The bounds of a Config that names none.
const (
	defaultIdleFor      = 15 * time.Minute
	defaultMovePatience = 30 * time.Second
	defaultMax          = 16
)

// HomePath is the user's home as commands see it; it is HOME.
const HomePath = "/home/sandbox"

// homeBin is where pip and others put a user's programs. It is the last of PATH: what a command plants there cannot take the place of a
// program of the image, of which restricted commands are made.
const homeBin = HomePath + "/.local/bin"

// shell runs the lines of commands with Shell; every allowed image has it, as execs of kind shell need it too.
const shell = "/bin/bash"

// Sandbox implements sandbox.Sandbox, sandbox.Streamer and sandbox.Locator.
type Sandbox struct {
	files.Ops

	cfg     Config
	commits sync.Mutex // of files.Config

	mu         sync.Mutex
	closed     bool
	boxes      map[string]*box // by project id; kept, as they are small, and forgotten when nobody uses them
	calls      map[*call]bool
	containers int            // that run, are being started, or end
	started    map[string]int // of them by a token
	background sync.WaitGroup
}

var (
	_ sandbox.Sandbox  = (*Sandbox)(nil)
	_ sandbox.Streamer = (*Sandbox)(nil)
	_ sandbox.Locator  = (*Sandbox)(nil)
)

// New makes the sandbox; nothing is started before it is asked for. Close ends all containers; it comes before the engine's Close.
func New(cfg Config) *Sandbox {
	if cfg.MovePatience <= 0 {
		cfg.MovePatience = defaultMovePatience
	}
	if cfg.IdleFor <= 0 {
		cfg.IdleFor = defaultIdleFor
	}
	if cfg.Max <= 0 {
		cfg.Max = defaultMax
	}
	if cfg.MaxPerToken <= 0 {
		cfg.MaxPerToken = (cfg.Max*3 + 3) / 4
	}
	if cfg.MaxCommands <= 0 || cfg.MaxCommands > engine.MaxResidentCommands {
		cfg.MaxCommands = engine.MaxResidentCommands
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Sandbox{cfg: cfg, boxes: map[string]*box{}, calls: map[*call]bool{}, started: map[string]int{}}
	s.Ops = s.on
	return s
}

// call is one call under way.
type call struct {
	user   sandbox.User
	cancel context.CancelCauseFunc
	over   chan struct{}
}

// errClosed is why a call ends when its sandbox is closed.
var errClosed = fault.New(fault.ShuttingDown, "the sandbox was closed")

// do runs f for a user, after a move of their sandbox that is under way. f's context also ends when the sandbox is closed for the user.
func (s *Sandbox) do(ctx context.Context, user sandbox.User, f func(context.Context, *box) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &call{user: user, cancel: cancel, over: make(chan struct{})}
	b, err := s.begin(within, c)
	if err == nil {
		err = f(within, b)
		s.end(c, b)
	}
	if err != nil && ctx.Err() == nil {
		if cause := context.Cause(within); cause != nil && errors.Is(cause, errClosed) {
			return errClosed
		}
	}
	return err
}

// begin registers a call, as soon as the user's sandbox is not being moved.
func (s *Sandbox) begin(ctx context.Context, c *call) (*box, error) {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, errClosed
		}
		b := s.box(c.user)
		moved := b.moved
		if moved == nil {
			b.calls++
			s.calls[c] = true
			s.mu.Unlock()
			return b, nil
		}
		s.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *Sandbox) end(c *call, b *box) {
	s.mu.Lock()
	delete(s.calls, c)
	b.calls--
	if b.calls == 0 && b.drained != nil {
		close(b.drained)
		b.drained = nil
	}
	b.forget()
	s.mu.Unlock()
	close(c.over)
}

// box is that of a user; s.mu is held.
func (s *Sandbox) box(user sandbox.User) *box {
	id := user.ProjectID()
	b := s.boxes[id]
	if b == nil {
		user.Runner = ""
		b = &box{s: s, id: id, user: user, turn: make(chan struct{}, 1)}
		s.boxes[id] = b
	}
	return b
}

// Name is sandbox.Docker.
func (s *Sandbox) Name() string { return sandbox.Docker }

// GetShell is bash.
func (s *Sandbox) GetShell(ctx context.Context, _ sandbox.User) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", errClosed
	}
	return shell, nil
}

// Locate starts the user's container if there is none.
func (s *Sandbox) Locate(ctx context.Context, user sandbox.User) (sandbox.Location, error) {
	user.Runner = ""
	at := sandbox.Location{Backend: sandbox.Docker, User: user}
	err := s.do(ctx, user, func(ctx context.Context, b *box) error {
		l, err := b.acquire(ctx)
		if err != nil {
			return err
		}
		at.Image, at.ImageID = l.image.Ref, l.image.ID
		has := l.resident.Limits()
		at.Limits = &sandbox.Limits{MemoryMB: has.MemoryMB, CPUCores: has.CPUCores, PIDs: has.PIDs, TmpMB: has.TmpMB, Runtime: l.wanted.Runtime}
		b.release(l)
		return nil
	})
	return at, err
}

// Close kills what runs, stops all containers, and waits for that.
func (s *Sandbox) Close() error {
	s.stop(true, func(sandbox.User) bool { return true })
	s.background.Wait()
	return nil
}

// CloseForUser does that for one user.
func (s *Sandbox) CloseForUser(user sandbox.User) error {
	s.stop(false, user.Holds)
	return nil
}

func (s *Sandbox) stop(closing bool, match func(sandbox.User) bool) {
	s.mu.Lock()
	s.closed = s.closed || closing
	var calls []*call
	for c := range s.calls {
		if match(c.user) {
			calls = append(calls, c)
		}
	}
	s.mu.Unlock()
	for _, c := range calls {
		c.cancel(errClosed)
	}
	for _, c := range calls {
		<-c.over
	}
	s.mu.Lock()
	var lives []*live
	for _, b := range s.boxes {
		if match(b.user) && b.live != nil && b.live.commands == 0 {
			lives = append(lives, b.detach())
		}
	}
	s.mu.Unlock()
	var ending sync.WaitGroup
	for _, l := range lives {
		ending.Go(l.end)
	}
	ending.Wait()
}
