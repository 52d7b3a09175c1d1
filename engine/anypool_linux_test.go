package engine_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"secbox/engine"
	"secbox/engine/attach"
	"secbox/engine/dockercli/dockerclitest"
	"secbox/engine/enginetest"
	"secbox/fault"
	"secbox/policy"
)

// anyScript is a docker whose containers say hello, make the directory "made" in an attached work,
// and report exit code 7 when they get a job. It has no engine if there is a file "away"; it shows
// no mounts if there is "blind", and changes no limits if there is "fixed", which it finds out only
// after the container's end if there is "late"; a container that serves ends slowly, and its limits
// are changed only then, if there is "slow". Waiting ones do not notice the end of their lease
// if there is "frozen". None starts, or has limits to change, while there is "held". They serve
// many jobs unless there is "old". It notes its calls.
const anyScript = `cd %s
echo "$*" >> calls
case $1 in
run)
	[ ! -e away ] || { echo "Cannot connect to the Docker daemon" >&2; exit 1; }
	for arg; do case $arg in
		secbox-*) name=$arg ;;
		type=bind,source=*,target=/workspace,*) point=${arg#*source=}; point=${point%%%%,*} ;;
	esac; done
	echo $$ > "$name"
	while [ -e held ]; do sleep 0.01; done
	echo > "$name.up"
	case "$*" in
		*--serve*) printf 'h\000\000\000\016secbox-serve/2'; exec cat > /dev/null ;;
		*) printf 'h\000\000\000\015secbox-init/2' ;;
	esac
	type=$(head -c 1)
	[ "$type" != R ] || type=$(head -c 10 | tail -c 1)
	case $type in
	S)
		[ ! -e old ] || exit 2
		head -c 4 > /dev/null
		printf 'h\000\000\000\016secbox-serve/2'
		cat > /dev/null
		echo > "$name.ends"
		[ ! -e slow ] || sleep 0.2
		exit ;;
	J) ;;
	*) [ -e frozen ] || exit 0; exec sleep 1000 ;;
	esac
	[ -e blind ] || ! mountpoint -q "$point/work" || mkdir "$point/work/made"
	printf 'x\000\000\000\012{"code":7}'
	exec cat > /dev/null ;;
update)
	for name; do :; done
	[ -e "$name.up" ] || exit 1
	while [ -e slow ] && [ ! -e "$name.ends" ]; do sleep 0.01; done
	while [ -e late ] && kill -0 "$(cat "$name")"; do sleep 0.01; done
	[ ! -e fixed ] ;;
rm) kill "$(cat "$4")" || : ;;
esac`

// anyPool is a pool of the docker of anyScript.
type anyPool struct {
	*pooled
	dir       string
	base      string       // has the points
	image     atomic.Value // of Default; empty: there is none
	memoryLow atomic.Bool
}

func newScriptedAnyPool(t *testing.T, ready int, files ...string) *anyPool {
	t.Helper()
	p := &anyPool{pooled: &pooled{t: t}, dir: t.TempDir()}
	p.image.Store("sha256:a")
	for _, name := range files {
		p.touch(name)
	}
	p.base = filepath.Join(t.TempDir(), "private", "base")
	base, err := attach.Open(filepath.Split(p.base))
	if err != nil {
		t.Fatal(err)
	}
	p.pool = newPool(t, engine.Config{
		Driver: engine.NewDocker(dockerclitest.Script(t, fmt.Sprintf(anyScript, p.dir)), engine.Options{}), NewID: uuid.NewString,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}, func(c *engine.PoolConfig) {
		c.Base, c.Ready, c.MemoryLow = base, ready, p.memoryLow.Load
		c.Default = func(context.Context) (engine.Spec, error) {
			if p.image.Load() == "" {
				return engine.Spec{}, fault.New(fault.ImageMissing, "no image")
			}
			return p.spec("").Spec(), nil
		}
	})
	t.Cleanup(func() {
		if err := p.pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *anyPool) touch(name string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), nil, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *anyPool) remove(name string) {
	p.t.Helper()
	if err := os.Remove(filepath.Join(p.dir, name)); err != nil {
		p.t.Fatal(err)
	}
}

// calls are docker's arguments that begin with a command.
func (p *anyPool) calls(command string) (calls []string) {
	p.t.Helper()
	all, err := os.ReadFile(filepath.Join(p.dir, "calls"))
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(all)) {
		if strings.HasPrefix(line, command+" ") {
			calls = append(calls, line)
		}
	}
	return calls
}

