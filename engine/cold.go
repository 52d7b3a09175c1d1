package engine

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"secbox/engine/dockercli"
	"secbox/fault"
	"secbox/policy"
)

// Config configures a cold engine.
type Config struct {
	Driver   Driver
	Identity Identity
	// Copy, if not nil, copies the directories of execs into containers that mount nothing of them.
	// There are no containers that stay, then.
	Copy  *Copying
	NewID func() string // UUIDv7
	Log   *slog.Logger
	// AnswerTimeout is how long a waiting container may take to answer before a new one replaces
	// it; 0: two seconds.
	AnswerTimeout time.Duration
}

// answerTimeout is far more than the millisecond that init needs. When it is too short, the exec
// gets a cold start.
const answerTimeout = 2 * time.Second

// Cold starts a container for each job when the job arrives.
type Cold struct {
	cfg Config

	starts chan struct{} // one element for each container that is being started

	// teardown counts what outlives the answer to its exec: CLI processes and containers.
	teardown sync.WaitGroup
	stop     chan struct{}
	stopOnce sync.Once

	mu     sync.Mutex
	sweeps int // how many more are needed

	changes atomic.Bool   // the engine has changed the limits of a container that runs
	later   chan struct{} // takes the turn of a container that serves before it has its limits

	held sync.Map // names of the containers that Sweep must not remove, each from before it exists until it is gone
}

// NewCold makes the engine; it starts nothing yet.
func NewCold(cfg Config) *Cold {
	cfg.AnswerTimeout = cmp.Or(cfg.AnswerTimeout, answerTimeout)
	return &Cold{
		cfg: cfg, starts: make(chan struct{}, startsAtOnce()), later: make(chan struct{}, 1), stop: make(chan struct{}),
		sweeps: sweepsAfterFailure,
	}
}

// startsAtOnce is how many containers are started at the same time. Two for each core keep all
// cores busy. With more of them, contention in the engine and for the kernel's cgroup and mount
// locks slows each start: 16 at once take a tenth more CPU time per container than four.
func startsAtOnce() int { return 2 * runtime.NumCPU() }

