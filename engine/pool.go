package engine

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"secbox/engine/attach"
	"secbox/policy"
)

// SlotMemoryMB is the memory that is counted for a waiting container, in MiB: of the docker CLI
// that holds its lease, its containerd-shim, sandbox-init, and the kernel. Of 32 containers, whose
// processes share pages, each had 9 MiB on Linux with runc; a single one has those pages for
// itself.
const SlotMemoryMB = 16

// PoolConfig configures a Pool: how many containers may wait, and for how long.
type PoolConfig struct {
	Max         int           // containers; 0: every slot is cold
	MaxPerKey   int           // containers of one key that wait for one project
	MaxMemoryMB int64         // of all containers, each counted as SlotMemoryMB
	Idle        time.Duration // a container ends when there was no job of its key for so long
	// MemoryLow reports whether the machine is short of memory: then no container is started ahead,
	// and waiting ones are removed step by step. Nil: never.
	MemoryLow func() bool
	Now       func() time.Time
	Log       *slog.Logger

	// Base, if not nil, makes containers wait for any project, whose directories are attached when
	// one is taken. It is used once a container has shown that it sees attached directories. The
	// pool closes it.
	Base *attach.Base
	// NotShared is why Base is nil, for Stats.
	NotShared string
	// Default returns the default spec, without a project: for that trial, and for the Ready
	// containers that wait before the first request. Needed with Base.
	Default func(context.Context) (Spec, error)
	// Ready is how many of them wait, however long. 0: no container is started before the first
	// request.
	Ready int

	Taken    func(age time.Duration)  // is called when a waiting container is taken; may be nil
	Refilled func(took time.Duration) // is called when a container that was started ahead is ready; may be nil
}

// Pool is an Engine around a Cold. It keeps containers waiting for jobs that resemble recent jobs.
// The package comment explains its size.
type Pool struct {
	cold  *Cold
	cfg   PoolConfig
	max   int // containers, by number and by memory
	cores int

	mu       sync.Mutex
	buckets  map[key]*bucket
	demand   demand    // for all keys together
	pace     pace      // while there are jobs
	misses   int       // cold starts in progress, which have priority
	running  int       // jobs that run
	changed  time.Time // when running changed from or to 0
	draining bool
	failures int       // refills that failed in a row
	retryAt  time.Time // of the next refill, after a failure
	sharing  sharing
	stats    PoolStats // the settings, the counters, and MemoryLow as of the last evict
	ages     ring      // of containers when they were taken
	refills  ring      // from docker's call to readiness

	decided chan struct{} // closed by decide
	decide  func()

	wakeup  chan struct{}   // capacity 1
	ctx     context.Context // ends with the pool
	stop    context.CancelFunc
	stopped sync.WaitGroup
}

// key is the part of a Spec that determines a container: specs with the same key can use each
// other's containers. A container for any project has the targets of its points instead of a
// project and its access.
type key struct {
	project, imageID, initVolume, user, runtime, access, targets string
	limits                                                       policy.ContainerLimits
}

func keyOf(s Spec) key {
	s.Limits.ShmMB = shmMB(s.Limits)
	return key{
		project: s.ProjectID, imageID: s.ImageID, initVolume: s.InitVolume, user: s.User, runtime: s.Runtime, access: s.Access,
		limits: s.Limits,
	}
}

// anyKeyOf is the key of a container for any project.
func anyKeyOf(s Spec) key {
	k := keyOf(s)
	k.project, k.access, k.targets = "", "", strings.Join(s.Targets, ",")
	return k
}

// bucket is the waiting containers of one key. It takes less than 1 KiB without them, and there are
// at most mostBuckets.
type bucket struct {
	key    key
	any    bool // its containers wait for any project
	spec   Spec // without an exec id
	ready  int  // how many wait at least, however long
	slots  []*pooled
	coming int // containers that docker is being called for
	lent   int // containers that were taken, and may be given back
	demand demand
	recent []time.Time // the last MaxPerKey uses, if its containers wait for one project
	pause  time.Time   // no refill before that, after a failure of the project
}