// specOf is a changeable Spec.
type specOf engine.Spec

func (s specOf) Spec() engine.Spec { return engine.Spec(s) }

func (s specOf) limited(l policy.ContainerLimits) engine.Spec {
	s.Limits = enginetest.Limits(l)
	return engine.Spec(s)
}

func (p *anyPool) spec(project string) specOf {
	return specOf{
		ProjectID: project, ImageID: p.image.Load().(string), User: "1000:1000", Prepare: nowhere,
		Limits: enginetest.Limits(policy.ContainerLimits{MemoryMB: 128, CPUCores: 1, PIDs: 64, TmpMB: 32, ShmMB: 128}),
	}
}

// run runs a job in a slot and ends it.
func (p *anyPool) run(slot engine.Slot) {
	p.t.Helper()
	exit, err := slot.Run(p.t.Context(), enginetest.Shell("exit 7"), io.Discard, io.Discard)
	if err != nil || exit.Code != 7 {
		p.t.Fatalf("%+v %v", exit, err)
	}
}

func (p *anyPool) acquire(spec engine.Spec) engine.Slot {
	p.t.Helper()
	slot, err := p.pool.Acquire(p.t.Context(), spec)
	if err != nil {
		p.t.Fatal(err)
	}
	return slot
}

// hasReady waits for n containers of an image, and no others.
func (p *anyPool) hasReady(image string, n int) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%d containers of %s", n, image), func() bool {
		s := p.pool.Stats()
		return s.Shared && s.Waiting == n && s.Starting == 0 && len(s.Keys) == 1 && s.Keys[0].ImageID == image && s.Keys[0].Waiting == n
	})
}

func TestReadyBeforeTheFirstRequest(t *testing.T) {
	t.Parallel()
	p := newScriptedAnyPool(t, 3)
	p.hasReady("sha256:a", 3)
	slot := p.acquire(p.spec("new").Spec())
	if !slot.Warm() {
		t.Error("the first slot of a project is not warm")
	}
	p.run(slot)
	p.hasReady("sha256:a", 3)
}

func TestReadyFollowsTheImage(t *testing.T) {
	t.Parallel()
	p := newScriptedAnyPool(t, 2)
	p.hasReady("sha256:a", 2)
	p.image.Store("sha256:b")
	p.pool.DropImage("sha256:a")
	p.hasReady("sha256:b", 2)
	p.image.Store("") // it is built anew
	p.pool.DropImage("sha256:b")
	eventually(t, "no container", func() bool { s := p.pool.Stats(); return s.Waiting+s.Starting == 0 })
	p.image.Store("sha256:c")
	p.hasReady("sha256:c", 2)
}

func TestReadyOnceThereIsAnImage(t *testing.T) {
	t.Parallel()
	p := newScriptedAnyPool(t, 2)
	p.image.Store("")
	p.pool.DropImage("sha256:a")
	p.image.Store("sha256:a")
	p.hasReady("sha256:a", 2)
}

func TestReadyAfterTheEngineWasAway(t *testing.T) {
	t.Parallel()
	p := newScriptedAnyPool(t, 2)
	p.hasReady("sha256:a", 2)
	p.touch("away")
	p.pool.DropImage("sha256:a")
	eventually(t, "the engine's absence noticed", func() bool { return !p.pool.Stats().Shared })
	p.remove("away")
	p.hasReady("sha256:a", 2)
}

