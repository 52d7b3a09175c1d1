package memengine_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"secbox/engine"
	"secbox/engine/enginetest"
	"secbox/engine/memengine"
	"secbox/fault"
)

func TestContract(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]memengine.Options{"cold": {}, "warm": {Warm: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			enginetest.RunContract(t, func(*testing.T) engine.Engine { return memengine.New(o) })
		})
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	unavailable := fault.New(fault.EngineUnavailable, "away")
	var lost *engine.RunError
	prepare := func(context.Context, string) (engine.MountSet, error) { return engine.MountSet{}, nil }
	run := func(o memengine.Options) error {
		e := memengine.New(o)
		defer e.Close()
		slot, err := e.Acquire(t.Context(), engine.Spec{Prepare: prepare})
		if err != nil {
			return err
		}
		if e.Open() != 1 {
			t.Errorf("%d slots are open", e.Open())
		}
		_, err = slot.Run(t.Context(), enginetest.Shell("true"), &bytes.Buffer{}, &bytes.Buffer{})
		if e.Open() != 0 {
			t.Errorf("%d slots are open after Run", e.Open())
		}
		return err
	}
	fail := func(engine.Spec) error { return unavailable }
	if err := run(memengine.Options{Acquire: fail}); !errors.Is(err, unavailable) || errors.As(err, &lost) {
		t.Errorf("Acquire: %v", err)
	}
	if err := run(memengine.Options{Start: fail}); !errors.As(err, &lost) || lost.Started || !fault.Is(err, fault.EngineUnavailable) {
		t.Errorf("Start: %v", err)
	}
	job := func(err error) memengine.Func {
		return func(context.Context, *memengine.Container) (engine.Exit, error) { return engine.Exit{}, err }
	}
	if err := run(memengine.Options{Run: job(broken)}); !errors.As(err, &lost) || !lost.Started || !lost.Dead || !errors.Is(err, broken) {
		t.Errorf("Run: %v", err)
	}
	undead := &engine.RunError{Started: true, Err: unavailable}
	if err := run(memengine.Options{Run: job(undead)}); !errors.Is(err, undead) {
		t.Errorf("Run with a RunError: %v", err)
	}
}

func TestCloseLosesRunningJobs(t *testing.T) {
	t.Parallel()
	e := memengine.New(memengine.Options{})
	slot, err := e.Acquire(t.Context(), engine.Spec{Prepare: func(context.Context, string) (engine.MountSet, error) { return engine.MountSet{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	job := enginetest.Shell("sleep 1000")
	job.OnStart = func() { go e.Close() }
	var lost *engine.RunError
	if _, err := slot.Run(t.Context(), job, &bytes.Buffer{}, &bytes.Buffer{}); !errors.As(err, &lost) || !lost.Started || !lost.Dead {
		t.Errorf("got %v", err)
	}
	if _, err := e.Acquire(t.Context(), engine.Spec{}); !fault.Is(err, fault.EngineUnavailable) {
		t.Errorf("after Close: %v", err)
	}
}