// has is how many containers wait, or will.
func (s *bucket) has() int { return len(s.slots) + s.coming + s.lent }

// pooled is a container in a bucket.
type pooled struct {
	*standby
	from  *bucket
	since time.Time // docker was called
	ready bool
	dead  bool
}

// NewPool makes a pool around a cold engine, which the pool closes.
func NewPool(cold *Cold, cfg PoolConfig) *Pool {
	p := emptyPool(cfg, runtime.NumCPU())
	p.cold = cold
	if p.sharing.copies = cold.cfg.Copy != nil && p.max > 0; p.sharing.copies {
		p.stopSharing(passed, "")
		p.decide()
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	if p.max > 0 {
		p.stopped.Go(p.refill)
	}
	return p
}

// emptyPool makes a pool that starts no container.
func emptyPool(cfg PoolConfig, cores int) *Pool {
	most := min(cfg.Max, int(cfg.MaxMemoryMB/SlotMemoryMB))
	p := &Pool{
		cfg: cfg, max: most, cores: cores, buckets: map[key]*bucket{}, wakeup: make(chan struct{}, 1), decided: make(chan struct{}),
		stats: PoolStats{Max: most, MaxPerKey: cfg.MaxPerKey, MaxMemoryMB: cfg.MaxMemoryMB, Idle: cfg.Idle},
	}
	p.pace = pace{start: firstStart, atOnce: p.refillers(false)}
	p.decide = sync.OnceFunc(func() { close(p.decided) })
	p.sharing.unset = cfg.Ready > 0
	switch {
	case p.max <= 0:
		p.stopSharing(failed, PoolOff)
	case cfg.Base == nil:
		p.stopSharing(failed, cfg.NotShared)
	case cfg.Ready == 0:
		p.stopSharing(due,
			NotKnownYet+"pool.ready is 0, so the first exec starts the container that shows whether directories can be attached; "+
				"run an exec, or set pool.ready to 1 or more")
	default:
		p.stopSharing(due, NotKnownYet+"a container, which is started now, will show whether directories can be attached")
	}
	return p
}

// Acquire implements Engine. It takes a container of the spec's key that waits or is being started.
// Without one it returns a slot of the cold engine. In both cases Run counts as a use of the key,
// for which a container is started for the next exec.
func (p *Pool) Acquire(ctx context.Context, spec Spec) (Slot, error) {
	if p.max <= 0 {
		return p.cold.Acquire(ctx, spec)
	}
	var slot *pooled
	if p.shares(spec) {
		slot = p.takeAny(ctx, spec)
	} else if spec.ExecID == "" { // a container for one project has its exec's artifacts directory
		slot = p.takeOwn(spec)
	}
	if slot == nil {
		return p.miss(ctx, spec)
	}
	return &warmSlot{pooled: slot, pool: p, spec: spec}, nil
}

// miss returns a cold slot.
func (p *Pool) miss(ctx context.Context, spec Spec) (Slot, error) {
	p.addMisses(1)
	allocation, err := p.cold.allocate(ctx, spec)
	if err != nil {
		p.addMisses(-1)
		return nil, err
	}
	return &missSlot{coldSlot: &coldSlot{allocation}, pool: p, spec: spec}, nil
}

// takeOwn returns a container that waited for the spec's project; nil when there is none.
func (p *Pool) takeOwn(spec Spec) *pooled {
	if spec.Serve && !p.changesLimits() {
		return nil
	}
	for {
		slot := p.take(keyOf(spec))
		if slot == nil {
			return nil
		}
		if slot.mounts.intact() {
			slot.requestAnswer()
			if spec.Serve {
				slot.enlarge(spec, p.limitChange(spec.Limits, spec.Limits, true), p.limitsRefused)
			}
			return slot
		}
		slot.Discard()
		p.mu.Lock()
		slot.from.lent--
		p.stats.Dropped.Stale++
		p.mu.Unlock()
	}
}

// take removes a container of a key from its bucket, for the caller: a ready container, or else the
// first that was started. It counts as lent until use or putBack.
func (p *Pool) take(k key) *pooled {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.buckets[k].take()
}

func (s *bucket) take() *pooled {
	for s != nil && len(s.slots) > 0 {
		i := max(0, slices.IndexFunc(s.slots, func(c *pooled) bool { return c.ready }))
		slot := s.slots[i]
		s.slots = slices.Delete(s.slots, i, i+1)
		if slot.take() {
			s.lent++
			return slot
		}
	}
	return nil
}

// use notes that an exec runs; slot is nil when no container waited. Slots that are discarded are
// no uses: requests that are refused must not make more containers wait.
func (p *Pool) use(spec Spec, slot *pooled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Now()
	if slot != nil {
		slot.from.lent--
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
	if !s.any {
		s.spec.Prepare = spec.Prepare
		if len(s.recent) >= p.cfg.MaxPerKey {
			s.recent = slices.Delete(s.recent, 0, 1)
		}
		s.recent = append(s.recent, now)
	}
	s.pause = time.Time{} // Prepare has just succeeded
	p.demand.add(1, now)
	s.demand.add(1, now)
	s.demand.raise(p.enough(s, now), now)
	p.wake()
}

// bucket returns the bucket of a spec, which it makes if it is missing; p.mu is held.
func (p *Pool) bucket(spec Spec) *bucket {
	k, shared := keyOf(spec), p.sharing.with(spec)
	if shared {
		k = anyKeyOf(spec)
		spec.ProjectID, spec.Access, spec.Prepare = "", "", nil
	}
	s := p.buckets[k]
	if s == nil {
		if len(p.buckets) >= mostBuckets(p.max) {
			p.forgetEmpty()
		}
		spec.ExecID, spec.Serve = "", false
		s = &bucket{key: k, any: shared, spec: spec}
		p.buckets[k] = s
	}
	return s
}

// mostBuckets bounds the keys that are remembered; most is the number of containers.
func mostBuckets(most int) int { return 4*most + 64 }

// forgetEmpty removes the empty buckets that are least likely to get a container; p.mu is held.
func (p *Pool) forgetEmpty() {
	order := p.byDemand()
	for _, s := range order[min(p.max, len(order)):] {
		if len(s.slots) == 0 && s.ready == 0 {
			delete(p.buckets, s.key)
		}
	}
}

// byDemand lists the buckets, the one with the most recent uses first; p.mu is held.
func (p *Pool) byDemand() []*bucket {
	return slices.SortedFunc(maps.Values(p.buckets), func(a, b *bucket) int { return b.demand.compare(&a.demand) })
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

func (p *Pool) addUnattached() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Unattached++
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

// Drain drops the waiting containers and starts no more ahead: all slots are cold from now on. Safe
// to call twice.
func (p *Pool) Drain() {
	p.mu.Lock()
	p.draining = true
	given := p.dropWhere(func(*bucket, *pooled) bool { return true })
	p.stats.Dropped.Drained += int64(len(given))
	clear(p.buckets)
	p.mu.Unlock()
	dropAll(given)
}

// DropImage drops the containers of an image, because its name refers to another image now. The
// Ready containers of the default spec are started again with the new image.
func (p *Pool) DropImage(imageID string) {
	p.mu.Lock()
	given := p.dropWhere(func(s *bucket, _ *pooled) bool { return s.spec.ImageID == imageID })
	p.stats.Dropped.Stale += int64(len(given))
	for k := range p.buckets {
		if k.imageID == imageID {
			delete(p.buckets, k)
		}
	}
	p.sharing.unset = p.cfg.Ready > 0
	p.wake()
	p.mu.Unlock()
	dropAll(given)
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

// dropWhere removes the containers for which f is true from their buckets, and returns them; p.mu
// is held.
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

func dropAll(slots []*pooled) {
	for _, slot := range slots {
		slot.drop()
	}
}
