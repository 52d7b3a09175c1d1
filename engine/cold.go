package engine

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"secbox/dockercli"
	"secbox/fault"
)

// Options are the operator's choices that shape every container alike.
type Options struct {
	ReadOnlyRootfs bool
	Seccomp        string // path of the profile as the docker CLI reads it, which sends its content; empty: the engine's own
}

// Config is what a cold engine is made of.
type Config struct {
	CLI      *dockercli.CLI
	Identity Identity
	Options  Options
	NewID    func() string // UUIDv7
	Log      *slog.Logger
	// AnswerPatience is how long a container that waited may take to answer before a new one replaces it; 0: two seconds.
	AnswerPatience time.Duration
}

// answerPatience is far more than the millisecond that init needs. On a machine so slow that it is not enough, the exec has a cold start.
const answerPatience = 2 * time.Second

// Cold starts a container per job when the job is there.
type Cold struct {
	cfg Config

	starts chan struct{} // holds a token for each container that is being started

	// teardown counts the CLI processes and containers that outlive the answer to their exec.
	teardown sync.WaitGroup
	stop     chan struct{}
	stopOnce sync.Once

	mu     sync.Mutex
	mine   map[string]bool // names of the containers that this engine has in its hands: not for Sweep
	sweeps int             // how many more are wanted
}

// NewCold makes the engine; it starts nothing yet.
func NewCold(cfg Config) *Cold {
	cfg.AnswerPatience = cmp.Or(cfg.AnswerPatience, answerPatience)
	return &Cold{cfg: cfg, starts: make(chan struct{}, startsAtOnce()), stop: make(chan struct{}), mine: map[string]bool{}, sweeps: 1}
}

// startsAtOnce is how many containers are started at the same time. Two for each core keep all cores busy; with more of them the engine
// and the kernel's locks for cgroups and mounts cost each start more: 16 at once take a tenth more CPU time per container than four.
func startsAtOnce() int { return 2 * runtime.NumCPU() }

