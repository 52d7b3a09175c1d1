package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"secbox/engine"
	"secbox/engine/enginetest"
	"secbox/fault"
	"secbox/policy"
)

// pooled is a fixture with a pool.
type pooled struct {
	*enginetest.Fixture
	t    *testing.T
	pool *engine.Pool
}

func newPooled(t *testing.T, change func(*engine.PoolConfig)) *pooled {
	t.Helper()
	p := &pooled{t: t}
	p.Fixture = enginetest.New(t, func(t *testing.T, cfg engine.Config) engine.Engine {
		p.pool = newPool(t, cfg, change)
		return p.pool
	})
	return p
}

// spec is the fixture's Spec for another project.
func (p *pooled) spec(project string) engine.Spec {
	s := p.Spec()
	s.ProjectID = project
	return s
}

// ask has the pool start a container.
func (p *pooled) ask(spec engine.Spec) { p.pool.Use(spec) }

func (p *pooled) waits(n int) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%d containers that wait", n), func() bool {
		s := p.pool.Stats()
		return s.Waiting == n && s.Starting == 0
	})
}

// containers are the names of docker's containers.
func (p *pooled) containers() []string {
	p.t.Helper()
	names, err := p.CLI.Containers(p.t.Context(), engine.LabelNode+"="+p.Node)
	if err != nil {
		p.t.Fatal(err)
	}
	return names
}

// takes runs a job in a slot of the project and reports whether it was warm.
func (p *pooled) takes(spec engine.Spec) (warm bool) {
	p.t.Helper()
	slot, err := p.pool.Acquire(p.t.Context(), spec)
	if err != nil {
		p.t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := slot.Run(p.t.Context(), enginetest.Shell("echo ran"), &out, &bytes.Buffer{}); err != nil || out.String() != "ran\n" {
		p.t.Fatalf("warm %v: %v, %q", slot.Warm(), err, &out)
	}
	return slot.Warm()
}

func TestPoolOff(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*engine.PoolConfig){
		func(c *engine.PoolConfig) { c.Max = 0 },
		func(c *engine.PoolConfig) { c.MaxMemoryMB = engine.SlotMemoryMB - 1 },
	} {
		p := newScriptedPool(t, change)
		for range 2 {
			if p.takes(p.Spec()) {
				t.Error("a slot is warm")
			}
		}
		if s := p.pool.Stats(); s.Max != 0 || s.Refills != 0 || s.Waiting+s.Starting != 0 {
			t.Errorf("%+v", s)
		}
	}
}

func TestPoolRefills(t *testing.T) {
	t.Parallel()
	p := newPooled(t, func(c *engine.PoolConfig) { c.MaxPerKey = 1 })
	if p.takes(p.Spec()) {
		t.Error("the first slot cannot be warm")
	}
	p.waits(1)
	first := p.containers()
	if !p.takes(p.Spec()) {
		t.Error("the second slot is not warm")
	}
	p.waits(1)
	eventually(t, "the end of the container that had the job", func() bool { return len(p.containers()) == 1 })
	if slices.Equal(first, p.containers()) {
		t.Error("the container that had a job waits again")
	}
	if s := p.pool.Stats(); s.Hits != 1 || s.Misses != 1 || s.Refills != 2 || s.Age.N != 1 || s.Refill.N != 2 || s.Refill.Max <= 0 {
		t.Errorf("%+v", s)
	}
}

// TestPoolReplacesDeadContainers ends waiting containers in every way; no dead one is used.
func TestPoolReplacesDeadContainers(t *testing.T) {
	t.Parallel()
	p := newPooled(t, nil)
	for range 3 {
		p.ask(p.Spec())
	}
	p.waits(3)
	names := p.containers()
	enginetest.Docker(t, "kill", names[0])
	enginetest.Docker(t, "rm", "-f", names[1])
	pids := enginetest.CLIProcesses(strings.TrimPrefix(names[2], "secbox-"))
	if len(pids) != 1 {
		t.Fatalf("%s has the CLIs %v", names[2], pids)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "three deaths noticed", func() bool { return p.pool.Stats().Dropped.Dead == 3 })
	p.takes(p.Spec()) // warm or cold: it must run
	eventually(t, "a container that waits", func() bool { return p.pool.Stats().Waiting > 0 })
	if !p.takes(p.Spec()) {
		t.Error("no warm slot after the deaths")
	}
}

