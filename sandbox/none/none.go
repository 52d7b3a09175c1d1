// Package none is the sandbox that is none: commands run on this machine as the user that core-api is, and files are this machine's. It is
// off unless the settings allow it by name. File operations stay in the user's workspace; commands are bound by nothing but the machine.
//
// The package knows workspaces as sandbox.Places only, and no settings, audit rows or HTTP.
package none

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"secbox/admission"
	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/files"
	"secbox/sandbox/process"
)

// Config is what the sandbox is made of.
type Config struct {
	Places   sandbox.Places
	ReadOnly []sandbox.ReadOnlyRoot
	Environ  []string     // of core-api; what commands see of it is Inherited's to say
	Room     func() error // fault.DiskFull when there is too little left to write; nil: it is not asked

	// Commands and Calls are how many commands run, and calls for files are at work, at once, all users together; as many again times eight
	// wait, more are fault.SandboxBusy. 0: DefaultCommands, DefaultCalls.
	Commands, Calls int

	MaxTimeout time.Duration // a spec's timeout is cut to this; 0: it is not
}

// The bounds of a Config that names none.
const (
	DefaultCommands = 64
	DefaultCalls    = 128
)

// queueFactor is how many wait for each that is at work.
const queueFactor = 8

// Sandbox implements sandbox.Sandbox, sandbox.Streamer and sandbox.Locator.
type Sandbox struct {
	files.Ops

	cfg       Config
	processes *process.Processes
	commands  *admission.Gate
	calls     *admission.Gate

	commits sync.Mutex // of files.Config

	mu     sync.Mutex
	closed bool
	active map[*call]bool
}

// call is one call under way.
type call struct {
	user   sandbox.User
	cancel context.CancelCauseFunc
	over   chan struct{}
}

// New makes the sandbox.
func New(cfg Config) *Sandbox {
	if cfg.Commands <= 0 {
		cfg.Commands = DefaultCommands
	}
	if cfg.Calls <= 0 {
		cfg.Calls = DefaultCalls
	}
	cfg.Environ = sandbox.Inherited(cfg.Environ)
	s := &Sandbox{
		cfg:       cfg,
		processes: process.New(),
		commands:  admission.New(cfg.Commands, queueFactor*cfg.Commands),
		calls:     admission.New(cfg.Calls, queueFactor*cfg.Calls),
		active:    map[*call]bool{},
	}
	s.Ops = s.in
	return s
}

// errClosed is why a call ends when its sandbox is closed.
var errClosed = fault.New(fault.ShuttingDown, "the sandbox was closed")

// do runs f for a user, in their workspace, when its turn comes. f's context also ends when the sandbox is closed for the user.
func (s *Sandbox) do(ctx context.Context, user sandbox.User, gate *admission.Gate, f func(context.Context, *sandbox.Place) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &call{user: user, cancel: cancel, over: make(chan struct{})}
	if !s.begin(c) {
		return errClosed
	}
	defer s.end(c)
	err := s.inTurn(within, user, gate, f)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(within), errClosed) {
		return errClosed
	}
	return err
}

func (s *Sandbox) inTurn(ctx context.Context, user sandbox.User, gate *admission.Gate, f func(context.Context, *sandbox.Place) error) error {
	ticket := gate.Enter()
	if ticket == nil {
		e := fault.New(fault.SandboxBusy, "too many calls are under way: try again when some have ended")
		e.RetryAfter = time.Second
		return e
	}
	defer ticket.Leave()
	if err := ticket.Wait(ctx); err != nil {
		return errors.Join(ctx.Err(), err)
	}
	place, err := s.cfg.Places.Open(ctx, user)
	if err != nil {
		return err
	}
	defer place.Close()
	return f(ctx, place)
}

func (s *Sandbox) begin(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.active[c] = true
	return true
}

func (s *Sandbox) end(c *call) {
	s.mu.Lock()
	delete(s.active, c)
	s.mu.Unlock()
	close(c.over)
}

// stop ends the calls that match, and waits for them.
func (s *Sandbox) stop(closing bool, match func(sandbox.User) bool) {
	s.mu.Lock()
	s.closed = s.closed || closing
	var stopped []*call
	for c := range s.active {
		if match(c.user) {
			stopped = append(stopped, c)
		}
	}
	s.mu.Unlock()
	for _, c := range stopped {
		c.cancel(errClosed)
	}
	for _, c := range stopped {
		<-c.over
	}
}

// Name is sandbox.None.
func (s *Sandbox) Name() string { return sandbox.None }

// Close kills what runs, and waits for every call.
func (s *Sandbox) Close() error {
	s.stop(true, func(sandbox.User) bool { return true })
	return s.processes.Close()
}

// CloseForUser kills what runs for one user.
func (s *Sandbox) CloseForUser(user sandbox.User) error {
	s.stop(false, user.Holds)
	return nil
}

// IsExporting is false: there is nothing to move.
func (s *Sandbox) IsExporting(sandbox.User) bool { return false }

// ExportAndImport is fault.Unsupported.
func (s *Sandbox) ExportAndImport(context.Context, sandbox.User) error {
	return fault.New(fault.Unsupported, "a sandbox on core-api's own machine has no image to move to")
}

// GetShell is bash, where there is one.
func (s *Sandbox) GetShell(ctx context.Context, _ sandbox.User) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if s.isClosed() {
		return "", errClosed
	}
	return process.Shell(), nil
}

func (s *Sandbox) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Locate says that commands run here.
func (s *Sandbox) Locate(ctx context.Context, user sandbox.User) (sandbox.Location, error) {
	if err := ctx.Err(); err != nil {
		return sandbox.Location{}, err
	}
	if s.isClosed() {
		return sandbox.Location{}, errClosed
	}
	user.Runner = ""
	return sandbox.Location{Backend: sandbox.None, User: user}, nil
}

// files are the files of a user's workspace.
func (s *Sandbox) files(place *sandbox.Place) *files.Files {
	return files.New(files.Config{Root: place.Dir, UID: place.UID, GID: place.GID, ReadOnly: s.cfg.ReadOnly, Room: s.cfg.Room, Commits: &s.commits})
}

// readOnlyDir is where a read-only root lies on this machine.
func (s *Sandbox) readOnlyDir(path string) string {
	i := slices.IndexFunc(s.cfg.ReadOnly, func(r sandbox.ReadOnlyRoot) bool { return r.Path == path })
	if i < 0 {
		return os.DevNull // there is none: nothing starts there
	}
	return s.cfg.ReadOnly[i].Dir
}
