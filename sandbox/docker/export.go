package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"secbox/engine"
	"secbox/fault"
	"secbox/sandbox"
)

// drainAgain is how soon a move that has killed commands looks for others: one whose container was still being started begins only then.
const drainAgain = time.Second

// IsExporting reports whether the user's sandbox is being moved.
func (s *Sandbox) IsExporting(user sandbox.User) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.boxes[user.ProjectID()]
	return b != nil && b.moved != nil
}

// ExportAndImport moves the user's sandbox to the image that is set now. Calls for the user wait meanwhile, and commands that run are given
// Config.MovePatience. The home is saved first. When no container of the image comes up, or it cannot use the home, home and image are what they
// were, and the error says why.
func (s *Sandbox) ExportAndImport(ctx context.Context, user sandbox.User) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed
	}
	b := s.box(user)
	if b.moved != nil {
		s.mu.Unlock()
		return fault.New(fault.SandboxBusy, "the sandbox is being moved already")
	}
	b.moved = make(chan struct{})
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &call{user: user, cancel: cancel, over: make(chan struct{})}
	s.calls[c] = true
	var drained chan struct{}
	if b.calls > 0 {
		drained = make(chan struct{})
		b.drained = drained
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		close(b.moved)
		b.moved, b.drained = nil, nil
		delete(s.calls, c)
		b.forget()
		s.mu.Unlock()
		close(c.over)
	}()
	err := b.drain(within, drained)
	if err == nil {
		err = b.move(within)
	}
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(within), errClosed) {
		return errClosed
	}
	return err
}

// drain waits until no call is under way.
func (b *box) drain(ctx context.Context, drained <-chan struct{}) error {
	if drained == nil {
		return nil
	}
	late := time.NewTimer(b.s.cfg.MovePatience)
	defer late.Stop()
	for {
		select {
		case <-drained:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			b.s.mu.Lock()
			if b.live != nil {
				for c := range b.live.running {
					c.cancel(&killedFor{detail: fmt.Sprintf("killed: the sandbox was moved to another image, and the command had not ended within %v", b.s.cfg.MovePatience)})
				}
			}
			b.s.mu.Unlock()
			late.Reset(drainAgain)
		}
	}
}

// move does it; no call is under way.
func (b *box) move(ctx context.Context) error {
	s := b.s
	if err := b.take(ctx); err != nil {
		return err
	}
	defer b.give()
	wanted := s.cfg.Container()
	if wanted.Refused != nil {
		return wanted.Refused
	}
	image, err := s.cfg.Images.Resolve(ctx, wanted.Image)
	if err != nil {
		return err
	}
	place, err := s.cfg.Places.Open(ctx, b.user) // makes the workspace where there is none yet, and holds it
	if err != nil {
		return err
	}
	defer place.Close()

	s.mu.Lock()
	old := b.detach()
	before := b.pinned
	s.mu.Unlock()
	if old != nil {
		old.end()
		before = &old.image
	}
	project, err := s.cfg.Workspace.Existing(b.id)
	if err != nil {
		return err
	}
	home, err := project.Home()
	if err != nil {
		return err
	}
	if err := home.Save(ctx); err != nil {
		return b.stay(before, image, err)
	}
	l, err := b.start(ctx, wanted, image)
	if err == nil {
		if err = l.try(ctx); err != nil {
			l.end()
		}
	}
	if err != nil {
		if e := home.Restore(context.WithoutCancel(ctx)); e != nil {
			err = errors.Join(err, e)
		}
		return b.stay(before, image, err)
	}
	if err := home.Forget(); err != nil {
		s.cfg.Log.Warn("what was saved of a home stays", "project", b.id, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b.pinned = nil
	b.attach(l)
	return nil
}

// stay keeps the user with the image that their sandbox had.
func (b *box) stay(before *engine.Image, image engine.Image, err error) error {
	b.s.cfg.Log.Warn("a sandbox could not be moved to another image", "project", b.id, "image", image.ID, "error", err)
	if before == nil || before.ID == image.ID {
		return fault.Wrap(fault.CodeOf(err), err, "the sandbox could not be moved to %s: %s", image.Ref, fault.From(err).Message)
	}
	b.s.mu.Lock()
	b.pinned = before
	b.s.mu.Unlock()
	return fault.Wrap(fault.CodeOf(err), err, "the sandbox could not be moved to %s and stays with %s as it was: %s", image.Ref, before.ID, fault.From(err).Message)
}

// tryPatience is for the first command in a container of another image.
const tryPatience = 30 * time.Second

// try runs something in a container that was just started, in the home.
func (l *live) try(ctx context.Context) error {
	works := `[ -w "$HOME" ] && [ -w "$SECBOX_WORKSPACE" ]`
	if l.wanted.ReadOnly {
		works = `[ -w "$HOME" ] && [ -r "$SECBOX_WORKSPACE" ]`
	}
	exit, err := l.resident.Run(ctx, engine.Job{
		Argv: []string{shell, "-c", works}, Cwd: HomePath, Timeout: tryPatience,
		Env: map[string]string{"HOME": HomePath, sandbox.WorkspaceVariable: sandbox.Root},
	}, io.Discard, io.Discard)
	switch {
	case err != nil:
		return err
	case exit.StartError != "":
		return fault.New(fault.ImageMissing, "the image has no %s, which sandboxes need: %s", shell, exit.StartError)
	case exit.Code != 0:
		return fault.New(fault.Internal, "commands in a container of the image cannot use the home and the workspace")
	}
	return nil
}
