package health

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"secbox/engine"
)

// attachedProbes proves on two containers that waited for any project that each sees what was
// attached to it and nothing else. The reason why containers do not wait for any project comes
// instead of probes.
func (d *Doctor) attachedProbes(ctx context.Context, image engine.Image, s environment) (probes []Probe, because string) {
	e, because := d.cfg.Share(ctx, d.spec(image, smallLimits()))
	if e == nil {
		return nil, because
	}
	inputs, alone := attachedMounts(s), neighbours(s)
	defer func() {
		if err := e.Close(); err != nil {
			probes = append(probes, Probe{
				Name: "clean_up", Expected: "nothing stays mounted", Seen: message(err),
				Remedy: "run the doctor again, or restart core-api: both remove what is left below /run/secbox",
			})
		}
	}()
	// Both are taken before either runs: the first gets its directories, at once, before the
	// second's job looks for them.
	first, err := d.acquireAttached(ctx, e, d.neighbour(), inputs, image)
	if err != nil {
		return slices.Concat(inputs.judge(outcome{err: err}), alone.judge(outcome{err: err})), ""
	}
	second, err := d.acquireAttached(ctx, e, d.project, alone, image)
	if err != nil {
		probes = alone.judge(outcome{err: err})
	} else {
		probes = alone.judge(d.runIn(ctx, second, alone))
	}
	return append(inputs.judge(d.runIn(ctx, first, inputs)), probes...), ""
}

// neighbour returns a second project, beside the project of the other probes.
func (d *Doctor) neighbour() string { return d.project + "-neighbour" }

var errNotAttached = errors.New("no container waited, though two had been ready")

func (d *Doctor) acquireAttached(ctx context.Context, e engine.Engine, project string, ex experiment, image engine.Image) (place, error) {
	p, err := d.acquire(ctx, e, project, ex, image)
	if err == nil && !p.slot.Attached() {
		p.slot.Discard()
		err = errNotAttached
	}
	return p, err
}

// attachedMounts is the experiment of the mounts in a container whose directories were attached.
func attachedMounts(s environment) experiment {
	e := mounts(s)
	e.inputs[s.neighbourFile()] = "x"
	for i := range e.checks {
		c := &e.checks[i]
		c.name = "attached_" + c.name
		c.expected = "in a container that waited, " + c.expected
		c.remedy = attachedRemedy
	}
	return e
}

const attachedRemedy = "set pool.share to false, and report the engine's version and the kernel's"

func (s environment) ownFile() string       { return "own-" + s.nonce }
func (s environment) neighbourFile() string { return "neighbour-" + s.nonce }

// neighbours looks for a project that is attached to another container at the same time.
func neighbours(s environment) experiment {
	e := python("neighbours", s.ownFile(), s.neighbourFile(), s.neighbour)
	e.inputs = map[string]string{s.ownFile(): "x"}
	e.checks = []check{{
		name: "neighbours",
		expected: "a container that waited sees the project that it got and nothing of another one, without set-user-id programs and " +
			"devices",
		remedy: attachedRemedy,
		judge: reading(func(_ outcome, facts struct {
			Own, Other []string
			Mounts     []string
			Flags      map[string][]string
		},
		) (string, bool) {
			switch {
			case len(facts.Flags) != 3:
				return incomplete, false
			case len(facts.Own) != 1:
				return fmt.Sprintf("the project's own file is there %d times", len(facts.Own)), false
			case len(facts.Other) > 0:
				return "the job can see another project's " + plain(facts.Other[0]), false
			case len(facts.Mounts) > 0:
				return "the container has a mount of another project: " + quoted(facts.Mounts[0]), false
			}
			for _, name := range []string{"inputs", "work", "artifacts"} {
				if s.copies {
					break // no_new_privs and capabilities say the same of a pod's own volumes
				}
				for _, flag := range []string{"nosuid", "nodev"} {
					if !slices.Contains(facts.Flags[name], flag) {
						return fmt.Sprintf("%s/ is mounted without %s", name, flag), false
					}
				}
			}
			return "nothing of another project was found", true
		}),
	}}
	return e
}
