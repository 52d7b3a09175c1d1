package engine

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"secbox/policy"
)

// SlotMemoryMB is what a waiting container is counted as, in MiB: the docker CLI that holds its lease, its containerd-shim, sandbox-init,
// and what the kernel keeps for a container. `bin/bench --only memory` measures the processes: 9 of 32 that share pages, and a
// single one has those for itself. See docs/performance.md.
const SlotMemoryMB = 16

// PoolConfig is how many containers may wait, and for how long.
type PoolConfig struct {
	Max         int           // at most so many altogether; 0: none, and every slot is cold
	MaxPerKey   int           // at most so many of one key
	MaxMemoryMB int64         // that all of them may take, each counted as SlotMemoryMB
	Idle        time.Duration // without a job of its key, a container goes after this
	// Pressed reports whether the machine is short of memory: then nothing is started ahead, and what waits is given back one by one.
	// Nil: never.
	Pressed func() bool
	Now     func() time.Time
	Log     *slog.Logger

	Taken    func(age time.Duration)  // a container was given a job after this; may be nil
	Refilled func(took time.Duration) // a container was started ahead and is ready; may be nil
}

// Pool is a Cold engine that keeps containers waiting for jobs like those it has seen. See the package's comment for how it is sized.
type Pool struct {
	cold *Cold
	cfg  PoolConfig
	most int // containers, by number and memory

	mu       sync.Mutex
	shelves  map[key]*shelf
	misses   int       // cold starts under way: the engine's time is theirs
	running  int       // jobs that run
	turned   time.Time // when running became 0 or ceased to be
	pressed  bool      // at the last look
	draining bool
	failures int       // refills that failed in a row
	retryAt  time.Time // not before that, after a failure
	counters counters

	wake    chan struct{}   // capacity 1
	ctx     context.Context // ends with the pool
	stop    context.CancelFunc
	stopped sync.WaitGroup
}

// key is all that two specs must share for one to be served by a container made for the other.
type key struct {
	project, imageID, initVolume, user, runtime, access string
	limits                                              policy.ContainerLimits
}

func keyOf(s Spec) key {
	return key{
		project: s.ProjectID, imageID: s.ImageID, initVolume: s.InitVolume, user: s.User, runtime: s.Runtime, access: s.Access, limits: s.Limits,
	}
}

// shelf is where the containers of one key wait.
type shelf struct {
	spec   Spec // without an exec id
	slots  []*pooled
	coming int         // that docker is being called for
	uses   []time.Time // the last MaxPerKey
	pause  time.Time   // not before that, after a failure of the project's own
}

func (s *shelf) lastUse() time.Time { return s.uses[len(s.uses)-1] }

// pooled is a container on a shelf.
type pooled struct {
	*ahead
	since time.Time // docker was called
	ready bool
	dead  bool
}

// NewPool puts a pool around a cold engine, which it closes with itself.
func NewPool(cold *Cold, cfg PoolConfig) *Pool {
	p := &Pool{
		cold: cold, cfg: cfg, most: min(cfg.Max, int(cfg.MaxMemoryMB/SlotMemoryMB)), shelves: map[key]*shelf{},
		wake: make(chan struct{}, 1),
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	if p.most > 0 {
		p.stopped.Go(p.refill)
	}
	return p
}

// Acquire takes a waiting container of the spec's key, or one that is about to wait; else, and when the exec id was promised already, it
// is the cold engine's slot. Either way it sees to it that the next one finds a container.
func (p *Pool) Acquire(ctx context.Context, spec Spec) (Slot, error) {
	if p.most <= 0 {
		return p.cold.Acquire(ctx, spec)
	}
	for spec.ExecID == "" {
		slot := p.take(keyOf(spec))
		if slot == nil {
			break
		}
		if !slot.place.intact() {
			slot.Discard()
			p.count(func(c *counters) { c.Dropped.Stale++ })
			continue
		}
		slot.ask()
		p.use(spec, slot)
		return &warmSlot{ahead: slot.ahead, pool: p}, nil
	}
	p.missed(1)
	slot, err := p.cold.Acquire(ctx, spec)
	if err != nil {
		p.missed(-1)
		return nil, err
	}
	p.use(spec, nil)
	return &missSlot{Slot: slot, pool: p}, nil
}

// take removes the best container of a key from its shelf and makes it the caller's: one that is ready, else the one that will be soonest.
func (p *Pool) take(k key) *pooled {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shelves[k]
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

// use notes that a key was asked for, and whether a container waited for it.
func (p *Pool) use(spec Spec, slot *pooled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Now()
	if slot != nil {
		p.counters.Hits++
		p.counters.ages.add(now.Sub(slot.since))
		if p.cfg.Taken != nil {
			p.cfg.Taken(now.Sub(slot.since))
		}
	} else {
		p.counters.Misses++
	}
	if p.draining {
		return
	}
	k := keyOf(spec)
	s := p.shelves[k]
	if s == nil {
		if len(p.shelves) >= 4*p.most+64 {
			p.forgetEmpty()
		}
		s = &shelf{spec: spec}
		s.spec.ExecID = ""
		p.shelves[k] = s
	}
	s.spec.Prepare = spec.Prepare
	if len(s.uses) >= p.cfg.MaxPerKey {
		s.uses = slices.Delete(s.uses, 0, 1)
	}
	s.uses = append(s.uses, now)
	s.pause = time.Time{} // it has just been prepared
	p.rouse()
}

// forgetEmpty forgets the keys that wait for a container and are the least likely to get one; p.mu is held.
func (p *Pool) forgetEmpty() {
	recent := p.byUse()
	for _, s := range recent[min(p.most, len(recent)):] {
		if len(s.slots) == 0 {
			delete(p.shelves, keyOf(s.spec))
		}
	}
}

// byUse lists the shelves, the one used last first; p.mu is held.
func (p *Pool) byUse() []*shelf {
	return slices.SortedFunc(maps.Values(p.shelves), func(a, b *shelf) int { return b.lastUse().Compare(a.lastUse()) })
}

// rouse makes the refiller look again; p.mu may be held.
func (p *Pool) rouse() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *Pool) count(f func(*counters)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.counters)
}