// mayStart waits for its turn to start a container; an error when ctx ends first. Whoever was let in calls started.
func (c *Cold) mayStart(ctx context.Context) error {
	select {
	case c.starts <- struct{}{}:
		return nil
	default:
	}
	select {
	case c.starts <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Cold) started() { <-c.starts }

// Acquire allots an id and prepares its directories.
func (c *Cold) Acquire(ctx context.Context, spec Spec) (Slot, error) {
	allotted, err := c.allot(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &coldSlot{allotted}, nil
}

// allotted is what every slot has: an id, a place, and how docker is to be called.
type allotted struct {
	engine *Cold
	execID string
	place  Place
	args   []string
}

func (c *Cold) allot(ctx context.Context, spec Spec) (allotted, error) {
	execID := spec.ExecID
	if execID == "" {
		execID = c.cfg.NewID()
	}
	place, err := spec.Prepare(ctx, execID)
	if err != nil {
		return allotted{}, err
	}
	return allotted{engine: c, execID: execID, place: place, args: runArgs(c.cfg.Identity, c.cfg.Options, spec, execID, place.Mounts)}, nil
}

func (a *allotted) ExecID() string  { return a.execID }
func (a *allotted) Mounts() []Mount { return a.place.Mounts }
func (a *allotted) Args() []string  { return a.args }

// coldSlot starts its container when it is run.
type coldSlot struct{ allotted }

func (s *coldSlot) Warm() bool { return false }
func (s *coldSlot) Discard()   { s.place.drop() }

func (s *coldSlot) Run(ctx context.Context, job Job, stdout, stderr io.Writer) (Exit, error) {
	if err := s.engine.mayStart(ctx); err != nil {
		return Exit{}, &RunError{Dead: true, Err: fault.Wrap(fault.Internal, err, "killed before it started")}
	}
	session, err := newSession(s.engine, containerName(s.execID), s.args)
	if err != nil {
		s.engine.started()
		return Exit{}, &RunError{Dead: true, Err: err}
	}
	return session.run(ctx, job, stdout, stderr)
}

// Close waits until every container that was started is gone, however its exec ended. Callers end their execs first.
func (c *Cold) Close() error {
	c.stopOnce.Do(func() { close(c.stop) })
	c.teardown.Wait()
	return nil
}

// Sweep removes every container that bears this node's label and is not in this engine's hands: what an earlier process of the node
// left. Execs may run meanwhile.
func (c *Cold) Sweep(ctx context.Context) (removed int, err error) {
	c.mu.Lock()
	before := maps.Clone(c.mine) // one whose session ends during the look is no leftover
	c.mu.Unlock()
	names, err := c.cfg.CLI.Containers(ctx, LabelNode+"="+c.cfg.Identity.Node)
	if err != nil {
		return 0, err
	}
	var errs []error // one that resists does not keep the others
	for _, name := range names {
		if before[name] || c.holds(name) {
			continue
		}
		if err := c.cfg.CLI.Remove(ctx, name); err != nil {
			errs = append(errs, err)
			continue
		}
		removed++
	}
	if len(errs) > 0 {
		return removed, errors.Join(errs...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweeps = max(0, c.sweeps-1)
	return removed, nil
}

// sweepsAfterTrouble is how often Sweep looks again, some seconds apart, once the engine or a CLI has failed us: an engine that comes
// back may still list what it has confirmed as removed, and one whose client was killed may only now make the container.
const sweepsAfterTrouble = 3

// WantsSweep reports whether there may be containers that nobody holds: before the first Sweep that succeeds, and after trouble.
func (c *Cold) WantsSweep() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sweeps > 0
}

func (c *Cold) trouble() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweeps = sweepsAfterTrouble
}

// hold keeps Sweep away from a container, from before it exists until its session is over.
func (c *Cold) hold(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mine[name] = true
}

func (c *Cold) release(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mine, name)
}

func (c *Cold) holds(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mine[name]
}

// removal is the removal of one container, under way in the background.
type removal struct {
	gone chan struct{} // closed when docker has confirmed it
	err  atomic.Pointer[error]
}

// lastErr is why it has not succeeded so far.
func (r *removal) lastErr() error {
	if err := r.err.Load(); err != nil {
		return *err
	}
	return nil
}

// removeForSure removes a container until docker confirms that it is gone, or the engine is closed.
func (c *Cold) removeForSure(name string) *removal {
	r := &removal{gone: make(chan struct{})}
	c.teardown.Go(func() {
		delay := 100 * time.Millisecond
		for {
			err := c.removeOnce(name)
			if err == nil {
				close(r.gone)
				return
			}
			r.err.Store(&err)
			c.trouble()
			if fault.CodeOf(err) != fault.EngineUnavailable && !isUnderWay(err) {
				c.cfg.Log.Warn("a container could not be removed; trying again", "container", name, "error", err)
			}
			if c.pause(delay) { // the next start sweeps it by label
				return
			}
			delay = min(2*delay, maxRemoveDelay)
		}
	})
	return r
}

// isUnderWay is for a removal that somebody else, often the engine's own --rm, has begun.
func isUnderWay(err error) bool {
	var failed *dockercli.Error
	return errors.As(err, &failed) && failed.Kind == dockercli.Removing
}

const maxRemoveDelay = 10 * time.Second

func (c *Cold) removeOnce(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), removePatience)
	defer cancel()
	return c.cfg.CLI.Remove(ctx, name)
}

// pause waits; true when the engine is being closed.
func (c *Cold) pause(d time.Duration) (stopped bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.stop:
		return true
	case <-timer.C:
		return false
	}
}

// await waits for a removal; true when the container is gone within patience.
func (c *Cold) await(r *removal, patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-r.gone:
		return true
	case <-c.stop:
	case <-timer.C:
	}
	select {
	case <-r.gone:
		return true
	default:
		return false
	}
}