func TestReadyAfterMemoryWasLow(t *testing.T) {
	t.Parallel()
	p := newScriptedAnyPool(t, 4)
	p.hasReady("sha256:a", 4)
	p.memoryLow.Store(true)
	eventually(t, "no container", func() bool {
		p.pool.Evict()
		s := p.pool.Stats()
		return s.Waiting+s.Starting == 0
	})
	p.memoryLow.Store(false)
	p.pool.Evict()
	p.hasReady("sha256:a", 4)
}

// TestLazyTrial: without ready containers, the first request starts the trial, and its use is
// remembered.
func TestLazyTrial(t *testing.T) {
	t.Parallel()
	p := newScriptedAnyPool(t, 0)
	slot := p.acquire(p.spec("first").Spec())
	if slot.Warm() {
		t.Error("the first slot is warm")
	}
	p.run(slot)
	p.hasReady("sha256:a", 1)
}

func TestEngineThatShowsNoMounts(t *testing.T) {
	t.Parallel()
	p := newScriptedAnyPool(t, 2, "blind")
	<-p.pool.Decided()
	p.run(p.acquire(p.spec("one").Spec()))
	eventually(t, "a container of the project", func() bool {
		s := p.pool.Stats()
		return !s.Shared && s.NotShared != "" && len(s.Keys) == 1 && s.Keys[0].ProjectID == "one" && s.Keys[0].Waiting == 1
	})
}

// TestEngineThatShowsNoMountsAnymore: an engine was away and came back without the mounts; no
// container waits for it.
func TestEngineThatShowsNoMountsAnymore(t *testing.T) {
	t.Parallel()
	p := newScriptedAnyPool(t, 2)
	p.hasReady("sha256:a", 2)
	p.touch("away")
	p.touch("blind")
	p.pool.DropImage("sha256:a")
	eventually(t, "the engine's absence noticed", func() bool { return !p.pool.Stats().Shared })
	p.remove("away")
	eventually(t, "the trial's failure, and no container", func() bool {
		s := p.pool.Stats()
		return strings.Contains(s.NotShared, "does not see the mounts") && s.Waiting+s.Starting == 0 && s.Ready == 0 && len(s.Keys) == 0
	})
}

// TestOtherRuntimes: the trial tells about one runtime only. Containers of others wait for their
// project.
func TestOtherRuntimes(t *testing.T) {
	t.Parallel()
	p := newScriptedAnyPool(t, 1)
	p.hasReady("sha256:a", 1)
	spec := p.spec("one").Spec()
	spec.Runtime = "crun"
	for _, warm := range []bool{false, true} {
		slot := p.acquire(spec)
		if slot.Warm() != warm || slot.Attached() {
			t.Errorf("warm %v, attached %v", slot.Warm(), slot.Attached())
		}
		p.run(slot)
		eventually(t, "a container of the project", func() bool {
			return slices.ContainsFunc(p.pool.Stats().Keys, func(k engine.PoolKey) bool {
				return k.ProjectID == "one" && k.Runtime == "crun" && k.Waiting == 1
			})
		})
	}
	if slot := p.acquire(p.spec("one").Spec()); !slot.Warm() || !slot.Attached() {
		t.Errorf("warm %v, attached %v", slot.Warm(), slot.Attached())
	} else {
		slot.Discard()
	}
}

