package engine

import (
	"errors"
	"runtime"
	"slices"
	"time"

	"secbox/fault"
)

// How refilling is paced. The numbers are those of a machine that needs 230 ms for a container, most of it CPU time.
const (
	// refillAfterJob is for how long after a job's end nothing is started: the answer takes some 3 ms from there.
	refillAfterJob = 10 * time.Millisecond
	// refillPatience is for how long jobs that run keep a start away. Most jobs are shorter; a longer one shares the machine.
	refillPatience = 100 * time.Millisecond
	// horizon is how far back uses count for how many containers of a key should wait.
	horizon = 30 * time.Second
	// tick is how often what waits is looked over: for its age, its directories and the machine's memory.
	tick = 5 * time.Second

	leastRetry = 250 * time.Millisecond // after a start that failed; doubling
	mostRetry  = 30 * time.Second
)

// refillers is how many containers are started ahead at once: half the cores, so that jobs find one to run on, and all of them once there
// has been no job for a while.
func refillers(quiet bool) int {
	if quiet {
		return max(1, runtime.NumCPU())
	}
	return max(1, runtime.NumCPU()/2)
}

// refill runs until the pool is closed.
func (p *Pool) refill() {
	look := time.NewTicker(tick)
	defer look.Stop()
	for {
		again := time.NewTimer(p.start())
		select {
		case <-p.ctx.Done():
			again.Stop()
			return
		case <-p.wake:
		case <-again.C:
		case <-look.C:
			p.tend()
		}
		again.Stop()
	}
}

// start starts ahead what may be started now, and returns after how long it is worth another look.
func (p *Pool) start() time.Duration {
	for {
		p.mu.Lock()
		s, victim, wait := p.next(p.cfg.Now())
		if s == nil {
			p.mu.Unlock()
			return wait
		}
		if victim != nil {
			p.counters.Dropped.LRU++
		}
		spec, slot := s.spec, &pooled{since: p.cfg.Now()}
		s.coming++
		p.mu.Unlock()

		if victim != nil {
			victim.giveUp()
		}
		container, err := p.cold.StartAhead(p.ctx, spec, aheadEvents{
			ready: func() { p.ready(slot) },
			died:  func(err error) { p.died(s, slot, err) },
		})
		p.mu.Lock()
		s.coming--
		wanted := err == nil && !slot.dead && p.shelves[keyOf(spec)] == s
		if wanted {
			slot.ahead = container
			s.slots = append(s.slots, slot)
		}
		p.mu.Unlock()
		switch {
		case err != nil && p.ctx.Err() != nil:
			return tick
		case err != nil:
			p.died(s, slot, err)
		case !wanted:
			container.giveUp()
		}
	}
}

// next says for which shelf a container should be started, which one must go for it, and if there is none to start, for how long that
// holds if nothing happens. p.mu is held.
func (p *Pool) next(now time.Time) (*shelf, *pooled, time.Duration) {
	waiting, starting := p.tally()
	jobless := refillPatience - now.Sub(p.turned) // until it has been quiet for long enough
	quiet := p.running == 0 && !within(jobless, refillPatience)
	switch {
	case p.draining, p.pressed, p.misses > 0:
		return nil, nil, tick
	case starting >= refillers(quiet):
		if p.running == 0 && !quiet {
			return nil, nil, jobless
		}
		return nil, nil, tick
	case within(p.retryAt.Sub(now), mostRetry):
		return nil, nil, min(tick, p.retryAt.Sub(now))
	}
	calm := refillAfterJob
	if p.running > 0 {
		calm = refillPatience
	}
	order := p.byUse()
	for _, s := range order {
		if len(s.slots)+s.coming >= p.wanted(s, now) || within(s.pause.Sub(now), tick) {
			continue
		}
		if left := calm - now.Sub(p.turned); within(left, calm) {
			return nil, nil, left
		}
		if waiting < p.most {
			return s, nil, 0
		}
		if victim := leastRecent(order, s); victim != nil {
			return s, victim, 0
		}
	}
	return nil, nil, tick
}

// within reports whether a pause that cannot be longer than most is not over: when more of it is left, the clock was put back.
func within(left, most time.Duration) bool { return left > 0 && left <= most }

// wanted is how many containers should wait for a key: as many as it took lately, and one as long as it is remembered.
func (p *Pool) wanted(s *shelf, now time.Time) int {
	if now.Sub(s.lastUse()) > p.cfg.Idle {
		return 0
	}
	n := 0
	for _, use := range s.uses {
		if now.Sub(use) <= horizon {
			n++
		}
	}
	return min(max(n, 1), p.cfg.MaxPerKey)
}

