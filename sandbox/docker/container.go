package docker

import (
	"context"
	"errors"
	"sync"
	"time"

	"secbox/engine"
	"secbox/runner/diskwatch"
	"secbox/sandbox"
	"secbox/workspace"
)

// userContainer is a user's running container. It holds the user's directory open, so that work/
// stays where it is mounted.
type userContainer struct {
	owner    *userEntry
	resident *engine.Resident
	dir      *sandbox.Directory
	project  *workspace.Project
	home     *workspace.Home
	wanted   Container
	image    engine.Image
	token    string          // of the request that started it; empty: it needed none
	unlinked *diskwatch.Open // removed files that its processes still hold open
	endOnce  sync.Once

	// Guarded by Sandbox.mu.
	commands int // running, or about to
	used     time.Time
	idle     *time.Timer
}

// acquire returns a container that takes a command, and starts one if none runs or the running one
// does not fit. The caller must release it.
func (s *Sandbox) acquire(ctx context.Context, u *userEntry) (*userContainer, error) {
	wanted := s.cfg.Container()
	if wanted.Refused != nil {
		return nil, wanted.Refused
	}
	image, err := s.cfg.Images.Resolve(ctx, wanted.Image)
	if err != nil {
		return nil, err
	}
	if c, err := s.hold(u, wanted, image); c != nil || err != nil {
		return c, err
	}
	select {
	case u.turn <- struct{}{}:
		defer func() { <-u.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c, err := s.hold(u, wanted, image); c != nil || err != nil { // started by another call meanwhile
		return c, err
	}
	s.mu.Lock()
	old := s.detach(u)
	s.mu.Unlock()
	if old != nil {
		s.end(old)
	}
	c, err := s.start(ctx, u, wanted, image)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attach(c)
	c.hold()
	return c, nil
}

// hold takes the running container if it fits: it is alive, its mounted directories still exist,
// and it is as wanted, or busy. nil: none fits.
func (s *Sandbox) hold(u *userEntry, wanted Container, image engine.Image) (*userContainer, error) {
	s.mu.Lock()
	c := u.container
	s.mu.Unlock()
	if c == nil {
		return nil, nil
	}
	intact := c.dir.Intact() && c.home.Intact()
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-c.resident.Done():
		return nil, nil
	default:
	}
	if u.container != c || !intact || c.commands == 0 && (c.wanted != wanted || c.image != image) {
		return nil, nil
	}
	if c.commands >= s.cfg.MaxCommands {
		return nil, sandbox.Busy("command limit reached: %d commands run in this sandbox; try again when one has ended", c.commands)
	}
	c.hold()
	return c, nil
}

// hold counts a command. Sandbox.mu is held.
func (c *userContainer) hold() {
	c.commands++
	c.idle.Stop()
}

// release ends what acquire began.
func (s *Sandbox) release(c *userContainer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.commands--
	c.used = s.cfg.Now()
	if c.commands == 0 {
		c.idle.Reset(s.cfg.IdleFor)
	}
}

// attach makes c its owner's container. s.mu is held.
func (s *Sandbox) attach(c *userContainer) {
	c.owner.container = c
	c.used = s.cfg.Now()
	c.idle = time.AfterFunc(s.cfg.IdleFor, func() { s.stopUnused(c) })
	s.background.Go(func() { // also when the container dies by itself
		<-c.resident.Done()
		s.mu.Lock()
		if c.owner.container == c {
			s.detach(c.owner)
		}
		s.mu.Unlock()
		s.end(c)
	})
}

// detach takes the container from the user; the caller must call end. s.mu is held.
func (s *Sandbox) detach(u *userEntry) *userContainer {
	c := u.container
	u.container = nil
	if c != nil {
		c.idle.Stop()
	}
	s.forget(u)
	return c
}

// stopUnused stops a container that has run no command for IdleFor.
func (s *Sandbox) stopUnused(c *userContainer) {
	s.mu.Lock()
	stop := c.owner.container == c && c.commands == 0
	if stop {
		s.detach(c.owner)
	}
	s.mu.Unlock()
	if stop {
		s.cfg.Log.Info("stopping an idle sandbox container", "project", c.owner.id, "container", c.resident.Name())
		s.end(c)
	}
}

// end stops the container, waits for its death, and releases what it held. A second call waits too.
func (s *Sandbox) end(c *userContainer) {
	c.endOnce.Do(func() {
		c.resident.Stop()
		c.dir.Close()
		s.unreserve(c.token)
	})
}

// start starts a container. The user's turn is held.
func (s *Sandbox) start(ctx context.Context, u *userEntry, wanted Container, image engine.Image) (_ *userContainer, err error) {
	if err := s.cfg.Disk.Room(); err != nil {
		return nil, err
	}
	token := sandbox.RequestOf(ctx).RequestedBy
	if token == sandbox.Tokenless {
		token = ""
	}
	if err := s.reserve(token); err != nil {
		return nil, err
	}
	c := &userContainer{owner: u, token: token, wanted: wanted, image: image, unlinked: &diskwatch.Open{}}
	defer func() {
		if err != nil {
			if c.dir != nil {
				c.dir.Close()
			}
			s.unreserve(token)
		}
	}()
	if c.dir, err = s.cfg.Directories.Open(ctx, u.user); err != nil {
		return nil, err
	}
	if c.project, err = s.cfg.Workspace.Existing(u.id); err != nil {
		return nil, err
	}
	if c.home, err = c.project.Home(); err != nil {
		return nil, err
	}
	mounts := []engine.Mount{
		{Source: c.dir.Mount, Target: sandbox.Root, ReadOnly: wanted.ReadOnly},
		{Source: c.home.Mount, Target: HomePath},
	}
	for _, r := range s.cfg.ReadOnlyRoots {
		mounts = append(mounts, engine.Mount{Source: r.Mount, Target: r.Path, ReadOnly: true})
	}
	c.resident, err = s.cfg.Engine.StartResident(ctx, engine.ResidentSpec{
		ProjectID: u.id, ImageRef: image.Ref, ImageID: image.ID, InitVolume: image.InitVolume, Volumes: image.Volumes,
		Limits: wanted.Limits, User: wanted.User, Runtime: wanted.Runtime, Mounts: mounts, PathTail: homeBin,
		Reports: engine.Reports{OnUnlinked: func(u engine.Unlinked) { c.unlinked.Set(u.Bytes, u.Hidden) }},
	})
	if err == nil {
		s.cfg.Log.Info("started a sandbox container", "project", u.id, "container", c.resident.Name(), "image", image.ID)
	} else if e := ctx.Err(); e != nil {
		err = errors.Join(e, err)
	}
	return c, err
}

// reserve makes room for one more container of a token. If there is none, it stops the idle
// container that was used least recently: one of the token's if the token has reached its limit,
// else any.
func (s *Sandbox) reserve(token string) error {
	for {
		s.mu.Lock()
		atLimit := token != "" && s.started[token] >= s.cfg.MaxPerToken
		if !atLimit && s.containers < s.cfg.Max {
			s.containers++
			s.started[token]++
			s.mu.Unlock()
			return nil
		}
		var oldest *userContainer
		for _, u := range s.users {
			c := u.container
			if c == nil || c.commands > 0 || atLimit && c.token != token {
				continue
			}
			if oldest == nil || c.used.Before(oldest.used) {
				oldest = c
			}
		}
		if oldest != nil {
			s.detach(oldest.owner)
		}
		s.mu.Unlock()
		switch {
		case oldest != nil:
			s.end(oldest)
		case atLimit:
			return sandbox.Busy("token limit reached: %d sandboxes that this token has started are in use; try again when one is idle "+
				"(the setting sandboxes.max_containers_per_token raises the limit)",
				s.cfg.MaxPerToken)
		default:
			return sandbox.Busy("%d sandboxes are in use, which is the most on this node; try again when one is idle (the setting "+
				"sandboxes.max_containers raises the limit)", s.cfg.Max)
		}
	}
}

func (s *Sandbox) unreserve(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.containers--
	if s.started[token]--; s.started[token] == 0 {
		delete(s.started, token)
	}
}
