package engine

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"secbox/engine/attach"
	"secbox/policy"
)

// SlotMemoryMB is the memory that is counted for a waiting container, in MiB: of the docker CLI that holds its lease, its containerd-shim,
// sandbox-init, and the kernel. `bin/bench --only memory` measures the processes: 9 of 32 that share pages, and a
// single one has those for itself. See docs/performance.md.
const SlotMemoryMB = 16

// PoolConfig configures a Pool: how many containers may wait, and for how long.
type PoolConfig struct {
	Max         int           // containers; 0: every slot is cold
	MaxPerKey   int           // containers of one key
	MaxMemoryMB int64         // of all containers, each counted as SlotMemoryMB
	Idle        time.Duration // a container ends when there was no job of its key for so long
	// MemoryLow reports whether the machine is short of memory: then no container is started ahead, and waiting ones are removed step by
	// step. Nil: never.
	MemoryLow func() bool
	Now       func() time.Time
	Log       *slog.Logger

	// Base, if not nil, makes containers wait for any project, whose directories are attached when one is taken. It is used once a container
	// has shown that it sees attached directories. The pool closes it.
	Base *attach.Base
	// NotShared is why Base is nil, for Stats.
	NotShared string
	// Default returns the spec of the usual containers, without a project: for that trial, and for the Ready ones that wait before the first
	// request. Needed with Base.
	Default func(context.Context) (Spec, error)
	Ready   int

	Taken    func(age time.Duration)  // is called when a waiting container is taken; may be nil
	Refilled func(took time.Duration) // is called when a container that was started ahead is ready; may be nil
}

// Pool is an Engine around a Cold one that keeps containers waiting for jobs like recent ones. The package comment explains its size.
type Pool struct {
	cold *Cold
	cfg  PoolConfig
	max  int // containers, by number and by memory

	mu       sync.Mutex
	buckets  map[key]*bucket
	misses   int       // cold starts in progress, which have priority
	running  int       // jobs that run
	changed  time.Time // when running changed from or to 0
	draining bool
	failures int           // refills that failed in a row
	retryAt  time.Time     // of the next refill, after a failure
	any      bool          // containers wait for any project
	stats    PoolStats     // the settings, the counters, NotShared, and MemoryLow as of the last evict
	decided  chan struct{} // closed when it is certain whether containers wait for any project
	ages     ring          // of containers when they were taken
	refills  ring          // from docker's call to readiness

	wakeup  chan struct{}   // capacity 1
	ctx     context.Context // ends with the pool
	stop    context.CancelFunc
	stopped sync.WaitGroup
}

// key is the part of a Spec that determines a container: specs with the same key can use each other's containers. A container for any project
// has the targets of its points instead of a project and its access.
type key struct {
	project, imageID, initVolume, user, runtime, access, targets string
	limits                                                       policy.ContainerLimits
}

func keyOf(s Spec) key {
	return key{
		project: s.ProjectID, imageID: s.ImageID, initVolume: s.InitVolume, user: s.User, runtime: s.Runtime, access: s.Access, limits: s.Limits,
	}
}

// anyKeyOf is the key of a container for any project.
func anyKeyOf(s Spec) key {
	k := keyOf(s)
	k.project, k.access, k.targets = "", "", strings.Join(s.Targets, ",")
	return k
}

// bucket is the waiting containers of one key.
type bucket struct {
	key    key
	any    bool // its containers wait for any project
	spec   Spec // without an exec id
	ready  int  // how many wait at least, however long
	slots  []*pooled
	coming int         // containers that docker is being called for
	uses   []time.Time // the last MaxPerKey
	pause  time.Time   // no refill before that, after a failure of the project
}

// lastUse is the zero time when there was none.
func (s *bucket) lastUse() (t time.Time) {
	if len(s.uses) > 0 {
		t = s.uses[len(s.uses)-1]
	}
	return t
}

// pooled is a container in a bucket.
type pooled struct {
	*standby
	since time.Time // docker was called
	ready bool
	dead  bool
}