func TestPoolDropsStaleDirectories(t *testing.T) {
	t.Parallel()
	p := newScriptedPool(t, func(c *engine.PoolConfig) { c.MaxPerKey = 1 })
	var intact atomic.Bool
	var dropped atomic.Int64
	intact.Store(true)
	spec := p.Spec()
	prepare := spec.Prepare
	spec.Prepare = func(ctx context.Context, execID string) (engine.MountSet, error) {
		mounts, err := prepare(ctx, execID)
		mounts.Intact, mounts.Drop = intact.Load, func() { dropped.Add(1) }
		return mounts, err
	}
	p.ask(spec)
	p.waits(1)
	intact.Store(false)
	if p.takes(spec) {
		t.Error("a stale slot was handed out")
	}
	if p.pool.Stats().Dropped.Stale == 0 {
		t.Error("no stale slot was dropped")
	}
	eventually(t, "the stale mounts dropped", func() bool { return dropped.Load() >= 1 })
	// The pool itself runs evict every few seconds, so that at least one was dropped until here.
	intact.Store(true)
	p.waits(1)
	stale, places := p.pool.Stats().Dropped.Stale, dropped.Load()
	intact.Store(false)
	p.pool.Evict() // without an Acquire
	eventually(t, "another one dropped", func() bool { return p.pool.Stats().Dropped.Stale > stale && dropped.Load() > places })
}

// TestPrepareErrorAffectsOneProject breaks one project whose containers wait: it is not tried again
// and again, and the others get containers.
func TestPrepareErrorAffectsOneProject(t *testing.T) {
	t.Parallel()
	for _, code := range []fault.Code{fault.Internal, fault.UnknownArtifact} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			p := newScriptedPool(t, nil)
			broken := p.spec("broken")
			var fails atomic.Bool
			var tries atomic.Int64
			prepare := broken.Prepare
			broken.Prepare = func(ctx context.Context, execID string) (engine.MountSet, error) {
				if fails.Load() {
					tries.Add(1)
					return engine.MountSet{}, fault.New(code, "its work is gone")
				}
				return prepare(ctx, execID)
			}
			for range 3 {
				p.ask(broken)
			}
			p.waits(3)
			fails.Store(true)
			begun := time.Now()
			p.takes(broken) // two are left, and three wanted
			for i := range 3 {
				other := p.spec(fmt.Sprintf("other-%d", i))
				p.takes(other)
				eventually(t, "a container for another project", func() bool {
					return slices.ContainsFunc(p.pool.Stats().Keys, func(k engine.PoolKey) bool { return k.ProjectID == other.ProjectID && k.Waiting > 0 })
				})
			}
			eventually(t, "a try for the broken one", func() bool { return tries.Load() > 0 })
			if n, took := tries.Load(), time.Since(begun); n > 3+int64(took/engine.Tick) {
				t.Errorf("it was tried %d times in %v", n, took)
			}
		})
	}
}

// TestEveryLimitIsEnforced: the container's start depends on each limit, and the pool changes the
// ones that docker changes.
func TestEveryLimitIsEnforced(t *testing.T) {
	t.Parallel()
	base := enginetest.Limits(policy.ContainerLimits{MemoryMB: 128, CPUCores: 1, PIDs: 64, TmpMB: 32, ShmMB: 64})
	for i := range reflect.TypeFor[policy.ContainerLimits]().NumField() {
		other := base
		field := reflect.ValueOf(&other).Elem().Field(i)
		field.Set(reflect.ValueOf(2).Convert(field.Type()))
		name := reflect.TypeFor[policy.ContainerLimits]().Field(i).Name
		starts, docker, pool := engine.Changes(base, other)
		if !starts {
			t.Errorf("%s is not in docker's arguments", name)
		}
		if docker != pool {
			t.Errorf("%s: docker changes it: %v, the pool: %v", name, docker, pool)
		}
	}
}