// missed counts the cold starts under way up or down.
func (p *Pool) missed(by int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.misses += by
	p.rouse()
}

// runs counts the jobs that run up or down.
func (p *Pool) runs(by int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == 0 || p.running+by == 0 {
		p.turned = p.cfg.Now()
	}
	p.running += by
	p.rouse()
}

// Drain gives up what waits and starts nothing ahead any more; slots that are asked for are cold from now on. Safe to call twice.
func (p *Pool) Drain() {
	p.mu.Lock()
	p.draining = true
	given := p.dropWhere(func(*shelf, *pooled) bool { return true })
	p.counters.Dropped.Drained += int64(len(given))
	clear(p.shelves)
	p.mu.Unlock()
	giveUp(given)
}

// DropImage gives up the containers of an image that its name does not stand for any more.
func (p *Pool) DropImage(imageID string) {
	p.mu.Lock()
	given := p.dropWhere(func(s *shelf, _ *pooled) bool { return s.spec.ImageID == imageID })
	p.counters.Dropped.Stale += int64(len(given))
	for k := range p.shelves {
		if k.imageID == imageID {
			delete(p.shelves, k)
		}
	}
	p.mu.Unlock()
	giveUp(given)
}

// Close drains the pool, ends what was started, and waits for it.
func (p *Pool) Close() error {
	p.Drain()
	p.stop()
	p.stopped.Wait()
	return p.cold.Close()
}

// dropWhere takes the containers off their shelves that f names; p.mu is held.
func (p *Pool) dropWhere(f func(*shelf, *pooled) bool) (dropped []*pooled) {
	for _, s := range p.shelves {
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

// warmSlot tells the pool when its job is over.
type warmSlot struct {
	*ahead
	pool *Pool
}

func (s *warmSlot) Run(ctx context.Context, job Job, stdout, stderr io.Writer) (Exit, error) {
	s.pool.runs(1)
	defer s.pool.runs(-1)
	return s.ahead.Run(ctx, job, stdout, stderr)
}

// missSlot is a cold one, which the refiller lets go first.
type missSlot struct {
	Slot
	pool    *Pool
	once    sync.Once
	running bool // only touched by OnStart and after Run, which come one after the other
}

func (s *missSlot) started() { s.once.Do(func() { s.pool.missed(-1) }) }

func (s *missSlot) Run(ctx context.Context, job Job, stdout, stderr io.Writer) (Exit, error) {
	onStart := job.OnStart
	job.OnStart = func() {
		s.running = true
		s.pool.runs(1)
		s.started()
		if onStart != nil {
			onStart()
		}
	}
	exit, err := s.Slot.Run(ctx, job, stdout, stderr)
	s.started()
	if s.running {
		s.pool.runs(-1)
	}
	return exit, err
}

func (s *missSlot) Discard() {
	s.Slot.Discard()
	s.started()
}
