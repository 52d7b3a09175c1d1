package engine

import (
	"slices"

	"secbox/policy"
)

// Tick is how often waiting containers are checked, and how soon a project is tried again whose
// Prepare failed.
const Tick = tick

// Evict checks the waiting containers, as the refiller does every few seconds.
func (p *Pool) Evict() { p.evict() }

// Use notes a use of a key, as by a slot that runs.
func (p *Pool) Use(spec Spec) { p.use(spec, nil) }

// Answered reports whether the init of a waiting container has answered.
func (p *Pool) Answered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.buckets {
		for _, slot := range s.slots {
			slot.mu.Lock()
			answered := slot.answered > 0
			slot.mu.Unlock()
			if answered {
				return true
			}
		}
	}
	return false
}

// Greeted reports whether the container of a warm slot has started.
func Greeted(slot Slot) bool {
	select {
	case <-slot.(*warmSlot).greeted:
		return true
	default:
		return false
	}
}

// RunArgs returns the docker argv of a container with mounts.
func RunArgs(o Options, mounts ...Mount) []string {
	return runArgs(Identity{}, o, Spec{}, "", mounts, nil)
}

// LimitsError waits for the change of the limits of a warm slot's container.
func LimitsError(slot Slot) error {
	container := slot.(*warmSlot)
	_ = container.awaitAssignment()
	return <-container.assignment.limits
}

// Changes reports whether a container of other limits starts differently, whether docker can change
// them while it runs, and whether the pool has it do so.
func Changes(from, to policy.ContainerLimits) (starts, docker, pool bool) {
	args := func(l policy.ContainerLimits) []string {
		return runArgs(Identity{}, Options{}, Spec{Limits: l}, "", nil, nil)
	}
	return !slices.Equal(args(from), args(to)), !slices.Equal(limitArgs(from), limitArgs(to)), changeable(key{limits: from}, key{limits: to})
}

// VolumeArgs returns docker's arguments for the VOLUMEs of an image.
func VolumeArgs(volumes string, mounts ...Mount) []string { return closedVolumes(volumes, mounts, nil) }
