package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"secbox/engine"
	"secbox/engine/attach"
	"secbox/internal/lockfile"
	"secbox/pathadapter"
)

// mountsDir has the mounts of waiting containers. It is not in the state dir: a recursive removal
// of that would reach the files of projects.
const mountsDir = "/run/secbox"

// openBase opens the base of containers for any project; nil and the reason, with the remedy, where
// there can be none or the settings want none.
func (d *Deps) openBase(parent, node string) (base *attach.Base, because string) {
	const remedy = "run core-api as root on the engine's machine, or accept that each project waits for its own containers"
	switch {
	case d.cluster != nil:
		return nil, "a pod's volumes cannot be changed while it runs"
	case !d.settings.Pool.Share:
		return nil, "pool.share is false"
	case runtime.GOOS != "linux":
		return nil, "core-api runs on " + runtime.GOOS + ": only Linux can mount directories into a running container"
	case os.Geteuid() != 0:
		return nil, "core-api does not run as root, which may mount directories; " + remedy
	}
	base, err := attach.Open(parent, node)
	switch {
	case err == nil:
		return base, ""
	case errors.Is(err, lockfile.ErrLocked):
		because = fmt.Sprintf("another process uses %s: two core-apis have one node id, perhaps by a copied state dir; end one of them, "+
			"or give it a new state dir",
			filepath.Join(parent, node))
	case d.adapter.Mode() == pathadapter.Container:
		because = fmt.Sprintf("core-api runs in a container, which cannot mount directories into others (%v); %s", err, remedy)
	case errors.Is(err, errors.ErrUnsupported):
		because = fmt.Sprintf("this kernel, which must be Linux 5.12 or newer, or a security module refuses to mount directories (%v)", err)
	default:
		because = fmt.Sprintf("directories cannot be mounted below %s: %v", parent, err)
	}
	return nil, because
}

// Share starts a pool around cold, with two containers of a spec. Like a server's containers, they
// wait for any project. The pool closes cold. Share returns nil, and the reason with the remedy,
// where containers cannot wait for any project. It takes some seconds.
func (d *Deps) Share(ctx context.Context, cold *engine.Cold, node string, spec engine.Spec, log *slog.Logger) (*engine.Pool, string) {
	if d.settings.Pool.Max == 0 {
		return nil, engine.PoolOff
	}
	var base *attach.Base
	if !d.copies() {
		var because string
		if base, because = d.openBase(mountsDir, node); base == nil {
			return nil, because
		}
	}
	because := ""
	const containers = 2
	ready := make(chan struct{}, containers)
	pool := engine.NewPool(cold, engine.PoolConfig{
		Max: containers, MaxPerKey: containers, MaxMemoryMB: containers * engine.SlotMemoryMB, Idle: time.Hour,
		Base: base, Ready: containers, Default: func(context.Context) (engine.Spec, error) { return spec, nil },
		Now: time.Now, Log: log,
		Refilled: func(time.Duration) {
			select {
			case ready <- struct{}{}:
			default: // another one, after the probes have begun
			}
		},
	})
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("two containers were not ready within two minutes"))
	defer cancel()
	for _, event := range []<-chan struct{}{pool.Decided(), ready, ready} {
		select {
		case <-event:
			because = pool.Stats().NotShared
		case <-ctx.Done():
			because = context.Cause(ctx).Error()
		}
		if because != "" {
			_ = pool.Close()
			return nil, because
		}
	}
	return pool, ""
}
