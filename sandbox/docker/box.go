package docker

import (
	"context"
	"errors"
	"sync"
	"time"

	"secbox/diskwatch"
	"secbox/engine"
	"secbox/fault"
	"secbox/sandbox"
	"secbox/workspace"
)

// box is one user's sandbox: a container or none, and what is to be remembered while there is none.
type box struct {
	s    *Sandbox
	id   string
	user sandbox.User
	turn chan struct{} // holds a token while the container is being started, replaced or moved

	// What follows is guarded by Sandbox.mu.
	live    *live
	calls   int
	drained chan struct{} // closed when calls are 0; nil: nobody waits for that
	moved   chan struct{} // closed when the move that is under way is over; nil: there is none
	pinned  *engine.Image // what the user stays with because the move to the image that is set has failed
}

// live is a container that runs. It holds its place: work/ stays where it is mounted.
type live struct {
	b        *box
	resident *engine.Resident
	place    *sandbox.Place
	home     *workspace.Home
	wanted   Container
	image    engine.Image
	token    string // of the request that started it; empty: it needed none
	endOnce  sync.Once
	project  *workspace.Project
	unlinked *diskwatch.Open // of the container

	// What follows is guarded by Sandbox.mu.
	commands int // that run, or are about to
	running  map[*command]bool
	used     time.Time
	idle     *time.Timer
}

// take waits for the turn.
func (b *box) take(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *box) give() { <-b.turn }

// acquire gives a container that will take a command, and starts one where there is none, or none that will do. It must be released.
func (b *box) acquire(ctx context.Context) (*live, error) {
	s := b.s
	wanted := s.cfg.Container()
	if wanted.Refused != nil {
		return nil, wanted.Refused
	}
	image, err := b.image(ctx, wanted)
	if err != nil {
		return nil, err
	}
	if l, err := b.hold(wanted, image); l != nil || err != nil {
		return l, err
	}
	if err := b.take(ctx); err != nil {
		return nil, err
	}
	defer b.give()
	if l, err := b.hold(wanted, image); l != nil || err != nil { // somebody else has started it meanwhile
		return l, err
	}
	s.mu.Lock()
	old := b.detach()
	s.mu.Unlock()
	if old != nil {
		old.end()
	}
	l, err := b.start(ctx, wanted, image)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b.attach(l)
	l.hold()
	return l, nil
}

// image is what a container of the user is to be started from.
func (b *box) image(ctx context.Context, wanted Container) (engine.Image, error) {
	b.s.mu.Lock()
	pinned := b.pinned
	b.s.mu.Unlock()
	if pinned != nil {
		return *pinned, nil
	}
	return b.s.cfg.Images.Resolve(ctx, wanted.Image)
}

// hold takes the container that runs, if it will do: it lives, its directories are still those that it has mounted, and it is what is
// wanted now, or busy. nil: there is none.
func (b *box) hold(wanted Container, image engine.Image) (*live, error) {
	s := b.s
	s.mu.Lock()
	l := b.live
	s.mu.Unlock()
	if l == nil {
		return nil, nil
	}
	intact := l.place.Intact() && l.home.Intact()
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.live != l {
		return nil, nil
	}
	select {
	case <-l.resident.Done():
		return nil, nil
	default:
	}
	if !intact || l.commands == 0 && (l.wanted != wanted || l.image != image) {
		return nil, nil
	}
	if l.commands >= s.cfg.MaxCommands {
		e := fault.New(fault.SandboxBusy, "%d commands run in this sandbox, which is the most; try again when one has ended", l.commands)
		e.RetryAfter = time.Second
		return nil, e
	}
	l.hold()
	return l, nil
}

// hold counts a command; Sandbox.mu is held.
func (l *live) hold() {
	l.commands++
	l.idle.Stop()
}

// release is the end of what acquire began.
func (b *box) release(l *live) {
	s := b.s
	s.mu.Lock()
	defer s.mu.Unlock()
	l.commands--
	l.used = s.cfg.Now()
	if l.commands == 0 {
		l.idle.Reset(s.cfg.IdleFor)
	}
}

// attach makes a container that of the box; Sandbox.mu is held.
func (b *box) attach(l *live) {
	b.live = l
	l.used = b.s.cfg.Now()
	l.idle = time.AfterFunc(b.s.cfg.IdleFor, l.rest)
	b.s.background.Go(func() { // a container that dies by itself gives its place back
		<-l.resident.Done()
		b.s.mu.Lock()
		if b.live == l {
			b.detach()
		}
		b.s.mu.Unlock()
		l.end()
	})
}

// detach takes the container off the box; whoever does ends it. Sandbox.mu is held.
func (b *box) detach() *live {
	l := b.live
	b.live = nil
	if l != nil {
		l.idle.Stop()
	}
	b.forget()
	return l
}

