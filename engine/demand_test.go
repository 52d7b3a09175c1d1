package engine

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"secbox/policy"
)

// simulation runs a pool in virtual time: containers are durations, and jobs come and end by a
// schedule.
type simulation struct {
	*plan
	random    *rand.Rand
	events    events
	n         int
	woken     time.Time // the next look of the refiller, if it is later than now
	arrivals  map[key]int
	misses    map[key]int // found no container that was ready
	mostSlots int         // that waited at once
	starts    int
}

// newSimulation is of a machine that starts one container at a time.
func newSimulation(cfg PoolConfig) *simulation {
	s := &simulation{plan: newPlan(cfg), random: rand.New(rand.NewPCG(1, 2)), arrivals: map[key]int{}, misses: map[key]int{}}
	s.cores, s.pace.atOnce = 1, 1
	s.sharing.trial = passed
	s.after(tick, s.tick)
	return s
}

type event struct {
	at time.Time
	n  int
	do func()
}

// events are a heap by time and order of creation.
type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].n < e[j].n
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (s *simulation) after(d time.Duration, do func()) {
	s.n++
	heap.Push(&s.events, event{s.now.Add(d), s.n, do})
}

// run lets time pass.
func (s *simulation) run(d time.Duration) {
	end := s.now.Add(d)
	for len(s.events) > 0 && !s.events[0].at.After(end) {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.do()
		s.refill()
	}
	s.now = end
}

// refill starts what the pool wants to start.
func (s *simulation) refill() {
	for {
		b, victim, wait := s.next(s.now)
		if b == nil {
			if at := s.now.Add(wait); !s.woken.After(s.now) || at.Before(s.woken) {
				s.woken = at
				s.after(wait, func() {})
			}
			return
		}
		_ = victim // next has removed it
		slot := &pooled{standby: &standby{}, from: b, since: s.now}
		b.slots = append(b.slots, slot)
		s.starts++
		waiting, _ := s.count()
		s.mostSlots = max(s.mostSlots, waiting)
		s.after(s.startTime(), func() { s.ready(slot) })
	}
}

func (s *simulation) startTime() time.Duration {
	return 250*time.Millisecond + time.Duration(s.random.Int64N(int64(200*time.Millisecond)))
}

func (s *simulation) tick() {
	s.surplus(s.now)
	s.after(tick, s.tick)
}

// request takes a container for a job of a few milliseconds.
func (s *simulation) request(spec Spec) {
	k := anyKeyOf(spec)
	s.arrivals[k]++
	const job = 5 * time.Millisecond
	slot := s.take(k)
	if slot == nil {
		slot = s.takeSimilar(k)
	}
	s.use(spec, slot)
	switch {
	case slot == nil:
		s.misses[k]++
		s.addMisses(1)
		s.after(s.startTime(), func() {
			s.addRunning(1)
			s.addMisses(-1)
			s.after(job, func() { s.addRunning(-1) })
		})
		return
	case !slot.ready:
		s.misses[k]++
	}
	s.addRunning(1)
	s.after(job, func() { s.addRunning(-1) })
}

// arrive makes n random requests of a spec at a rate per second.
func (s *simulation) arrive(n int, rate float64, spec func() Spec) {
	var next func()
	next = func() {
		if n--; n < 0 {
			return
		}
		s.request(spec())
		s.after(time.Duration(s.random.ExpFloat64()/rate*float64(time.Second)), next)
	}
	s.after(time.Duration(s.random.ExpFloat64()/rate*float64(time.Second)), next)
}

// missed is the share of requests that found no container.
func (s *simulation) missed(spec Spec) float64 {
	k := anyKeyOf(spec)
	return float64(s.misses[k]) / float64(s.arrivals[k])
}

func (s *simulation) forget() { clear(s.arrivals); clear(s.misses) }

func (s *simulation) waiting(spec Spec) int {
	if b := s.buckets[anyKeyOf(spec)]; b != nil {
		return len(b.slots)
	}
	return 0
}