// TestGivenBack: a project whose directories cannot be prepared costs no container, however often
// it tries.
func TestGivenBack(t *testing.T) {
	t.Parallel()
	p := newScriptedAnyPool(t, 1)
	p.hasReady("sha256:a", 1)
	before := p.pool.Stats()
	broken := p.spec("broken").Spec()
	broken.Prepare = func(context.Context, string) (engine.MountSet, error) {
		return engine.MountSet{}, fault.New(fault.ProjectDamaged, "its work is gone")
	}
	for range 1000 {
		if err := enginetest.Refusal(t.Context(), p.pool, broken); !fault.Is(err, fault.ProjectDamaged) {
			t.Fatal(err)
		}
	}
	s := p.pool.Stats()
	if s.Waiting != 1 || s.Starting != 0 || s.Hits != before.Hits || s.Misses != before.Misses || s.Refills != before.Refills || len(s.Keys) != 1 {
		t.Errorf("%+v, before %+v", s, before)
	}
	slot := p.acquire(p.spec("whole").Spec())
	if !slot.Warm() {
		t.Error("the container that was given back is not used")
	}
	p.run(slot)
}

// TestDiscarded: execs that end before their job cost no container, are no uses, and keep their ids
// to themselves.
func TestDiscarded(t *testing.T) {
	t.Parallel()
	p := newScriptedAnyPool(t, 1)
	p.hasReady("sha256:a", 1)
	before := p.pool.Stats()
	spec, dropped := p.spec("refused").Spec(), 0
	prepare := spec.Prepare
	spec.Prepare = func(ctx context.Context, execID string) (engine.MountSet, error) {
		set, err := prepare(ctx, execID)
		set.Drop = func() { dropped++ }
		return set, err
	}
	const times, atOnce = 50, 4
	ids := map[string]bool{}
	for range times {
		var slots []engine.Slot
		for i := range atOnce {
			slot := p.acquire(spec)
			if first := i == 0; slot.Warm() != first || slot.Attached() != first {
				t.Fatalf("slot %d: warm %v, attached %v", i, slot.Warm(), slot.Attached())
			}
			ids[slot.ExecID()] = true
			slots = append(slots, slot)
		}
		for _, slot := range slots {
			slot.Discard()
		}
	}
	s := p.pool.Stats()
	if s.Waiting != 1 || s.Starting != 0 || s.Hits != 0 || s.Misses != 0 || s.Refills != before.Refills || len(s.Keys) != 1 || s.Keys[0].Wanted != 1 {
		t.Errorf("%+v, before %+v", s, before)
	}
	if len(ids) != times*atOnce || dropped != times*atOnce {
		t.Errorf("%d ids, %d dropped", len(ids), dropped)
	}
	slot := p.acquire(p.spec("whole").Spec())
	if !slot.Warm() || ids[slot.ExecID()] {
		t.Errorf("warm %v, exec %s", slot.Warm(), slot.ExecID())
	}
	p.run(slot)
}

// TestGivenBackWhileItDies: containers that end while an exec is prepared in vain leave nothing,
// and others take their place.
func TestGivenBackWhileItDies(t *testing.T) {
	t.Parallel()
	p := newScriptedAnyPool(t, 2)
	broken := p.spec("broken").Spec()
	broken.Prepare = func(_ context.Context, execID string) (engine.MountSet, error) {
		pid, err := os.ReadFile(filepath.Join(p.dir, "secbox-"+execID))
		if err != nil {
			return engine.MountSet{}, err
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(pid)))
		if err == nil {
			err = syscall.Kill(n, syscall.SIGKILL)
		}
		return engine.MountSet{}, fault.Wrap(fault.ProjectDamaged, err, "its work is gone")
	}
	for range 10 {
		p.hasReady("sha256:a", 2)
		before := p.pool.Stats().Refills
		if err := enginetest.Refusal(t.Context(), p.pool, broken); !fault.Is(err, fault.ProjectDamaged) {
			t.Fatal(err)
		}
		eventually(t, "another container", func() bool { return p.pool.Stats().Refills > before })
	}
	p.hasReady("sha256:a", 2)
	eventually(t, "two points", func() bool {
		points, err := os.ReadDir(p.base)
		return err == nil && len(points) == 2
	})
}

