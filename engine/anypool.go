package engine

import (
	"context"
	"time"

	"secbox/policy"
)

// sharing is what a pool knows about containers for any project.
type sharing struct {
	copies  bool // directories are copied, which needs no trial
	trial   trial
	runtime string // the OCI runtime of the trial that passed: others may show containers other mounts
	tries   int    // trials that failed in a row for a reason that may pass
	asked   bool   // there was a request

	defaults *bucket // of the default spec, with the Ready containers; nil before the spec is known
	unset    bool    // defaults is missing or of an image that was replaced

	againAt time.Time // no trial, and no setDefaults, before
	limitAt time.Time // no limits are changed before, after a failure
}

// trial is whether a container has shown that it sees attached directories.
type trial int

const (
	due trial = iota
	passed
	failed
)

// with reports whether a container for any project may serve the spec.
func (s *sharing) with(spec Spec) bool {
	return s.trial == passed && (s.copies || spec.Runtime == s.runtime)
}

// stopSharing notes that containers wait for their own project, and why; p.mu is held.
func (p *Pool) stopSharing(t trial, because string) {
	p.sharing.trial, p.stats.NotShared = t, because
	if t == failed {
		p.decide()
	}
}

// shares reports whether a container for any project may serve a request's spec.
func (p *Pool) shares(spec Spec) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.sharing.asked {
		p.sharing.asked = true
		p.wake()
	}
	return p.sharing.with(spec)
}

// takeAny returns a container that waited for any project and gets the spec's directories now; nil
// when there is none.
func (p *Pool) takeAny(ctx context.Context, spec Spec) *pooled {
	k := anyKeyOf(spec)
	if spec.Serve && !p.changesLimits() {
		return nil
	}
	slot := p.take(k)
	if slot == nil {
		slot = p.takeSimilar(k)
	}
	if slot == nil {
		return nil
	}
	slot.requestAnswer() // the answer comes meanwhile
	slot.assign(ctx, spec, p.limitChange(slot.from.key.limits, k.limits, spec.Serve), p.limitsRefused)
	return slot
}

// limitChange is how the limits of a container become the limits of a spec. One that is to serve
// gets more pids than an exec: 30 ms later, if it is known that the engine does that, and its init
// has enough until then.
func (p *Pool) limitChange(from, to policy.ContainerLimits, serve bool) limitChange {
	switch {
	case from == to && !serve:
		return keepLimits
	case from == to && p.cold.changes.Load() && to.PIDs >= servePIDs:
		return changeLater
	}
	return changeFirst
}

// servePIDs are the pids of an init that serves, with its first workers and a few commands.
const servePIDs = 128

// takeSimilar takes a ready container whose limits can be changed to the limits of k. It takes from
// the bucket with the most containers to spare, which keeps more than half of what it wants.
func (p *Pool) takeSimilar(k key) *pooled {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Now()
	if p.limitsFixed(now) {
		return nil
	}
	var from *bucket
	best := 0
	for _, s := range p.buckets {
		if spare := s.readyOnes() - 1 - p.wanted(s, now)/2; s.any && spare > best && changeable(s.key, k) {
			from, best = s, spare
		}
	}
	return from.take()
}

// changeable reports whether keys differ in nothing but limits that can be changed while a
// container runs.
func changeable(from, to key) bool {
	from.limits, to.limits = fixed(from.limits), fixed(to.limits)
	return from == to
}

func (s *bucket) readyOnes() (n int) {
	for _, slot := range s.slots {
		if slot.ready {
			n++
		}
	}
	return n
}

// limitsFixed reports whether the engine has refused to change limits lately; p.mu is held.
func (p *Pool) limitsFixed(now time.Time) bool { return within(p.sharing.limitAt.Sub(now), limitRetry) }

func (p *Pool) changesLimits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.limitsFixed(p.cfg.Now())
}

// limitRetry is how long no limits are changed after the engine refused it.
const limitRetry = time.Minute

// limitsRefused notes that the engine did not change the limits of a container.
func (p *Pool) limitsRefused(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sharing.limitAt = p.cfg.Now().Add(limitRetry)
	p.cfg.Log.Warn("the limits of a waiting container cannot be changed; the exec starts its own", "error", err)
}

// putBack returns a container that was taken and that no job was sent to. It ends if it cannot
// serve another exec.
func (p *Pool) putBack(slot *pooled) {
	clean := slot.unassign()
	p.mu.Lock()
	s := slot.from
	s.lent--
	kept := clean && p.buckets[s.key] == s && !p.draining && slot.giveBack()
	if kept {
		s.slots = append(s.slots, slot)
	}
	p.wake()
	p.mu.Unlock()
	if !kept {
		slot.Discard()
	}
}