// usually makes spec the default spec, with at least ready waiting containers.
func (s *simulation) usually(spec Spec, ready int) {
	b := s.bucket(spec)
	b.ready = ready
	s.run(time.Minute)
}

func defaults(ready int) PoolConfig {
	return PoolConfig{Max: 32, MaxPerKey: 4, MaxMemoryMB: 512, Idle: 10 * time.Minute, Ready: ready}
}

func usual() Spec { return Spec{ImageID: "usual", Limits: policy.ContainerLimits{MemoryMB: 512}} }

func other() Spec {
	return Spec{ImageID: "other", Limits: policy.ContainerLimits{MemoryMB: 512}}
}

// TestRandomArrivals: fewer than one in a hundred finds no container, at rates up to 70 % of what
// the machine can start.
func TestRandomArrivals(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0.1, 0.5, 1, 2} {
		s := newSimulation(defaults(4))
		s.usually(usual(), 4)
		s.arrive(int(60*rate), rate, usual)
		s.run(time.Minute) // it learns the rate
		s.forget()
		s.arrive(3000, rate, usual)
		s.run(time.Duration(3000/rate*1.1) * time.Second)
		t.Logf("%.1f per second: %.2f%% of %d missed, %d waited at most, %d now", rate, 100*s.missed(usual()), s.arrivals[anyKeyOf(usual())], s.mostSlots,
			s.waiting(usual()))
		if s.missed(usual()) > maxMisses {
			t.Errorf("%.1f per second: %.2f%% missed", rate, 100*s.missed(usual()))
		}
	}
}

func TestBurst(t *testing.T) {
	t.Parallel()
	s := newSimulation(defaults(16))
	s.usually(usual(), 16)
	for range 20 {
		for range 16 {
			s.request(usual())
		}
		s.run(time.Minute)
	}
	if s.missed(usual()) > 0 {
		t.Errorf("%.1f%% missed", 100*s.missed(usual()))
	}
}

func TestTwoKeysCompete(t *testing.T) {
	t.Parallel()
	s := newSimulation(defaults(4))
	s.usually(usual(), 4)
	for _, n := range []int{60, 8000} {
		s.forget()
		s.arrive(n, 1, usual)
		s.arrive(n, 1, other)
		s.run(time.Duration(n) * 1100 * time.Millisecond)
	}
	t.Logf("%.2f%% and %.2f%% missed, %d waited", 100*s.missed(usual()), 100*s.missed(other()), s.mostSlots)
	if s.missed(usual()) > maxMisses || s.missed(other()) > maxMisses {
		t.Errorf("%.2f%% and %.2f%% missed", 100*s.missed(usual()), 100*s.missed(other()))
	}
}

// TestRateFalls: containers are given back slowly, to the ready ones of the usual key and to none
// of another.
func TestRateFalls(t *testing.T) {
	t.Parallel()
	s := newSimulation(defaults(2))
	s.usually(usual(), 2)
	s.arrive(600, 1, usual)
	s.arrive(600, 1, other)
	s.run(10 * time.Minute)
	before := s.waiting(usual())
	if before <= 3 || s.waiting(other()) <= 3 {
		t.Fatalf("%d and %d wait", before, s.waiting(other()))
	}
	s.run(20 * time.Second)
	if now := s.waiting(usual()); now < before-1 {
		t.Errorf("%d of %d are left after a pause of 20 seconds", now, before)
	}
	s.run(9 * time.Minute)
	if s.waiting(usual()) != 2 || s.waiting(other()) != 1 {
		t.Errorf("%d and %d wait before they are idle", s.waiting(usual()), s.waiting(other()))
	}
	s.run(2 * time.Minute)
	if s.waiting(usual()) != 2 || s.waiting(other()) != 0 {
		t.Errorf("%d and %d wait after an idle time", s.waiting(usual()), s.waiting(other()))
	}
}