// TestOtherLimits: requests with other limits get waiting containers with changed limits while
// there are more than half of them.
func TestOtherLimits(t *testing.T) {
	t.Parallel()
	p := newScriptedAnyPool(t, 4)
	p.hasReady("sha256:a", 4)
	limits := policy.ContainerLimits{MemoryMB: 256, CPUCores: 0.5, PIDs: 99, TmpMB: 32, ShmMB: 256}
	const flags = "--pids-limit 99 --memory 256m --memory-swap 256m --cpus 0.5"
	slot := p.acquire(p.spec("one").limited(limits))
	if args := strings.Join(slot.Args(), " "); !slot.Warm() || !strings.Contains(args, flags) {
		t.Errorf("warm %v, %s", slot.Warm(), args)
	}
	p.run(slot)
	if calls := p.calls("update"); len(calls) != 1 || calls[0] != "update "+flags+" secbox-"+slot.ExecID()+"\n" {
		t.Errorf("%q", calls)
	}
	other := limits
	other.TmpMB++
	if slot := p.acquire(p.spec("one").limited(other)); slot.Warm() {
		t.Error("a container with another size of /tmp was used")
	} else {
		slot.Discard()
	}
}

// TestLimitsThatCannotBeChanged: the job never runs with other limits than its own.
func TestLimitsThatCannotBeChanged(t *testing.T) {
	t.Parallel()
	p := newScriptedAnyPool(t, 4, "fixed")
	p.hasReady("sha256:a", 4)
	spec := p.spec("one").limited(policy.ContainerLimits{MemoryMB: 256, CPUCores: 1, PIDs: 64, TmpMB: 32, ShmMB: 256})
	slot := p.acquire(spec)
	p.run(slot)
	if args := strings.Join(slot.Args(), " "); slot.Attached() || !strings.Contains(args, "--memory 256m") || !slices.Contains(p.calls("run"), args+"\n") {
		t.Errorf("attached %v, %s", slot.Attached(), args)
	}
	if slot.Warm() {
		t.Error("the replacement is warm")
	}
	spec.Limits.MemoryMB, spec.Limits.ShmMB = 257, 257
	if slot := p.acquire(spec); slot.Warm() {
		t.Error("it is tried again")
	} else {
		slot.Discard()
	}
}

// TestEndedWhileLimitsChange: an exec that does not run, such as one whose inputs are refused,
// leaves the change of limits on for others.
func TestEndedWhileLimitsChange(t *testing.T) {
	t.Parallel()
	p := newScriptedAnyPool(t, 6, "fixed", "late")
	p.hasReady("sha256:a", 6)
	spec := p.spec("one").limited(policy.ContainerLimits{MemoryMB: 256, CPUCores: 1, PIDs: 64, TmpMB: 32, ShmMB: 256})
	slot := p.acquire(spec)
	if !slot.Warm() {
		t.Fatal("no container's limits are changed")
	}
	slot.Discard()
	if engine.LimitsError(slot) == nil {
		t.Error("the limits were changed")
	}
	p.remove("fixed")
	p.remove("late")
	spec.Limits.MemoryMB, spec.Limits.ShmMB = 257, 257
	slot = p.acquire(spec)
	if !slot.Warm() {
		t.Error("no container's limits are changed after that")
	}
	p.run(slot)
}

// TestFrozenContainerIsDropped: a container that waits and does not notice the end of its lease is
// removed, and Close waits for that.
func TestFrozenContainerIsDropped(t *testing.T) {
	t.Parallel()
	p := newScriptedAnyPool(t, 1)
	p.hasReady("sha256:a", 1)
	eventually(t, "the end of the trial's container", func() bool {
		points, err := os.ReadDir(p.base)
		return err == nil && len(points) == 1
	})
	p.touch("frozen")
	if err := p.pool.Close(); err != nil {
		t.Error(err)
	}
	if calls := p.calls("rm"); len(calls) != 1 {
		t.Errorf("%q", calls)
	}
}