func TestPoolKeys(t *testing.T) {
	t.Parallel()
	p := newScriptedPool(t, nil)
	base := p.Spec()
	p.ask(base)
	p.waits(1)
	for name, change := range map[string]func(*engine.Spec){
		"project": func(s *engine.Spec) { s.ProjectID = "other" }, "memory": func(s *engine.Spec) { s.Limits.MemoryMB++ },
		"cpus": func(s *engine.Spec) { s.Limits.CPUCores = 0.5 }, "pids": func(s *engine.Spec) { s.Limits.PIDs++ },
		"tmp": func(s *engine.Spec) { s.Limits.TmpMB++ }, "shm": func(s *engine.Spec) { s.Limits.ShmMB-- },
		"access": func(s *engine.Spec) { s.Access = "less" },
		"user":   func(s *engine.Spec) { s.User = "1001:1001" }, "runtime": func(s *engine.Spec) { s.Runtime = "runc" },
		"a promised id": func(s *engine.Spec) { s.ExecID = "01890000-0000-7000-8000-00000000000a" },
		"init volume":   func(s *engine.Spec) { s.InitVolume = "other" }, "image": func(s *engine.Spec) { s.ImageID = "sha256:other" },
	} {
		spec := base
		change(&spec)
		slot, err := p.pool.Acquire(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if slot.Warm() {
			t.Errorf("a slot with another %s was handed out", name)
		}
		slot.Discard()
	}
	if slot, err := p.pool.Acquire(t.Context(), base); err != nil || !slot.Warm() {
		t.Errorf("the slot of the very kind was not: %v", err)
	} else {
		slot.Discard()
	}
}

func TestDropImage(t *testing.T) {
	t.Parallel()
	p := newScriptedPool(t, nil)
	p.ask(p.Spec())
	p.waits(1)
	p.pool.DropImage("sha256:another")
	p.waits(1)
	p.pool.DropImage(p.Image.ID)
	p.waits(0)
	eventually(t, "no container left", func() bool { return len(p.containers()) == 0 })
}

func TestIdleContainersEnd(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	p := newScriptedPool(t, func(c *engine.PoolConfig) {
		c.Idle = time.Minute
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	p.ask(p.Spec())
	p.waits(1)
	ahead.Store(int64(50 * time.Second))
	p.pool.Evict()
	p.waits(1)
	ahead.Store(int64(2 * time.Minute))
	p.pool.Evict()
	p.waits(0)
	if s := p.pool.Stats(); s.Dropped.Idle != 1 || len(s.Keys) != 0 {
		t.Errorf("%+v", s)
	}
}

func TestMemoryLow(t *testing.T) {
	t.Parallel()
	var memoryLow atomic.Bool
	p := newScriptedPool(t, func(c *engine.PoolConfig) { c.MemoryLow = memoryLow.Load })
	for range 3 {
		p.ask(p.Spec())
	}
	p.waits(3)
	memoryLow.Store(true)
	for left := 3; left > 0; {
		p.pool.Evict() // the pool itself does this every few seconds, too
		waiting := p.pool.Stats().Waiting
		if waiting >= left {
			t.Fatalf("%d still wait, of %d", waiting, left)
		}
		left = waiting
	}
	if p.takes(p.Spec()) {
		t.Error("warm without memory for it")
	}
	if s := p.pool.Stats(); s.Waiting+s.Starting != 0 || !s.MemoryLow || s.Dropped.MemoryLow != 3 {
		t.Errorf("%+v", s)
	}
	memoryLow.Store(false)
	p.pool.Evict()
	eventually(t, "a container that waits", func() bool { return p.pool.Stats().Waiting > 0 })
}

// TestManyProjectsUsedOnce uses each once; the number of waiting containers stays bounded.
func TestManyProjectsUsedOnce(t *testing.T) {
	t.Parallel()
	const most = 3
	n := enginetest.Scaled(200, 1000)
	p := newScriptedPool(t, func(c *engine.PoolConfig) { c.Max = most })
	for i := range n {
		p.ask(p.spec(fmt.Sprintf("p%d", i)))
		if s := p.pool.Stats(); s.Waiting+s.Starting > most {
			t.Fatalf("%d wait and %d start after %d projects", s.Waiting, s.Starting, i+1)
		}
		if i%(n/2) == n/2-1 { // sometimes it has the time to start some
			p.waits(most)
			eventually(t, "no container beyond the bound", func() bool { return len(p.containers()) <= most })
		}
	}
	eventually(t, "the three that were used last, and no other", func() bool {
		var projects []string
		for _, k := range p.pool.Stats().Keys {
			if k.Waiting > 0 {
				projects = append(projects, k.ProjectID)
			}
		}
		return slices.Equal(projects, []string{fmt.Sprint("p", n-1), fmt.Sprint("p", n-2), fmt.Sprint("p", n-3)})
	})
	s := p.pool.Stats()
	if s.Misses != int64(n) || s.Dropped.LRU == 0 || len(s.Keys) > 4*most+64 {
		t.Errorf("%d misses, %d given up for others, %d keys", s.Misses, s.Dropped.LRU, len(s.Keys))
	}
}

// TestCancelInTheInstantOfHandOver ends a job's context while its slot gets the job. Every answer
// is true, and nothing is left.
func TestCancelInTheInstantOfHandOver(t *testing.T) {
	t.Parallel()
	p := newPooled(t, nil)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	outcomes := map[string]int{}
	for i := range enginetest.Scaled(8, 24) {
		slot, err := p.pool.Acquire(t.Context(), p.Spec()) // ready, starting, or cold
		if err != nil {
			t.Fatal(err)
		}
		mark := fmt.Sprintf("ran-%d", i)
		ctx, cancel := context.WithCancel(t.Context())
		delay := time.Duration(random.IntN(6000)) * time.Microsecond
		canceling := time.AfterFunc(delay, cancel)
		exit, err := slot.Run(ctx, enginetest.Shell("touch /workspace/work/"+mark+"; sleep 30"), &bytes.Buffer{}, &bytes.Buffer{})
		canceling.Stop()
		cancel()
		_, statErr := os.Stat(p.Dir + "/work/" + mark)
		var lost *engine.RunError
		switch {
		case err == nil && exit.Killed:
			outcomes["killed"]++
		case errors.As(err, &lost) && !lost.Started:
			outcomes["never started"]++
			if statErr == nil {
				t.Errorf("said to have never started, and it ran: %v", err)
			}
		default:
			t.Errorf("after %v: %+v, %v", delay, exit, err)
		}
		if i%4 == 3 {
			eventually(t, "a container that waits", func() bool { return p.pool.Stats().Waiting > 0 })
		}
	}
	t.Logf("%v", outcomes)
}

// TestConcurrentAcquire acquires slots from many goroutines: each container serves one job.
func TestConcurrentAcquire(t *testing.T) {
	t.Parallel()
	p := newScriptedPool(t, nil)
	for range 4 {
		p.ask(p.Spec())
	}
	p.waits(4)
	before := p.pool.Stats()
	var mu sync.Mutex
	seen, warm := map[string]bool{}, 0
	var hits, misses int64
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			slot, err := p.pool.Acquire(t.Context(), p.Spec())
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			if seen[slot.ExecID()] {
				t.Errorf("%s was handed out twice", slot.ExecID())
			}
			seen[slot.ExecID()] = true
			runs := i%20 == 0 // ten jobs; the others are discarded
			if slot.Warm() {
				warm++
			}
			switch {
			case runs && slot.Warm():
				hits++
			case runs:
				misses++
			}
			mu.Unlock()
			if !runs {
				slot.Discard()
				return
			}
			var out bytes.Buffer
			if _, err := slot.Run(t.Context(), enginetest.Shell("echo $HOSTNAME"), &out, &bytes.Buffer{}); err != nil || out.Len() < 2 {
				t.Errorf("%v %q", err, &out)
			}
		})
	}
	all.Wait()
	if s := p.pool.Stats(); len(seen) != 200 || warm < 4 || s.Hits-before.Hits != hits || s.Misses-before.Misses != misses {
		t.Errorf("%d slots, %d warm: %+v", len(seen), warm, s)
	}
}

// TestDrain drops waiting containers, and those that are started meanwhile.
func TestDrain(t *testing.T) {
	t.Parallel()
	p := newPooled(t, nil)
	for range 4 {
		p.ask(p.Spec())
	}
	eventually(t, "one that waits while another one is being started", func() bool { s := p.pool.Stats(); return s.Waiting > 0 && s.Starting > 0 })
	p.pool.Drain()
	p.pool.Drain()
	if p.takes(p.Spec()) {
		t.Error("warm after the drain")
	}
	if s := p.pool.Stats(); s.Waiting+s.Starting != 0 || s.Dropped.Drained == 0 {
		t.Errorf("%+v", s)
	}
	eventually(t, "no container left", func() bool { return len(p.containers()) == 0 })
}