// leastRecent takes a container off the shelf that was used least recently of those that were used before s; order is that of byUse.
// A first container may be had from any of them, a second one only from where there are several. With s nil it takes any.
func leastRecent(order []*shelf, s *shelf) *pooled {
	keep := 0
	if s != nil && len(s.slots)+s.coming > 0 {
		keep = 1
	}
	for _, other := range slices.Backward(order) {
		if s != nil && (other == s || !other.lastUse().Before(s.lastUse())) {
			return nil
		}
		if len(other.slots) > keep {
			slot := other.slots[0]
			other.slots = slices.Delete(other.slots, 0, 1)
			return slot
		}
	}
	return nil
}

// tally counts the containers of all shelves, and those of them that are not ready; p.mu is held.
func (p *Pool) tally() (waiting, starting int) {
	for _, s := range p.shelves {
		waiting += len(s.slots) + s.coming
		starting += s.coming
		for _, slot := range s.slots {
			if !slot.ready {
				starting++
			}
		}
	}
	return waiting, starting
}

// ready notes that a container can be given a job at once.
func (p *Pool) ready(slot *pooled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := p.cfg.Now().Sub(slot.since)
	slot.ready = true
	p.failures = 0
	p.counters.Refills++
	p.counters.refills.add(took)
	if p.cfg.Refilled != nil {
		p.cfg.Refilled(took)
	}
	p.rouse()
}

// died notes that a container will serve no job: it could not be started, or it ended while it waited.
func (p *Pool) died(s *shelf, slot *pooled, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slot.dead = true
	s.slots = slices.DeleteFunc(s.slots, func(other *pooled) bool { return other == slot })
	defer p.rouse()
	if slot.ready {
		p.counters.Dropped.Dead++
		p.cfg.Log.Warn("a container that waited for a job has died; another one takes its place", "project", s.spec.ProjectID, "error", err)
		return
	}
	p.counters.Failures++
	var own *unprepared
	if code := fault.CodeOf(err); errors.As(err, &own) || code != fault.EngineUnavailable && code != fault.Internal {
		// The project or the image is gone: whoever asks for it next will be told, and until then there is nothing to wait for. What
		// still waits is looked over before the next try.
		s.pause = p.cfg.Now().Add(tick)
		if p.shelves[keyOf(s.spec)] == s && len(s.slots) == 0 {
			delete(p.shelves, keyOf(s.spec))
		}
		return
	}
	// The engine is in trouble. All keys wait, lest each of them is tried in turn.
	p.failures++
	delay := min(leastRetry<<min(p.failures-1, 10), mostRetry)
	p.retryAt = p.cfg.Now().Add(delay)
	if p.failures == 1 {
		p.cfg.Log.Warn("no container could be started ahead; trying again", "project", s.spec.ProjectID, "error", err)
	}
}

// tend gives up what has waited too long, what waits on directories that are gone, and some of what waits when memory is short.
func (p *Pool) tend() {
	pressed := p.cfg.Pressed != nil && p.cfg.Pressed()
	now := p.cfg.Now()

	p.mu.Lock()
	p.pressed = pressed
	expired := p.dropWhere(func(s *shelf, _ *pooled) bool { return p.wanted(s, now) == 0 })
	p.counters.Dropped.Idle += int64(len(expired))
	for k, s := range p.shelves {
		if p.wanted(s, now) == 0 && s.coming == 0 {
			delete(p.shelves, k)
		}
	}
	var kept []*pooled
	for _, s := range p.shelves {
		kept = append(kept, s.slots...)
	}
	p.mu.Unlock()
	giveUp(expired)

	stale := map[*pooled]bool{}
	for _, slot := range kept {
		stale[slot] = !slot.place.intact()
	}
	p.mu.Lock()
	gone := p.dropWhere(func(_ *shelf, slot *pooled) bool { return stale[slot] })
	p.counters.Dropped.Stale += int64(len(gone))
	if pressed {
		waiting, _ := p.tally()
		for range (waiting + givenBack - 1) / givenBack {
			if slot := leastRecent(p.byUse(), nil); slot != nil {
				p.counters.Dropped.Pressed++
				gone = append(gone, slot)
			}
		}
	}
	p.mu.Unlock()
	giveUp(gone)
}

// givenBack is which part of what waits is given back at each look while memory is short: a quarter.
const givenBack = 4