// forget drops a box that nobody uses and that has nothing to remember; Sandbox.mu is held.
func (b *box) forget() {
	if b.calls == 0 && b.live == nil && b.moved == nil && b.pinned == nil {
		delete(b.s.boxes, b.id)
	}
}

// rest ends a container that nobody has used for long.
func (l *live) rest() {
	s := l.b.s
	s.mu.Lock()
	stop := l.b.live == l && l.commands == 0
	if stop {
		l.b.detach()
	}
	s.mu.Unlock()
	if stop {
		s.cfg.Log.Info("a sandbox's container is stopped: nobody uses it", "project", l.b.id, "container", l.resident.Name())
		l.end()
	}
}

// end stops the container, waits for its death, and gives its place back. It is safe to call twice; the second call waits too.
func (l *live) end() {
	l.endOnce.Do(func() {
		l.resident.Stop()
		l.place.Close()
		l.b.s.mu.Lock()
		l.b.s.unclaim(l.token)
		l.b.s.mu.Unlock()
	})
}

// start starts a container. The box's turn is held.
func (b *box) start(ctx context.Context, wanted Container, image engine.Image) (_ *live, err error) {
	s := b.s
	if err := s.cfg.Disk.Room(); err != nil {
		return nil, err
	}
	token := sandbox.RequestOf(ctx).RequestedBy
	if token == sandbox.Tokenless {
		token = ""
	}
	if err := s.claim(token); err != nil {
		return nil, err
	}
	l := &live{b: b, token: token, wanted: wanted, image: image, running: map[*command]bool{}, unlinked: &diskwatch.Open{}}
	defer func() {
		if err != nil {
			if l.place != nil {
				l.place.Close()
			}
			s.mu.Lock()
			s.unclaim(token)
			s.mu.Unlock()
		}
	}()
	if l.place, err = s.cfg.Places.Open(ctx, b.user); err != nil {
		return nil, err
	}
	if l.project, err = s.cfg.Workspace.Existing(b.id); err != nil {
		return nil, err
	}
	if l.home, err = l.project.Home(); err != nil {
		return nil, err
	}
	mounts := []engine.Mount{{Source: l.place.Mount, Target: sandbox.Root, ReadOnly: wanted.ReadOnly}, {Source: l.home.Mount, Target: HomePath}}
	for _, r := range s.cfg.ReadOnlyRoots {
		mounts = append(mounts, engine.Mount{Source: r.Mount, Target: r.Path, ReadOnly: true})
	}
	l.resident, err = s.cfg.Engine.StartResident(ctx, engine.ResidentSpec{
		ProjectID: b.id, ImageRef: image.Ref, ImageID: image.ID, InitVolume: image.InitVolume,
		Limits: wanted.Limits, User: wanted.User, Runtime: wanted.Runtime, Mounts: mounts, PathTail: homeBin,
		OnUnlinked: func(u engine.Unlinked) { l.unlinked.Set(u.Bytes, u.Hidden) },
	})
	if err == nil {
		s.cfg.Log.Info("a sandbox's container was started", "project", b.id, "container", l.resident.Name(), "image", image.ID)
	} else if e := ctx.Err(); e != nil {
		err = errors.Join(e, err)
	}
	return l, err
}

// claim makes room for one more container of a token: of those that are idle, the one that was used least recently goes, and when the token has
// its share, one of its own.
func (s *Sandbox) claim(token string) error {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return errClosed
		}
		full := token != "" && s.started[token] >= s.cfg.MaxPerToken
		if !full && s.containers < s.cfg.Max {
			s.containers++
			s.started[token]++
			s.mu.Unlock()
			return nil
		}
		var oldest *live
		for _, b := range s.boxes {
			l := b.live
			if l == nil || l.commands > 0 || b.moved != nil || full && l.token != token {
				continue
			}
			if oldest == nil || l.used.Before(oldest.used) {
				oldest = l
			}
		}
		if oldest != nil {
			oldest.b.detach()
		}
		s.mu.Unlock()
		if oldest == nil {
			return s.busy(full)
		}
		oldest.end()
	}
}

// busy is the error when no container is idle, of a token that has its share or of all.
func (s *Sandbox) busy(full bool) error {
	e := fault.New(fault.SandboxBusy, "%d sandboxes are at work, which is the most on this node; try again when one is idle (the setting sandboxes.max_containers raises it)",
		s.cfg.Max)
	if full {
		e = fault.New(fault.SandboxBusy,
			"%d sandboxes that this token has started are at work, which is the most for one; try again when one is idle (the setting sandboxes.max_containers_per_token raises it)", s.cfg.MaxPerToken)
	}
	e.RetryAfter = time.Second
	return e
}

// unclaim gives a container's place back; Sandbox.mu is held.
func (s *Sandbox) unclaim(token string) {
	s.containers--
	if s.started[token]--; s.started[token] == 0 {
		delete(s.started, token)
	}
}
