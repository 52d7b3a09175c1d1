package engine

import (
	"log/slog"
	"strconv"
	"testing"
	"time"

	"secbox/fault"
)

var errTrouble = fault.New(fault.EngineUnavailable, "no engine")

// plan is a pool whose refiller does not run, so that tests can ask for its next step.
type plan struct {
	*Pool
	now time.Time
}

func newPlan(cfg PoolConfig) *plan {
	p := &plan{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	cfg.Now, cfg.Log = func() time.Time { return p.now }, slog.New(slog.DiscardHandler)
	if cfg.Idle == 0 {
		cfg.Idle = time.Hour
	}
	p.Pool = emptyPool(cfg, 2)
	return p
}

func (p *plan) used(project string) { p.use(Spec{ProjectID: project}, nil) }

// does returns the next step: the project to start a container for, and the one whose container
// must go.
func (p *plan) does() (start, instead string, wait time.Duration) {
	owners := map[*pooled]string{}
	for _, s := range p.buckets {
		for _, slot := range s.slots {
			owners[slot] = s.spec.ProjectID
		}
	}
	s, victim, wait := p.next(p.now)
	if s == nil {
		return "", "", wait
	}
	return s.spec.ProjectID, owners[victim], wait
}

// holds puts a container into a project's bucket.
func (p *plan) holds(project string, ready bool) {
	s := p.buckets[keyOf(Spec{ProjectID: project})]
	s.slots = append(s.slots, &pooled{since: p.now, ready: ready})
}

func (p *plan) wants(t *testing.T, start, instead string) {
	t.Helper()
	if s, i, _ := p.does(); s != start || i != instead {
		t.Errorf("starts for %q instead of %q, want %q instead of %q", s, i, start, instead)
	}
}

func TestContainersPerKey(t *testing.T) {
	t.Parallel()
	p := newPlan(PoolConfig{Max: 8, MaxPerKey: 3, MaxMemoryMB: 512})
	p.wants(t, "", "")
	p.used("a")
	p.wants(t, "a", "")
	p.holds("a", true)
	p.wants(t, "", "")
	for range 5 {
		p.used("a")
	}
	p.wants(t, "a", "")
	p.holds("a", true)
	p.holds("a", true)
	p.wants(t, "", "") // MaxPerKey
	p.now = p.now.Add(3 * lowerAfter)
	p.buckets[keyOf(Spec{ProjectID: "a"})].slots = nil
	p.wants(t, "a", "")
	p.holds("a", true)
	p.wants(t, "", "") // old uses do not count
}

func TestMostRecentKeyFirst(t *testing.T) {
	t.Parallel()
	p := newPlan(PoolConfig{Max: 8, MaxPerKey: 4, MaxMemoryMB: 512})
	for _, project := range []string{"a", "b", "c", "b"} {
		p.used(project)
		p.now = p.now.Add(time.Millisecond)
	}
	p.wants(t, "b", "")
}

func TestLeastRecentKeyIsEvicted(t *testing.T) {
	t.Parallel()
	p := newPlan(PoolConfig{Max: 2, MaxPerKey: 4, MaxMemoryMB: 512})
	for _, project := range []string{"a", "b"} {
		p.used(project)
		p.holds(project, true)
		p.now = p.now.Add(time.Second)
	}
	p.used("c")
	p.wants(t, "c", "a")
	p.holds("c", true) // a's is gone
	p.now = p.now.Add(time.Second)
	p.used("a")
	p.wants(t, "a", "b")
	p.holds("a", true)
	p.wants(t, "", "") // b was used before the others, and c's only container must not go for a second one of a
	p.now = p.now.Add(time.Second)
	p.used("c")
	p.buckets[keyOf(Spec{ProjectID: "c"})].slots = nil
	p.holds("a", true)
	p.wants(t, "c", "a")
}

func TestMaxMemory(t *testing.T) {
	t.Parallel()
	p := newPlan(PoolConfig{Max: 32, MaxPerKey: 4, MaxMemoryMB: 3*SlotMemoryMB + 1})
	for i := range 3 {
		project := strconv.Itoa(i)
		p.used(project)
		p.wants(t, project, "")
		p.holds(project, true)
		p.now = p.now.Add(time.Second)
	}
	p.used("more")
	p.wants(t, "more", "0")
}

func TestRefillWaitsForColdStartsAndJobs(t *testing.T) {
	t.Parallel()
	p := newPlan(PoolConfig{Max: 8, MaxPerKey: 4, MaxMemoryMB: 512})
	p.used("a")
	p.addMisses(1)
	p.wants(t, "", "")
	p.addRunning(1) // its job runs now
	p.addMisses(-1)
	start, _, wait := p.does()
	if start != "" || wait <= 0 || wait > refillDelay {
		t.Errorf("starts for %q, looks again after %v", start, wait)
	}
	p.now = p.now.Add(refillDelay)
	p.wants(t, "a", "") // a long job shares the machine
	p.addRunning(-1)
	start, _, wait = p.does()
	if start != "" || wait <= 0 || wait > refillAfterJob {
		t.Errorf("starts for %q, looks again after %v", start, wait)
	}
	p.now = p.now.Add(refillAfterJob)
	p.wants(t, "a", "")
}

func TestRefillersAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlan(PoolConfig{Max: 100, MaxPerKey: 100, MaxMemoryMB: 1 << 20})
	for range 2 * p.refillers(true) {
		p.used("a")
	}
	p.addRunning(1)
	p.now = p.now.Add(refillDelay)
	for range p.refillers(false) {
		p.wants(t, "a", "")
		p.holds("a", false)
	}
	p.wants(t, "", "")
	p.addRunning(-1)
	p.now = p.now.Add(refillAfterJob)
	if start, _, wait := p.does(); start != "" || wait <= 0 || wait > refillDelay {
		t.Errorf("starts for %q, looks again after %v", start, wait)
	}
	p.now = p.now.Add(refillDelay) // quiet: all cores
	for range p.refillers(true) - p.refillers(false) {
		p.wants(t, "a", "")
		p.holds("a", false)
	}
	p.wants(t, "", "")
}

