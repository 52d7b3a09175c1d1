package engine

import (
	"slices"
	"time"
)

// wanted is how many containers should wait for a key: enough for the rate of its uses lately, and
// at least one until it is idle.
func (p *Pool) wanted(s *bucket, now time.Time) int {
	if now.Sub(s.demand.last) > p.cfg.Idle {
		return s.ready
	}
	return min(max(p.enough(s, now), s.demand.held(now), s.ready, 1), p.most(s))
}

// horizon is how far back uses count for the containers of one project.
const horizon = 30 * time.Second

// enough is how many containers the present demand needs. A project has few requests, which come in
// small bursts: its containers are as many as it took lately. Those for any project are used by
// all, at random.
func (p *Pool) enough(s *bucket, now time.Time) int {
	if !s.any {
		n := 0
		for _, use := range s.recent {
			if now.Sub(use) <= horizon {
				n++
			}
		}
		return min(n, p.most(s))
	}
	// One use is no rate; this is asked at the time of a use, which counts as one more than those
	// at any time.
	uses := s.demand.at(now)
	return min(p.pace.enough(perSecond(uses-1), perSecond(p.demand.at(now)-uses)), p.most(s))
}

func (p *Pool) most(s *bucket) int {
	if s.any {
		return p.max
	}
	return p.cfg.MaxPerKey
}

// lacking lists the buckets with too few containers: first the default bucket if it has a claim,
// then by recent uses. p.mu is held.
func (p *Pool) lacking(now time.Time) []*bucket {
	var order []*bucket
	for _, s := range p.buckets {
		if s.has() < p.wanted(s, now) && !within(s.pause.Sub(now), tick) {
			order = append(order, s)
		}
	}
	slices.SortFunc(order, func(a, b *bucket) int {
		if p.claims(a, now) != p.claims(b, now) {
			if p.claims(a, now) {
				return -1
			}
			return 1
		}
		return b.demand.compare(&a.demand)
	})
	return order
}

// claims reports whether the default bucket needs containers before any other bucket: Ready
// containers, or half of what it wants if that is more, but no more than kept returns, or buckets
// would take containers from each other in turn. p.mu is held.
func (p *Pool) claims(s *bucket, now time.Time) bool {
	return s.ready > 0 && s.has() < min(max(s.ready, (p.wanted(s, now)+1)/2), p.kept(s, now, true))
}

// kept is how many containers of the default bucket are not dropped for a container of another key:
// half of all, so that a client that asks for ever new limits does not end the others' waiting
// containers. For another key's second or later container, it is at least Ready. p.mu is held.
func (p *Pool) kept(s *bucket, now time.Time, forFirst bool) int {
	if s.ready == 0 {
		return 0
	}
	least := (p.max + 1) / 2
	if !forFirst {
		least = max(least, s.ready)
	}
	return min(p.wanted(s, now), least)
}

// victim removes a container that must end so that s can get one: from a bucket that has too many,
// or from the bucket with the least recent uses. It does not remove a bucket's only container if s
// has one already. p.mu is held.
func (p *Pool) victim(s *bucket, now time.Time) *pooled {
	first, claims := s.has() == 0, p.claims(s, now)
	for _, other := range slices.Backward(p.byDemand()) {
		keep := 1
		switch wanted := p.wanted(other, now); {
		case other == s:
			continue
		case len(other.slots) > wanted:
			keep = wanted
		case other.ready > 0:
			keep = p.kept(other, now, first)
		case claims:
			keep = 0
		case other.demand.compare(&s.demand) >= 0:
			continue
		case first:
			keep = 0
		}
		if len(other.slots) > keep {
			return other.removeOldest()
		}
	}
	return nil
}

// removeOldest removes the oldest container.
func (s *bucket) removeOldest() *pooled {
	slot := s.slots[0]
	s.slots = slices.Delete(s.slots, 0, 1)
	return slot
}

// surplus removes the containers that are no longer wanted; p.mu is held.
func (p *Pool) surplus(now time.Time) (dropped []*pooled) {
	for _, s := range p.buckets {
		for wanted := p.wanted(s, now); len(s.slots) > 0 && s.has() > wanted; {
			dropped = append(dropped, s.removeOldest())
		}
	}
	return dropped
}

// evictShare is the share of containers, a quarter, that each evict gives up while memory is low.
const evictShare = 4

// leastUsed removes a share of all containers, beginning with the buckets that have the least
// recent uses; p.mu is held.
func (p *Pool) leastUsed() (dropped []*pooled) {
	waiting, _ := p.count()
	most := (waiting + evictShare - 1) / evictShare
	for _, s := range slices.Backward(p.byDemand()) {
		for len(s.slots) > 0 && len(dropped) < most {
			dropped = append(dropped, s.removeOldest())
		}
	}
	return dropped
}