// TestOverload: more arrivals than the engine can serve do not make it start ever more containers
// for later.
func TestOverload(t *testing.T) {
	t.Parallel()
	s := newSimulation(defaults(4))
	s.usually(usual(), 4)
	s.arrive(5_000, 50, usual)
	s.run(3 * time.Minute)
	if s.mostSlots > 20 {
		t.Errorf("%d waited", s.mostSlots)
	}
}

// TestManyLimits: a client that asks for ever new limits takes at most half of the containers that
// the usual key wants, and adds no misses.
func TestManyLimits(t *testing.T) {
	t.Parallel()
	s := newSimulation(defaults(4))
	s.usually(usual(), 4)
	n := 0
	hostile := func() Spec {
		n++
		spec := other()
		spec.Limits.MemoryMB = int64(64 + n%960)
		return spec
	}
	s.arrive(120, 1, usual)
	s.arrive(200, 2, hostile)
	s.run(2 * time.Minute)
	s.forget()
	least := s.max
	s.arrive(90, 1, usual)
	s.arrive(100, 1, hostile)
	for range 60 {
		s.run(time.Second)
		least = min(least, s.waiting(usual()))
		if waiting, _ := s.count(); waiting > s.max || len(s.buckets) > mostBuckets(s.max) {
			t.Fatalf("%d containers, %d keys", waiting, len(s.buckets))
		}
	}
	t.Logf("%.2f%% missed, at least %d waited", 100*s.missed(usual()), least)
	if s.missed(usual()) > maxMisses {
		t.Errorf("%.2f%% missed", 100*s.missed(usual()))
	}
}

// TestKeysTakeTurns: more keys than containers do not make the pool start and drop them without
// end.
func TestKeysTakeTurns(t *testing.T) {
	t.Parallel()
	for _, ready := range []int{0, 1, 4, 8} {
		cfg := defaults(ready)
		cfg.Max = 8
		s := newSimulation(cfg)
		s.usually(usual(), ready)
		const rounds, keys = 50, 8
		for range rounds {
			for i := range keys {
				spec := other()
				spec.Limits.TmpMB = int64(i)
				s.request(spec)
				s.run(time.Second)
			}
			s.request(usual())
			if waiting, _ := s.count(); waiting > s.max || s.waiting(usual()) < min(ready, (s.max+1)/2)-1 {
				t.Fatalf("%d ready: %d wait, %d of them usual", ready, waiting, s.waiting(usual()))
			}
		}
		if most := rounds*(keys+1)*2 + 8; s.starts > most {
			t.Errorf("%d ready: %d containers were started for %d requests", ready, s.starts, rounds*(keys+1))
		}
		before := s.starts
		s.run(5 * time.Minute)
		if s.starts > before+8 {
			t.Errorf("%d ready: %d containers were started in vain", ready, s.starts-before)
		}
	}
}

// TestOneRequest: a single request is no rate.
func TestOneRequest(t *testing.T) {
	t.Parallel()
	s := newSimulation(defaults(0))
	s.request(usual())
	s.run(time.Minute)
	if n := s.waiting(usual()); n != 1 {
		t.Errorf("%d wait", n)
	}
}

func TestEnough(t *testing.T) {
	t.Parallel()
	last := 0
	for rate := 0.0; rate < 100; rate += 0.05 {
		n := pace{300 * time.Millisecond, 1}.enough(rate, 0)
		if n < last || n > 20 {
			t.Fatalf("%d at %.2f per second, %d before", n, rate, last)
		}
		last = n
	}
	for _, cores := range []int{1, 2, 8, 64} {
		p := pace{300 * time.Millisecond, cores}
		if n := p.enough(1000, 1000); n > 3*cores+20 {
			t.Errorf("%d for %d at once", n, cores)
		}
	}
	var text string
	for _, rate := range []float64{0.1, 0.5, 1, 2, 3} {
		text += fmt.Sprintf(" %.1f/s %d", rate, pace{350 * time.Millisecond, 1}.enough(rate, 0))
	}
	t.Log(text)
}