func TestRefillPausesAfterFailure(t *testing.T) {
	t.Parallel()
	p := newPlan(PoolConfig{Max: 8, MaxPerKey: 4, MaxMemoryMB: 512})
	p.used("a")
	p.stats.MemoryLow = true
	p.wants(t, "", "")
	p.stats.MemoryLow = false
	s := p.buckets[keyOf(Spec{ProjectID: "a"})]
	for i := range 20 {
		p.died(s, &pooled{}, errTrouble)
		start, _, wait := p.does()
		if most := min(mostRetry, leastRetry<<i); start != "" || wait <= 0 || wait > min(tick, most) {
			t.Fatalf("failure %d: starts for %q, looks again after %v", i, start, wait)
		}
		if left := p.retryAt.Sub(p.now); left > mostRetry || left < leastRetry {
			t.Fatalf("failure %d: waits for %v", i, left)
		}
	}
	p.now = p.retryAt
	p.wants(t, "a", "")
	p.draining = true
	p.wants(t, "", "")
}

func TestClockJumps(t *testing.T) {
	t.Parallel()
	p := newPlan(PoolConfig{Max: 8, MaxPerKey: 4, MaxMemoryMB: 512, Idle: time.Minute})
	p.used("a")
	p.addRunning(1)
	p.addRunning(-1)
	p.died(p.buckets[keyOf(Spec{ProjectID: "a"})], &pooled{}, errTrouble)
	p.now = p.now.Add(-10 * time.Hour)
	p.wants(t, "a", "")
	p.now = p.now.Add(20 * time.Hour) // everything is old now and ends at the next evict
	p.wants(t, "", "")
	p.evict()
	if len(p.buckets) > 0 {
		t.Error("a bucket that was not used for hours is still there")
	}
	p.used("a")
	p.wants(t, "a", "")
}

func TestForgetEmptyKeys(t *testing.T) {
	t.Parallel()
	p := newPlan(PoolConfig{Max: 4, MaxPerKey: 4, MaxMemoryMB: 512})
	for i := range 5000 {
		p.used(strconv.Itoa(i))
		p.now = p.now.Add(time.Millisecond)
		if len(p.buckets) > 4*p.max+64 {
			t.Fatalf("%d keys after %d projects", len(p.buckets), i+1)
		}
	}
	p.wants(t, "4999", "")
}

func TestSpread(t *testing.T) {
	t.Parallel()
	var r ring
	if s := r.spread(); s != (Spread{}) {
		t.Errorf("of nothing: %+v", s)
	}
	for i := range 1000 {
		r.add(time.Duration(i))
	}
	if s := r.spread(); s.N != 256 || s.P50 != 871 || s.P95 != 987 || s.Max != 999 {
		t.Errorf("of 744…999: %+v", s)
	}
}
