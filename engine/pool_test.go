package engine_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"secbox/engine"
	"secbox/engine/enginetest"
)

// primed is a pool that has a waiting container for every Acquire: each slot of the suite is warm,
// unless its container cannot be started ahead or its exec id is preset.
type primed struct {
	*engine.Pool
	t *testing.T
}

func (p primed) Acquire(ctx context.Context, spec engine.Spec) (engine.Slot, error) {
	if spec.ExecID == "" {
		before := p.Stats()
		slot, err := p.Pool.Acquire(ctx, spec)
		if err != nil || slot.Warm() || p.Stats().Unattached > before.Unattached {
			return slot, err
		}
		slot.Discard() // no container was started for it
		p.Use(spec)
		eventually(p.t, "a container that waits, or cannot be started", func() bool {
			return waitsFor(p.Stats(), spec) || p.Stats().Failures > before.Failures
		})
		if waitsFor(p.Stats(), spec) {
			slot, err := p.Pool.Acquire(ctx, spec)
			if err == nil && !slot.Warm() && p.Stats().Unattached == before.Unattached {
				p.t.Error("the slot is not warm")
			}
			return slot, err
		}
	}
	return p.Pool.Acquire(ctx, spec)
}

// waitsFor reports whether a container of the spec's key waits.
func waitsFor(s engine.PoolStats, spec engine.Spec) bool {
	return slices.ContainsFunc(s.Keys, func(k engine.PoolKey) bool {
		own := k.ProjectID == spec.ProjectID && k.Access == spec.Access
		return k.Waiting > 0 && k.Limits == spec.Limits && k.ImageID == spec.ImageID && (own || k.ProjectID == "")
	})
}

// eventually polls: a pool has no signal for each of the conditions that tests wait for.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func newPool(t *testing.T, cfg engine.Config, change func(*engine.PoolConfig)) *engine.Pool {
	pool := engine.PoolConfig{Max: 8, MaxPerKey: 4, MaxMemoryMB: 512, Idle: time.Hour, Now: time.Now, Log: cfg.Log}
	if change != nil {
		change(&pool)
	}
	return engine.NewPool(engine.NewCold(cfg), pool)
}

// sameForWaiting are the cases of the suite that show what sandbox-init and docker's flags do to a
// job, and how its output and exit get here. TestColdEngine runs them. A waiting container has the
// same program and, as HardeningAsDocker checks, the same flags; its job is in the same session.
var sameForWaiting = []string{
	"Jobs", "HardeningFromInside", "SystemCalls", "OutOfMemory", "OutputIsCutAndCounted", "AThirdOfACore",
	"ReportsExit", "CutsAndCountsOutput", "DeadlineKillsTheTree", "ForkBomb",
}

// sameForAny are the other cases: they pass whether the container has waited for one project or for
// any. TestWarmPool runs them.
var sameForAny = []string{
	"StdinOfAnySize", "CallsOnStartFirst", "Deadline", "CancelKills", "RunReturnsAfterLastByte",
	"ContainerKilledOutside", "CLIKilled", "MissingImage", "NothingOfTheJobIsInTheCLI",
}

func TestWarmPool(t *testing.T) {
	t.Parallel()
	where := enginetest.Where{Except: sameForWaiting}
	if enginetest.Scaled(0, 1) == 1 {
		where.Except = nil
	}
	where.Run(t, func(t *testing.T, cfg engine.Config) engine.Engine { return primed{newPool(t, cfg, nil), t} })
}
