package engine

import (
	"errors"
	"slices"
	"time"

	"secbox/engine/attach"
	"secbox/fault"
)

// The pace of refills. The numbers are for a machine that needs 230 ms for a container, most of it
// CPU time.
const (
	// refillAfterJob is how long after a job's end no refill starts: the answer takes some 3 ms
	// from there.
	refillAfterJob = 10 * time.Millisecond
	// refillDelay is how long running jobs delay a refill. Most jobs are shorter; longer jobs share
	// the machine with refills.
	refillDelay = 100 * time.Millisecond
	// tick is how often waiting containers are checked: their age, their directories and the
	// machine's memory.
	tick = 5 * time.Second

	leastRetry = 250 * time.Millisecond // after a start that failed; doubling
	mostRetry  = 30 * time.Second
)

// refillers is how many containers are started ahead at once: one for every second core, so that
// jobs have the others, and one for every core when there was no job for a while.
func (p *Pool) refillers(quiet bool) int {
	if quiet {
		return max(1, p.cores)
	}
	return max(1, p.cores/2)
}

// refill runs until the pool is closed.
func (p *Pool) refill() {
	look := time.Tick(tick)
	for {
		again := time.After(min(p.stepSharing(), p.start()))
		select {
		case <-p.ctx.Done():
			return
		case <-p.wakeup:
		case <-again:
		case <-look:
			p.evict()
		}
	}
}

// start starts the containers that may be started now, and returns when to try again.
func (p *Pool) start() time.Duration {
	for {
		p.mu.Lock()
		s, victim, wait := p.next(p.cfg.Now())
		if s == nil {
			p.mu.Unlock()
			return wait
		}
		if victim != nil {
			p.stats.Dropped.LRU++
		}
		spec, slot := s.spec, &pooled{from: s, since: p.cfg.Now()}
		var base *attach.Base
		if s.any {
			base = p.cfg.Base
		}
		s.coming++
		p.mu.Unlock()

		if victim != nil {
			victim.drop()
		}
		container, err := p.cold.StartStandby(p.ctx, spec, base, standbyEvents{
			ready: func() { p.ready(slot) },
			died:  func(err error) { p.died(s, slot, err) },
		})
		p.mu.Lock()
		s.coming--
		wanted := err == nil && !slot.dead && p.buckets[s.key] == s
		if wanted {
			slot.standby = container
			s.slots = append(s.slots, slot)
		}
		p.mu.Unlock()
		switch {
		case err != nil && p.ctx.Err() != nil:
			return tick
		case err != nil:
			p.died(s, slot, err)
		case !wanted:
			container.drop()
		}
	}
}

// next returns the bucket that a container should be started for, and the container that must be
// dropped for it. When there is none to start, it returns how long that holds unless something
// happens. p.mu is held.
func (p *Pool) next(now time.Time) (*bucket, *pooled, time.Duration) {
	waiting, starting := p.count()
	jobless := refillDelay - now.Sub(p.changed) // the rest of the time without jobs that makes it quiet
	quiet := p.running == 0 && !within(jobless, refillDelay)
	switch {
	case p.draining, p.stats.MemoryLow, p.misses > 0:
		return nil, nil, tick
	case starting >= p.refillers(quiet):
		if p.running == 0 && !quiet {
			return nil, nil, jobless
		}
		return nil, nil, tick
	case within(p.retryAt.Sub(now), mostRetry):
		return nil, nil, min(tick, p.retryAt.Sub(now))
	}
	calm := refillAfterJob
	if p.running > 0 {
		calm = refillDelay
	}
	order := p.lacking(now)
	for _, s := range order {
		if left := calm - now.Sub(p.changed); within(left, calm) {
			return nil, nil, left
		}
		if waiting < p.max {
			return s, nil, 0
		}
		if victim := p.victim(s, now); victim != nil {
			return s, victim, 0
		}
	}
	return nil, nil, tick
}