// NewPool makes a pool around a cold engine, which the pool closes.
func NewPool(cold *Cold, cfg PoolConfig) *Pool {
	most := min(cfg.Max, int(cfg.MaxMemoryMB/SlotMemoryMB))
	p := &Pool{
		cold: cold, cfg: cfg, max: most, buckets: map[key]*bucket{}, wakeup: make(chan struct{}, 1),
		stats:   PoolStats{Max: most, MaxPerKey: cfg.MaxPerKey, MaxMemoryMB: cfg.MaxMemoryMB, Idle: cfg.Idle, NotShared: cfg.NotShared},
		decided: make(chan struct{}),
	}
	switch {
	case p.max <= 0:
		p.stats.NotShared = PoolOff
		close(p.decided)
	case cfg.Base == nil:
		close(p.decided)
	default:
		p.stats.NotShared = "not known yet: a container is being started that shows whether directories can be attached"
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	if p.max > 0 {
		p.stopped.Go(p.refill)
	}
	return p
}

// Acquire implements Engine. It takes a container of the spec's key that waits or is being started. Without one, or with a preset exec id,
// it returns a slot of the cold engine. In both cases a container is started for the next exec.
func (p *Pool) Acquire(ctx context.Context, spec Spec) (Slot, error) {
	if p.max <= 0 {
		return p.cold.Acquire(ctx, spec)
	}
	if p.forAny() {
		slot, err := p.takeAny(ctx, spec)
		if slot != nil || err != nil {
			return slot, err
		}
		return p.miss(ctx, spec)
	}
	for spec.ExecID == "" {
		slot := p.take(keyOf(spec))
		if slot == nil {
			break
		}
		if !slot.mounts.intact() {
			slot.Discard()
			p.mu.Lock()
			p.stats.Dropped.Stale++
			p.mu.Unlock()
			continue
		}
		slot.ask()
		p.use(spec, slot)
		return &warmSlot{standby: slot.standby, pool: p}, nil
	}
	return p.miss(ctx, spec)
}

// miss returns a cold slot.
func (p *Pool) miss(ctx context.Context, spec Spec) (Slot, error) {
	p.addMisses(1)
	slot, err := p.cold.Acquire(ctx, spec)
	if err != nil {
		p.addMisses(-1)
		return nil, err
	}
	p.use(spec, nil)
	return &missSlot{Slot: slot, pool: p}, nil
}

// takeAny returns a container that waited for any project; nil when there is none, or the directories cannot be attached.
func (p *Pool) takeAny(ctx context.Context, spec Spec) (Slot, error) {
	k := anyKeyOf(spec)
	slot := p.take(k)
	if slot == nil {
		return nil, nil
	}
	err := p.adopt(ctx, slot, spec)
	if err == nil {
		p.use(spec, slot)
		return &warmSlot{standby: slot.standby, pool: p}, nil
	}
	p.putBack(k, slot)
	if _, own := errors.AsType[*prepareError](err); own {
		return nil, errors.Unwrap(err)
	}
	p.mu.Lock()
	p.stats.Unattached++
	p.mu.Unlock()
	p.cfg.Log.Warn("the project's directories cannot be attached to a container; the exec starts its own", "project", spec.ProjectID, "error", err)
	return nil, nil
}

// adopt prepares the directories of an exec and attaches them to a container, whose id becomes the exec's if it has none: its name has the id.
func (p *Pool) adopt(ctx context.Context, slot *pooled, spec Spec) error {
	spec.ExecID = cmp.Or(spec.ExecID, slot.execID)
	exec, err := p.cold.allocate(ctx, spec)
	if err != nil {
		return &prepareError{err}
	}
	if err := slot.adopt(exec); err != nil {
		exec.mounts.drop()
		return err
	}
	slot.ask()
	return nil
}

// putBack returns a container that was taken and not used.
func (p *Pool) putBack(k key, slot *pooled) {
	p.mu.Lock()
	s := p.buckets[k]
	kept := s != nil && !p.draining && slot.giveBack()
	if kept {
		s.slots = append(s.slots, slot)
	}
	p.mu.Unlock()
	if !kept {
		slot.Discard()
	}
}

func (p *Pool) forAny() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.any
}

// take removes a container of a key from its bucket, for the caller: one that is ready, or the first that was started.
func (p *Pool) take(k key) *pooled {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.buckets[k]
	for s != nil && len(s.slots) > 0 {
		i := max(0, slices.IndexFunc(s.slots, func(c *pooled) bool { return c.ready }))
		slot := s.slots[i]
		s.slots = slices.Delete(s.slots, i, i+1)
		if slot.take() {
			return slot
		}
	}
	return nil
}

// use notes a use of a key; slot is nil when no container waited.
func (p *Pool) use(spec Spec, slot *pooled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Now()
	if slot != nil {
		p.stats.Hits++
		p.ages.add(now.Sub(slot.since))
		if p.cfg.Taken != nil {
			p.cfg.Taken(now.Sub(slot.since))
		}
	} else {
		p.stats.Misses++
	}
	if p.draining {
		return
	}
	s := p.bucket(spec)
	most := p.cfg.MaxPerKey
	if s.any {
		most = maxUses
	} else {
		s.spec.Prepare = spec.Prepare
	}
	if len(s.uses) >= most {
		s.uses = slices.Delete(s.uses, 0, 1)
	}
	s.uses = append(s.uses, now)
	s.pause = time.Time{} // Prepare has just succeeded
	p.wake()
}