// mayStart waits for a turn to start a container; an error when ctx ends first. After success, the
// caller must call started.
func (c *Cold) mayStart(ctx context.Context) error {
	select {
	case c.starts <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Cold) started() { <-c.starts }

// Acquire implements Engine. It starts nothing.
func (c *Cold) Acquire(ctx context.Context, spec Spec) (Slot, error) {
	allocation, err := c.allocate(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &coldSlot{allocation}, nil
}

// allocation is the part that all slots share: id, mounts and container.
type allocation struct {
	engine    *Cold
	execID    string
	mounts    MountSet
	container Container
	limits    policy.ContainerLimits // that a Resident's jobs know
	attached  bool                   // mounts were, to a container for any project
}

func (c *Cold) allocate(ctx context.Context, spec Spec) (allocation, error) {
	execID := spec.ExecID
	if execID == "" {
		execID = c.cfg.NewID()
	}
	if c.cfg.Copy != nil && spec.Serve {
		return allocation{}, noCopies()
	}
	mounts, err := spec.Prepare(ctx, execID)
	if err != nil {
		return allocation{}, err
	}
	return allocation{
		engine: c, execID: execID, mounts: mounts, container: c.container(execID, spec, mounts.Mounts), limits: limitsOf(spec),
		attached: c.cfg.Copy != nil,
	}, nil
}

// container describes a container with mounts, unless they are copied.
func (c *Cold) container(id string, spec Spec, mounts []Mount) Container {
	if c.cfg.Copy != nil {
		return Container{ID: id, Identity: c.cfg.Identity, Spec: spec, Copied: true}
	}
	return Container{ID: id, Identity: c.cfg.Identity, Spec: spec, Mounts: mounts}
}

func (a *allocation) ExecID() string  { return a.execID }
func (a *allocation) Mounts() []Mount { return a.mounts.Mounts }
func (a *allocation) Args() []string  { return a.engine.cfg.Driver.Args(a.container) }
func (a *allocation) Attached() bool  { return a.attached }

// coldSlot starts its container in Run.
type coldSlot struct{ allocation }

func (s *coldSlot) Warm() bool { return false }
func (s *coldSlot) Discard()   { s.mounts.drop() }

func (s *coldSlot) Run(ctx context.Context, job Job, stdout, stderr io.Writer) (Exit, error) {
	if err := s.engine.mayStart(ctx); err != nil {
		return Exit{}, &RunError{Dead: true, Err: fault.Wrap(fault.Internal, err, "killed before it started")}
	}
	session, err := newSession(s.engine, s.container)
	if err != nil {
		s.engine.started()
		return Exit{}, &RunError{Dead: true, Err: err}
	}
	return session.run(ctx, s.mounts, job, stdout, stderr)
}

func (s *coldSlot) Serve(ctx context.Context, reports Reports) (*Resident, error) {
	r, err := s.engine.startResident(ctx, s.container)
	if err != nil {
		return nil, err
	}
	return s.keep(r, reports), nil
}

// keep begins the life of a slot's Resident.
func (a *allocation) keep(s *session, reports Reports) *Resident {
	return a.engine.resident(s, a.container, ResidentSpec{Limits: a.limits, asSlot: true, Reports: reports})
}

// Close waits until every container that was started is gone. Callers end their execs first.
func (c *Cold) Close() error {
	c.stopOnce.Do(func() { close(c.stop) })
	c.teardown.Wait()
	return nil
}

// Sweep removes the containers with this node's label that this engine does not hold: an earlier
// process of the node left them. Execs may run meanwhile.
func (c *Cold) Sweep(ctx context.Context) (removed int, err error) {
	before := map[any]bool{} // a session may end while docker lists the containers
	c.held.Range(func(name, _ any) bool {
		before[name] = true
		return true
	})
	names, err := c.cfg.Driver.Containers(ctx, LabelNode+"="+c.cfg.Identity.Node)
	if err != nil {
		return 0, err
	}
	errs := []error{c.cfg.Driver.RemoveEnded(ctx, LabelInstallation+"="+c.cfg.Identity.Installation)}
	for _, name := range names {
		if _, held := c.held.Load(name); held || before[name] {
			continue
		}
		if err := c.cfg.Driver.Remove(ctx, name); err != nil {
			errs = append(errs, err)
			continue
		}
		removed++
	}
	if err := errors.Join(errs...); err != nil {
		return removed, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweeps = max(0, c.sweeps-1)
	return removed, nil
}

// sweepsAfterFailure is how often Sweep runs, some seconds apart, at the start and after a failure
// of the engine or a CLI: an engine that restarts may list containers whose removal it had
// confirmed, and it may create one later for a client that was killed, or for a CLI whose core-api
// was killed. That one cannot be started any more when the mounts of that core-api are gone: docker
// leaves it as created.
const sweepsAfterFailure = 3

// NeedsSweep reports whether containers may be left over: before the first Sweeps that succeed, and
// after failures.
func (c *Cold) NeedsSweep() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sweeps > 0
}

func (c *Cold) requestSweeps() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweeps = sweepsAfterFailure
}

// removal is the removal of one container in the background.
type removal struct {
	gone chan struct{} // closed when docker has confirmed it
	err  atomic.Pointer[error]
}

// lastErr is the error of the last attempt.
func (r *removal) lastErr() error {
	if err := r.err.Load(); err != nil {
		return *err
	}
	return nil
}

// removeUntilGone tries to remove a container until docker confirms that it is gone, or the engine
// is closed.
func (c *Cold) removeUntilGone(name string) *removal {
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
			c.requestSweeps()
			if fault.CodeOf(err) != fault.EngineUnavailable && !alreadyRemoving(err) {
				c.cfg.Log.Warn("a container could not be removed; trying again", "container", name, "error", err)
			}
			if c.pause(delay) { // Sweep of the next process removes it
				return
			}
			delay = min(2*delay, maxRemoveDelay)
		}
	})
	return r
}

// alreadyRemoving reports whether the removal has begun already, often by the engine's own --rm.
func alreadyRemoving(err error) bool {
	failed, ok := errors.AsType[*dockercli.Error](err)
	return ok && failed.Kind == dockercli.Removing
}

const maxRemoveDelay = 10 * time.Second

func (c *Cold) removeOnce(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), rmTimeout)
	defer cancel()
	return c.cfg.Driver.Remove(ctx, name)
}

// pause waits for d; it returns true, early, when the engine is closed.
func (c *Cold) pause(d time.Duration) (stopped bool) {
	select {
	case <-c.stop:
		return true
	case <-time.After(d):
		return false
	}
}

// await waits for a removal and reports whether the container is gone within timeout.
func (c *Cold) await(r *removal, timeout time.Duration) bool {
	select {
	case <-r.gone:
		return true
	case <-c.stop:
	case <-time.After(timeout):
	}
	select {
	case <-r.gone:
		return true
	default:
		return false
	}
}
