package docker

import (
	"context"
	"sync"

	"secbox/sandbox"
	"secbox/sandbox/files"
)

// HomePath is the user's home in containers, and HOME.
const HomePath = "/home/sandbox"

// homeBin is where pip and others install a user's programs. It is last in PATH, so that no program
// there can replace one of the image, on which restricted commands rely.
const homeBin = HomePath + "/.local/bin"

// shell runs the lines of commands with Shell; every allowed image has it, because execs of kind
// shell need it too.
const shell = "/bin/bash"

// Sandbox implements sandbox.Backend.
type Sandbox struct {
	files.Ops

	cfg   Config
	calls sandbox.Calls

	mu         sync.Mutex
	users      map[string]*userEntry // by project id; only users with a call or a container
	containers int                   // running, starting or ending
	started    map[string]int        // of them, by token
	background sync.WaitGroup
}

// userEntry is one user with a call under way or a container.
type userEntry struct {
	id   string // of the project
	user sandbox.User
	turn chan struct{} // has an element while the container is being started or replaced

	// Guarded by Sandbox.mu.
	container *userContainer // nil: none runs
	calls     int
}

var _ sandbox.Backend = (*Sandbox)(nil)

// New makes the sandbox. Close stops all containers; it must come before the engine's Close.
func New(cfg Config) *Sandbox {
	s := &Sandbox{cfg: cfg.withDefaults(), users: map[string]*userEntry{}, started: map[string]int{}}
	s.Ops = func(ctx context.Context, user sandbox.User, f func(context.Context, *files.Files) error) error {
		return s.calls.Do(ctx, user, func(ctx context.Context) error {
			dir, err := s.cfg.Directories.Open(ctx, user)
			if err != nil {
				return err
			}
			defer dir.Close()
			return f(ctx, s.files(dir))
		})
	}
	return s
}

func (s *Sandbox) files(dir *sandbox.Directory) *files.Files {
	return files.New(files.Config{
		Root: dir.Root, UID: dir.UID, GID: dir.GID, ReadOnly: s.cfg.ReadOnlyRoots, Room: s.cfg.Disk.Room, Now: s.cfg.Now,
		LockEdits: dir.LockEdits,
	})
}

// do runs f with the user's entry. f's context also ends when the sandbox is closed for the user.
func (s *Sandbox) do(ctx context.Context, user sandbox.User, f func(context.Context, *userEntry) error) error {
	return s.calls.Do(ctx, user, func(ctx context.Context) error {
		u := s.enter(user)
		defer s.leave(u)
		return f(ctx, u)
	})
}

func (s *Sandbox) enter(user sandbox.User) *userEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	user.Runner = ""
	id := user.ProjectID()
	u := s.users[id]
	if u == nil {
		u = &userEntry{id: id, user: user, turn: make(chan struct{}, 1)}
		s.users[id] = u
	}
	u.calls++
	return u
}

func (s *Sandbox) leave(u *userEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.calls--
	s.forget(u)
}

// forget drops an entry without calls and container. s.mu is held.
func (s *Sandbox) forget(u *userEntry) {
	if u.calls == 0 && u.container == nil {
		delete(s.users, u.id)
	}
}

// Name returns sandbox.Docker.
func (s *Sandbox) Name() string { return sandbox.Docker }

// GetShell returns bash.
func (s *Sandbox) GetShell(ctx context.Context, _ sandbox.User) (string, error) {
	return shell, s.calls.Check(ctx)
}

// Locate starts the user's container if none runs.
func (s *Sandbox) Locate(ctx context.Context, user sandbox.User) (sandbox.Location, error) {
	user.Runner = ""
	at := sandbox.Location{Backend: sandbox.Docker, User: user}
	err := s.do(ctx, user, func(ctx context.Context, u *userEntry) error {
		c, err := s.acquire(ctx, u)
		if err != nil {
			return err
		}
		defer s.release(c)
		at.Image, at.ImageID = c.image.Ref, c.image.ID
		at.Limits, at.Runtime = new(c.resident.Limits()), c.wanted.Runtime
		return nil
	})
	return at, err
}

// Close kills all commands, stops all containers, and waits for that.
func (s *Sandbox) Close() error {
	s.calls.Close()
	s.stopIdle(func(sandbox.User) bool { return true })
	s.background.Wait()
	return nil
}

// CloseForUser kills the user's commands and stops the user's containers.
func (s *Sandbox) CloseForUser(user sandbox.User) error {
	s.calls.CloseForUser(user)
	s.stopIdle(user.Holds)
	return nil
}

// stopIdle stops the containers of the users that match, unless they run a command.
func (s *Sandbox) stopIdle(match func(sandbox.User) bool) {
	s.mu.Lock()
	var idle []*userContainer
	for _, u := range s.users {
		if match(u.user) && u.container != nil && u.container.commands == 0 {
			idle = append(idle, s.detach(u))
		}
	}
	s.mu.Unlock()
	var ending sync.WaitGroup
	for _, c := range idle {
		ending.Go(func() { s.end(c) })
	}
	ending.Wait()
}
