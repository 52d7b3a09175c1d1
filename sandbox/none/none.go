// Package none is the sandbox without confinement: commands run on this machine as the user that
// core-api runs as. It is off unless the settings allow it by name. File operations stay in the
// user's workspace; only the machine bounds commands.
//
// The package knows workspaces as sandbox.Directories, and must not know settings, audit rows or
// HTTP.
package none

import (
	"cmp"
	"context"
	"errors"
	"time"

	"secbox/internal/admission"
	"secbox/sandbox"
	"secbox/sandbox/files"
	"secbox/sandbox/process"
)

// Config configures a Sandbox.
type Config struct {
	Directories sandbox.Directories
	ReadOnly    []sandbox.ReadOnlyRoot
	Environ     []string     // of core-api; commands get the part that sandbox.Inherited allows
	Room        func() error // fault.DiskFull when the disk has too little room to write; nil: not checked

	// Commands and Calls bound how many commands and how many file operations run at once, for all
	// users together. Eight times as many wait; more are fault.SandboxBusy. 0: DefaultCommands,
	// DefaultCalls.
	Commands, Calls int

	MaxTimeout time.Duration // the longest timeout of a command; 0: no bound
}

// The bounds of a Config without any.
const (
	DefaultCommands = 64
	DefaultCalls    = 128
)

// queueFactor is how many calls wait for each that runs.
const queueFactor = 8

// Sandbox implements sandbox.Backend.
type Sandbox struct {
	files.Ops

	cfg       Config
	processes *process.Processes
	active    sandbox.Calls
	commands  *admission.Gate
	fileCalls *admission.Gate
}

var _ sandbox.Backend = (*Sandbox)(nil)

// New makes the sandbox.
func New(cfg Config) *Sandbox {
	cfg.Commands = cmp.Or(max(0, cfg.Commands), DefaultCommands)
	cfg.Calls = cmp.Or(max(0, cfg.Calls), DefaultCalls)
	cfg.Environ = sandbox.Inherited(cfg.Environ)
	s := &Sandbox{
		cfg:       cfg,
		processes: process.New(),
		commands:  admission.New(cfg.Commands, queueFactor*cfg.Commands),
		fileCalls: admission.New(cfg.Calls, queueFactor*cfg.Calls),
	}
	s.Ops = func(ctx context.Context, user sandbox.User, f func(context.Context, *files.Files) error) error {
		return s.do(ctx, user, s.fileCalls, func(ctx context.Context, dir *sandbox.Directory) error { return f(ctx, s.files(dir)) })
	}
	return s
}

// do runs f in the user's workspace as soon as the gate admits it. f's context also ends when the
// sandbox is closed for the user.
func (s *Sandbox) do(ctx context.Context, user sandbox.User, gate *admission.Gate,
	f func(context.Context, *sandbox.Directory) error,
) error {
	return s.active.Do(ctx, user, func(ctx context.Context) error {
		ticket := gate.Enter()
		if ticket == nil {
			return sandbox.Busy("too many calls are in progress; try again when some have ended")
		}
		defer ticket.Leave()
		if err := ticket.Wait(ctx); err != nil {
			return errors.Join(ctx.Err(), err)
		}
		dir, err := s.cfg.Directories.Open(ctx, user)
		if err != nil {
			return err
		}
		defer dir.Close()
		return f(ctx, dir)
	})
}

// Name returns sandbox.None.
func (s *Sandbox) Name() string { return sandbox.None }

// Close kills all commands, and waits for every call.
func (s *Sandbox) Close() error {
	s.active.Close()
	return s.processes.Close()
}

// CloseForUser kills the user's commands, and waits for the user's calls.
func (s *Sandbox) CloseForUser(user sandbox.User) error {
	s.active.CloseForUser(user)
	return nil
}

// GetShell returns bash, or the shell of a machine without it.
func (s *Sandbox) GetShell(ctx context.Context, _ sandbox.User) (string, error) {
	return process.Shell(), s.active.Check(ctx)
}

// Locate returns this machine.
func (s *Sandbox) Locate(ctx context.Context, user sandbox.User) (sandbox.Location, error) {
	user.Runner = ""
	return sandbox.Location{Backend: sandbox.None, User: user}, s.active.Check(ctx)
}

func (s *Sandbox) files(dir *sandbox.Directory) *files.Files {
	return files.New(files.Config{
		Root: dir.Root, UID: dir.UID, GID: dir.GID, ReadOnly: s.cfg.ReadOnly, Room: s.cfg.Room,
		LockEdits: dir.LockEdits,
	})
}
