package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"secbox/dockercli"
	"secbox/fault"
)

// Options are the operator's choices that shape every container alike.
type Options struct {
	ReadOnlyRootfs bool
}

// Config is what a cold engine is made of.
type Config struct {
	CLI      *dockercli.CLI
	Identity Identity
	Options  Options
	NewID    func() string // UUIDv7
	Log      *slog.Logger
}

// Cold starts a container per job when the job is there.
type Cold struct {
	cfg Config

	// teardown counts the CLI processes and containers that outlive the answer to their exec.
	teardown sync.WaitGroup
	stop     chan struct{}
	stopOnce sync.Once
}

// NewCold makes the engine; it starts nothing yet.
func NewCold(cfg Config) *Cold { return &Cold{cfg: cfg, stop: make(chan struct{})} }

// Acquire allots an id and prepares its directories.
func (c *Cold) Acquire(ctx context.Context, spec Spec) (Slot, error) {
	execID := spec.ExecID
	if execID == "" {
		execID = c.cfg.NewID()
	}
	mounts, err := spec.Prepare(ctx, execID)
	if err != nil {
		return nil, err
	}
	return &coldSlot{engine: c, execID: execID, mounts: mounts, args: runArgs(c.cfg.Identity, c.cfg.Options, spec, execID, mounts)}, nil
}

// Close waits until every container that was started is gone, however its exec ended. Callers end their execs first.
func (c *Cold) Close() error {
	c.stopOnce.Do(func() { close(c.stop) })
	c.teardown.Wait()
	return nil
}

// Sweep removes every container that bears this node's label: what an earlier process of the node left. It is called before the first
// Acquire, and again until it succeeds once.
func (c *Cold) Sweep(ctx context.Context) (removed int, err error) {
	ids, err := c.cfg.CLI.Containers(ctx, LabelNode+"="+c.cfg.Identity.Node)
	if err != nil {
		return 0, err
	}
	for _, id := range ids {
		if err := c.cfg.CLI.Remove(ctx, id); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// removeForSure removes a container until docker confirms that it is gone, or the engine is closed. It returns whether it is gone within
// patience; after that it goes on in the background.
func (c *Cold) removeForSure(name string, patience time.Duration) bool {
	gone := make(chan struct{})
	c.teardown.Go(func() {
		delay := 100 * time.Millisecond
		for {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			err := c.cfg.CLI.Remove(ctx, name)
			cancel()
			if err == nil {
				close(gone)
				return
			}
			if fault.CodeOf(err) != fault.EngineUnavailable {
				c.cfg.Log.Warn("a container could not be removed; trying again", "container", name, "error", err)
			}
			select {
			case <-c.stop: // the next start sweeps it by label
				return
			case <-time.After(delay):
			}
			delay = min(2*delay, 10*time.Second)
		}
	})
	select {
	case <-gone:
		return true
	case <-time.After(patience):
		return false
	}
}