// within reports whether a pause of at most most is not over. When more is left, the clock was set
// back.
func within(left, most time.Duration) bool { return left > 0 && left <= most }

// count counts the containers of all buckets, and how many of them are not ready; p.mu is held.
func (p *Pool) count() (waiting, starting int) {
	for _, s := range p.buckets {
		waiting += s.has()
		starting += s.coming
		for _, slot := range s.slots {
			if !slot.ready {
				starting++
			}
		}
	}
	return waiting, starting
}

// ready notes that a container is ready for a job.
func (p *Pool) ready(slot *pooled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := p.cfg.Now().Sub(slot.since)
	slot.ready = true
	p.failures = 0
	p.stats.Refills++
	p.refills.add(took)
	p.pace.note(took)
	if p.cfg.Refilled != nil {
		p.cfg.Refilled(took)
	}
	p.wake()
}

// died notes that a container could not be started or ended while it waited.
func (p *Pool) died(s *bucket, slot *pooled, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slot.dead = true
	s.slots = slices.DeleteFunc(s.slots, func(other *pooled) bool { return other == slot })
	defer p.wake()
	if slot.ready {
		p.stats.Dropped.Dead++
		p.cfg.Log.Warn("a container that waited for a job has died; another one takes its place", s.describe(err)...)
		return
	}
	p.stats.Failures++
	if fault.Is(err, fault.EngineUnavailable) && p.cfg.Base != nil {
		p.stopSharing(due, NotKnownYet+"the engine was away, and may be another one now")
	}
	var own *prepareError
	if code := fault.CodeOf(err); errors.As(err, &own) || code != fault.EngineUnavailable && code != fault.Internal {
		// The project or the image is gone: the next request reports it. Before the next try,
		// waiting containers are checked.
		s.pause = p.cfg.Now().Add(tick)
		if p.buckets[s.key] == s && len(s.slots) == 0 && s.ready == 0 {
			delete(p.buckets, s.key)
		}
		return
	}
	// The engine has failed: all keys pause, so that they are not tried in turn.
	p.failures++
	delay := min(leastRetry<<min(p.failures-1, 10), mostRetry)
	p.retryAt = p.cfg.Now().Add(delay)
	if p.failures == 1 {
		p.cfg.Log.Warn("no container could be started ahead; trying again", s.describe(err)...)
	}
}

// describe returns what the log says of a container and its error.
func (s *bucket) describe(err error) []any {
	about := []any{"image", s.spec.ImageRef, "error", err}
	if !s.any {
		about = append(about, "project", s.spec.ProjectID)
	}
	return about
}

// evict drops containers that were not used for too long, containers whose directories are gone,
// and some of the others while memory is low.
func (p *Pool) evict() {
	memoryLow := p.cfg.MemoryLow != nil && p.cfg.MemoryLow()
	now := p.cfg.Now()

	p.mu.Lock()
	p.stats.MemoryLow = memoryLow
	expired := p.surplus(now)
	p.stats.Dropped.Idle += int64(len(expired))
	for k, s := range p.buckets {
		if p.wanted(s, now) == 0 && s.coming == 0 {
			delete(p.buckets, k)
		}
	}
	var kept []*pooled
	for _, s := range p.buckets {
		if !s.any {
			kept = append(kept, s.slots...)
		}
	}
	p.mu.Unlock()
	dropAll(expired)

	stale := map[*pooled]bool{}
	for _, slot := range kept {
		stale[slot] = !slot.mounts.intact()
	}
	p.mu.Lock()
	gone := p.dropWhere(func(_ *bucket, slot *pooled) bool { return stale[slot] })
	p.stats.Dropped.Stale += int64(len(gone))
	if memoryLow {
		pressed := p.leastUsed()
		p.stats.Dropped.MemoryLow += int64(len(pressed))
		gone = append(gone, pressed...)
	}
	p.mu.Unlock()
	dropAll(gone)
}
