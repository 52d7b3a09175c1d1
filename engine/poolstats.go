package engine

import (
	"cmp"
	"slices"
	"time"

	"secbox/policy"
)

// PoolStats describes a pool: its settings, its containers, and counters since its start.
type PoolStats struct {
	Max         int // 0: the pool is off
	MaxPerKey   int
	MaxMemoryMB int64
	Idle        time.Duration

	Waiting   int // containers that are ready for a job
	Starting  int // containers that are not ready yet
	MemoryLow bool

	Shared    bool   // containers wait for any project
	NotShared string // why each waits for its own project, with the remedy; empty when Shared
	Ready     int    // how many containers of the default spec wait, however long, when Shared

	Hits, Misses      int64 // execs with and without a container that was started ahead
	Unattached        int64 // execs that started a container of their own because the project's directories could not be attached
	Refills, Failures int64 // containers that became ready, and that could not be started
	Dropped           Dropped
	Age, Refill       Spread // ages of containers when they were taken; times from docker's call to readiness
	Keys              []PoolKey
}

// NotKnownYet begins NotShared until a container has shown whether directories can be attached.
const NotKnownYet = "not known yet: "

// PoolOff is NotShared when no container waits.
const PoolOff = "the pool is off: pool.max is 0"

// Dropped counts the containers that ended without a job, by reason.
type Dropped struct {
	LRU       int64 // a more recently used key needed the space
	Idle      int64 // their key was not used
	Stale     int64 // their project's directories or their image had been replaced
	Dead      int64 // they ended while they waited
	MemoryLow int64 // the machine was short of memory
	Drained   int64 // the node shut down
}

// DroppedFor is the counter of one reason.
type DroppedFor struct {
	Reason string
	N      int64
}

// Reasons lists all counters, always in the same order.
func (d Dropped) Reasons() []DroppedFor {
	return []DroppedFor{
		{"lru", d.LRU}, {"idle", d.Idle}, {"stale", d.Stale}, {"dead", d.Dead}, {"pressed", d.MemoryLow}, {"drained", d.Drained},
	}
}

// PoolKey describes the containers of one key.
type PoolKey struct {
	ProjectID, ImageRef, ImageID, Runtime, Access string
	Limits                                        policy.ContainerLimits
	Waiting, Starting, Wanted                     int
	LastUse                                       time.Time
	Oldest                                        time.Duration // since the first of them was started; 0 when none waits
}

// Spread summarizes the last 256 durations.
type Spread struct {
	N             int
	P50, P95, Max time.Duration
}

// ring keeps the last 256 durations.
type ring struct {
	last [256]time.Duration
	n    int
}

func (r *ring) add(d time.Duration) {
	r.last[r.n%len(r.last)] = d
	r.n++
}

func (r *ring) spread() Spread {
	sorted := slices.Sorted(slices.Values(r.last[:min(r.n, len(r.last))]))
	if len(sorted) == 0 {
		return Spread{}
	}
	at := func(percent int) time.Duration { return sorted[(len(sorted)*percent+99)/100-1] }
	return Spread{N: len(sorted), P50: at(50), P95: at(95), Max: sorted[len(sorted)-1]}
}

// Decided is closed when it is certain whether containers wait for any project, which Stats
// reports.
func (p *Pool) Decided() <-chan struct{} { return p.decided }

// Stats describes the pool now, the keys most used lately first.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Now()
	stats := p.stats
	stats.Shared = p.sharing.trial == passed
	stats.Age, stats.Refill = p.ages.spread(), p.refills.spread()
	all, starting := p.count()
	stats.Waiting, stats.Starting = all-starting, starting
	for _, s := range p.byDemand() {
		k := PoolKey{
			ProjectID: s.spec.ProjectID, ImageRef: s.spec.ImageRef, ImageID: s.spec.ImageID, Runtime: s.spec.Runtime,
			Access: cmp.Or(s.spec.Access, s.key.targets),
			Limits: s.spec.Limits, Starting: s.coming, Wanted: p.wanted(s, now), LastUse: s.demand.last,
		}
		for _, slot := range s.slots {
			if slot.ready {
				k.Waiting++
			} else {
				k.Starting++
			}
			k.Oldest = max(k.Oldest, now.Sub(slot.since))
		}
		stats.Keys = append(stats.Keys, k)
	}
	return stats
}