// bucket returns the bucket of a spec, which it makes if it is missing; p.mu is held.
func (p *Pool) bucket(spec Spec) *bucket {
	k := keyOf(spec)
	if p.any {
		k = anyKeyOf(spec)
		spec.ProjectID, spec.Access, spec.Prepare = "", "", nil
	}
	s := p.buckets[k]
	if s == nil {
		if len(p.buckets) >= 4*p.max+64 {
			p.forgetEmpty()
		}
		spec.ExecID = ""
		s = &bucket{key: k, any: p.any, spec: spec}
		p.buckets[k] = s
	}
	return s
}

// forgetEmpty removes the empty buckets that are least likely to get a container; p.mu is held.
func (p *Pool) forgetEmpty() {
	recent := p.byUse()
	for _, s := range recent[min(p.max, len(recent)):] {
		if len(s.slots) == 0 && s.ready == 0 {
			delete(p.buckets, s.key)
		}
	}
}

// byUse lists the buckets, the most recently used one first; p.mu is held.
func (p *Pool) byUse() []*bucket {
	return slices.SortedFunc(maps.Values(p.buckets), func(a, b *bucket) int { return b.lastUse().Compare(a.lastUse()) })
}

// wake wakes the refiller; p.mu may be held.
func (p *Pool) wake() {
	select {
	case p.wakeup <- struct{}{}:
	default:
	}
}

// addMisses changes the number of cold starts in progress.
func (p *Pool) addMisses(by int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.misses += by
	p.wake()
}

// addRunning changes the number of running jobs.
func (p *Pool) addRunning(by int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == 0 || p.running+by == 0 {
		p.changed = p.cfg.Now()
	}
	p.running += by
	p.wake()
}

// Drain drops the waiting containers and starts no more ahead: all slots are cold from now on. Safe to call twice.
func (p *Pool) Drain() {
	p.mu.Lock()
	p.draining = true
	given := p.dropWhere(func(*bucket, *pooled) bool { return true })
	p.stats.Dropped.Drained += int64(len(given))
	clear(p.buckets)
	p.mu.Unlock()
	giveUp(given)
}

// DropImage drops the containers of an image, because its name stands for another one now.
func (p *Pool) DropImage(imageID string) {
	p.mu.Lock()
	given := p.dropWhere(func(s *bucket, _ *pooled) bool { return s.spec.ImageID == imageID })
	p.stats.Dropped.Stale += int64(len(given))
	for k := range p.buckets {
		if k.imageID == imageID {
			delete(p.buckets, k)
		}
	}
	p.mu.Unlock()
	giveUp(given)
}

// Close drains the pool and waits until all containers are gone.
func (p *Pool) Close() error {
	p.Drain()
	p.stop()
	p.stopped.Wait()
	err := p.cold.Close()
	if p.cfg.Base != nil {
		err = errors.Join(err, p.cfg.Base.Close())
	}
	return err
}

// dropWhere removes the containers for which f is true from their buckets, and returns them; p.mu is held.
func (p *Pool) dropWhere(f func(*bucket, *pooled) bool) (dropped []*pooled) {
	for _, s := range p.buckets {
		s.slots = slices.DeleteFunc(s.slots, func(slot *pooled) bool {
			drop := f(s, slot)
			if drop {
				dropped = append(dropped, slot)
			}
			return drop
		})
	}
	return dropped
}

func giveUp(slots []*pooled) {
	for _, slot := range slots {
		slot.giveUp()
	}
}

// warmSlot is a slot with a container that waited.
type warmSlot struct {
	*standby
	pool *Pool
}

func (s *warmSlot) Run(ctx context.Context, job Job, stdout, stderr io.Writer) (Exit, error) {
	s.pool.addRunning(1)
	defer s.pool.addRunning(-1)
	return s.standby.Run(ctx, job, stdout, stderr)
}

// missSlot is a cold slot, whose start has priority over refills.
type missSlot struct {
	Slot
	pool    *Pool
	once    sync.Once
	running bool // set by OnStart, read after Run
}

func (s *missSlot) started() { s.once.Do(func() { s.pool.addMisses(-1) }) }

func (s *missSlot) Run(ctx context.Context, job Job, stdout, stderr io.Writer) (Exit, error) {
	onStart := job.OnStart
	job.OnStart = func() {
		s.running = true
		s.pool.addRunning(1)
		s.started()
		if onStart != nil {
			onStart()
		}
	}
	exit, err := s.Slot.Run(ctx, job, stdout, stderr)
	s.started()
	if s.running {
		s.pool.addRunning(-1)
	}
	return exit, err
}

func (s *missSlot) Discard() {
	s.Slot.Discard()
	s.started()
}
