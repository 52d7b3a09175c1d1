package engine_test

import (
	"strings"
	"testing"
	"time"

	"secbox/engine"
	"secbox/policy"
)

// keep acquires a slot for a container that stays, and makes it serve.
func (p *anyPool) keep(project string) (engine.Keeper, *engine.Resident) {
	p.t.Helper()
	spec := p.spec(project).limited(policy.ContainerLimits{MemoryMB: 128, CPUCores: 1, PIDs: 256, TmpMB: 32, ShmMB: 128})
	spec.Serve = true
	slot := p.acquire(spec).(engine.Keeper)
	r, err := slot.Serve(p.t.Context(), engine.Reports{})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(r.Stop)
	return slot, r
}

// wide makes containers with enough pids for an init that serves wait, and waits for them.
func (p *anyPool) wide(n int) {
	p.t.Helper()
	p.run(p.acquire(p.spec("wide").limited(policy.ContainerLimits{MemoryMB: 128, CPUCores: 1, PIDs: 256, TmpMB: 32, ShmMB: 128})))
	eventually(p.t, "a container that waits", func() bool {
		for _, k := range p.pool.Stats().Keys {
			if k.Limits.PIDs == 256 && k.Waiting >= n {
				return true
			}
		}
		return false
	})
}

// TestKeptContainerHadWaited: it gets its pids, and is no running job that containers are started
// for.
func TestKeptContainerHadWaited(t *testing.T) {
	t.Parallel()
	p := newScriptedAnyPool(t, 1)
	p.hasReady("sha256:a", 1)
	for _, project := range []string{"one", "two"} { // the second one does not wait for its limits
		p.wide(1)
		slot, r := p.keep(project)
		if !slot.Warm() || !slot.Attached() {
			t.Errorf("warm %v, attached %v", slot.Warm(), slot.Attached())
		}
		eventually(t, "the limits", func() bool {
			return strings.Contains(strings.Join(p.calls("update"), ""), "--pids-limit 800 --memory 128m --memory-swap 128m --cpus 1 "+r.Name())
		})
		if args := strings.Join(slot.Args(), " "); !strings.Contains(args, "--pids-limit 800 ") || strings.Contains(args, "--serve") {
			t.Error(args)
		}
		r.Stop()
	}
}

// TestKeptContainerThatIsBeingStarted: it gets its limits once it is there.
func TestKeptContainerThatIsBeingStarted(t *testing.T) {
	t.Parallel()
	p := newScriptedAnyPool(t, 1)
	p.wide(1)
	p.touch("held")
	limits := policy.ContainerLimits{MemoryMB: 128, CPUCores: 1, PIDs: 256, TmpMB: 32, ShmMB: 128}
	p.run(p.acquire(p.spec("one").limited(limits)))
	spec := p.spec("two").limited(limits)
	spec.Serve = true
	var slot engine.Slot
	eventually(t, "a container that is being started", func() bool {
		if slot = p.acquire(spec); !slot.Warm() {
			slot.Discard()
			return false
		}
		return true
	})
	time.AfterFunc(200*time.Millisecond, func() { p.remove("held") })
	if err := engine.LimitsError(slot); err != nil || !slot.Warm() {
		t.Errorf("warm %v, %v", slot.Warm(), err)
	}
	slot.Discard()
}

// TestKeptContainerWithAnOldInit: a new container replaces one whose init cannot serve.
func TestKeptContainerWithAnOldInit(t *testing.T) {
	t.Parallel()
	p := newScriptedAnyPool(t, 1, "old")
	p.wide(1)
	slot, _ := p.keep("one")
	if args := strings.Join(slot.Args(), " "); slot.Warm() || slot.Attached() || !strings.HasSuffix(args, " --serve 2") {
		t.Errorf("warm %v, attached %v, %s", slot.Warm(), slot.Attached(), args)
	}
}

// TestKeptContainerWithoutItsLimits: a container that was used before its limits were changed ends,
// and the next one is started with its limits.
func TestKeptContainerWithoutItsLimits(t *testing.T) {
	t.Parallel()
	p := newScriptedAnyPool(t, 1)
	p.wide(1)
	p.keep("one")
	p.wide(1)
	p.touch("fixed")
	slot, r := p.keep("two")
	if !slot.Warm() {
		t.Error("it had not waited")
	}
	<-r.Done()
	p.wide(1)
	eventually(t, "no more containers with wrong limits", func() bool {
		slot, _ := p.keep("three")
		return !slot.Warm()
	})
}

// TestLimitsOfAnEndedContainer: a container that ends before its limits are changed does not say
// that the engine cannot change them.
func TestLimitsOfAnEndedContainer(t *testing.T) {
	t.Parallel()
	p := newScriptedAnyPool(t, 1)
	p.wide(1)
	p.keep("one")
	p.touch("fixed")
	p.touch("slow")
	for range 2 {
		p.wide(1)
		slot, r := p.keep("two")
		if !slot.Warm() {
			t.Fatal("the engine is taken to have refused it")
		}
		r.Stop()
	}
}

// TestLimitsTakeTurns: of containers that serve already, one at a time gets its limits, and one
// that has ended before its turn gets none.
func TestLimitsTakeTurns(t *testing.T) {
	t.Parallel()
	p := newScriptedAnyPool(t, 2)
	p.wide(1)
	p.keep("one")
	p.touch("slow") // limits are changed when the container ends
	var kept []*engine.Resident
	for _, project := range []string{"two", "three"} {
		p.wide(1)
		slot, r := p.keep(project)
		if !slot.Warm() {
			t.Fatal("it had not waited")
		}
		kept = append(kept, r)
	}
	eventually(t, "one gets its limits", func() bool { return len(p.calls("update")) == 2 })
	first, second := kept[0], kept[1]
	if strings.Contains(p.calls("update")[1], second.Name()) {
		first, second = second, first
	}
	second.Stop()
	first.Stop()
	p.remove("slow")
	p.wide(1)
	p.keep("four")
	eventually(t, "the next one gets its limits", func() bool { return len(p.calls("update")) >= 3 })
	for _, call := range p.calls("update") {
		if strings.Contains(call, second.Name()) {
			t.Errorf("one that has ended: %s", call)
		}
	}
}
