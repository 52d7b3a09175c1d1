package workspace

import (
	"context"
	"errors"
	"os"

	"secbox/fault"
	"secbox/internal/lockfile"
)

// LockEdits implements tree.Host.
func (h host) LockEdits(ctx context.Context) (release func(), err error) {
	turn := h.state.editing
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	lock, err := h.lockEditFile(ctx)
	if err != nil {
		<-turn
		return nil, err
	}
	return func() {
		lockfile.Close(lock)
		<-turn
	}, nil
}

// lockEditFile locks the file that excludes editors in other processes.
func (p *Project) lockEditFile(ctx context.Context) (*os.File, error) {
	idle, err := p.openIdle()
	if err != nil {
		return nil, err
	}
	defer idle.Close()
	lock, err := idle.OpenFile(editFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = awaitLock(ctx, lock)
	if err == nil {
		return lock, nil
	}
	lock.Close()
	if errors.Is(err, lockfile.ErrLocked) {
		return nil, fault.New(fault.SandboxBusy, "another node is changing files of the workspace %s; try again in a while", p.id)
	}
	return nil, err
}
