package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"secbox/engine"
	"secbox/engine/attach"
	"secbox/engine/enginetest"
	"secbox/fault"
	"secbox/policy"
)

// newAnyPool is a pool whose containers wait for any project, some of them always.
func newAnyPool(t *testing.T, cfg engine.Config, ready int) *engine.Pool {
	t.Helper()
	return newAnyPoolIn(t, cfg, ready, filepath.Join(t.TempDir(), "private"))
}

// newAnyPoolIn is newAnyPool with its base in a directory.
func newAnyPoolIn(t *testing.T, cfg engine.Config, ready int, parent string) *engine.Pool {
	t.Helper()
	base, err := attach.Open(parent, uuid.NewString())
	if err != nil {
		t.Fatal(err)
	}
	image := enginetest.ImageOf(t)
	p := newPool(t, cfg, func(p *engine.PoolConfig) {
		p.Base, p.Ready = base, ready
		p.Default = func(context.Context) (engine.Spec, error) { return enginetest.SpecOf(image), nil }
	})
	eventually(t, "containers for any project", func() bool { return p.Stats().Shared })
	return p
}

// TestWarmAnyPool runs the suite in containers that any project can take.
func TestWarmAnyPool(t *testing.T) {
	t.Parallel()
	where := enginetest.Where{Except: slices.Concat(sameForWaiting, sameForAny)}
	if enginetest.Scaled(0, 1) == 1 {
		where.Except = nil
	}
	where.Run(t, func(t *testing.T, cfg engine.Config) engine.Engine { return primed{newAnyPool(t, cfg, 1), t} })
}

// TestProjectsOfAPool: a container that waited before there was a project sees the directories of
// the project that takes it, and no other's.
func TestProjectsOfAPool(t *testing.T) {
	t.Parallel()
	f := enginetest.New(t, func(t *testing.T, cfg engine.Config) engine.Engine { return newAnyPool(t, cfg, 2) })
	pool := f.Engine.(*engine.Pool)
	eventually(t, "two waiting containers", func() bool { return pool.Stats().Waiting == 2 })
	var slots []engine.Slot
	for _, project := range []string{"one", "two"} {
		spec := f.Spec()
		spec.ProjectID = project
		dir := filepath.Join(f.Dir, project)
		var mounts []engine.Mount
		for _, name := range []string{"inputs", "work", "artifacts"} {
			if err := os.MkdirAll(filepath.Join(dir, name), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(dir, name), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name, "of"), []byte(project+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			mounts = append(mounts, engine.Mount{Source: filepath.Join(dir, name), Target: "/workspace/" + name, ReadOnly: name == "inputs"})
		}
		spec.Prepare = func(context.Context, string) (engine.MountSet, error) { return enginetest.MountSet(mounts...), nil }
		slot, err := pool.Acquire(t.Context(), spec)
		if err != nil || !slot.Warm() || len(slot.Mounts()) != 3 {
			t.Fatal(err, slot)
		}
		slots = append(slots, slot)
	}
	for i, project := range []string{"one", "two"} {
		var out, errs bytes.Buffer
		script := `cat /workspace/*/of; echo made >/workspace/work/made; echo no >/workspace/inputs/no; echo no >/workspace/no; grep -c ' /workspace' /proc/self/mountinfo; grep -v " /workspace" /proc/self/mountinfo | grep -c ` + f.Dir
		exit, err := slots[i].Run(t.Context(), enginetest.Shell(script), &out, &errs)
		// /workspace twice: the container's mount, and the mount that holds the three directories.
		want := strings.Repeat(project+"\n", 3) + "5\n0\n"
		if err != nil || out.String() != want || strings.Count(errs.String(), "Read-only file system") != 2 {
			t.Errorf("%+v %v\n%s\n%s", exit, err, &out, &errs)
		}
		if _, err := os.Lstat(filepath.Join(f.Dir, project, "work/made")); err != nil {
			t.Error(err)
		}
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(info), f.Dir) {
		t.Errorf("the project is still mounted: %v\n%s", err, info)
	}
}

// TestGivenBackAndAnswered gives a container back after its init was asked for an answer, which
// comes while it waits.
func TestGivenBackAndAnswered(t *testing.T) {
	t.Parallel()
	f := enginetest.New(t, func(t *testing.T, cfg engine.Config) engine.Engine { return newAnyPool(t, cfg, 1) })
	pool := f.Engine.(*engine.Pool)
	eventually(t, "an answer of a container", pool.Answered)
	broken := f.Spec()
	broken.Prepare = func(context.Context, string) (engine.MountSet, error) {
		return engine.MountSet{}, fault.New(fault.ProjectDamaged, "its work is gone")
	}
	for range 50 {
		if err := enginetest.Refusal(t.Context(), pool, broken); !fault.Is(err, fault.ProjectDamaged) {
			t.Fatal(err)
		}
	}
	ran := f.Run(t.Context(), enginetest.Shell("echo ran"))
	if s := pool.Stats(); ran.Err != nil || ran.Stdout != "ran\n" || s.Hits != 1 || s.Dropped.Dead != 0 {
		t.Errorf("%+v, %+v", ran, s)
	}
}

// TestChangedLimitsHold reads the limits from within containers whose limits were raised and
// lowered.
func TestChangedLimitsHold(t *testing.T) {
	t.Parallel()
	f := enginetest.New(t, func(t *testing.T, cfg engine.Config) engine.Engine { return newAnyPool(t, cfg, 4) })
	pool := f.Engine.(*engine.Pool)
	const script = `cd /sys/fs/cgroup
if [ -e memory.max ]; then cat memory.max pids.max; echo $(($(cut -d' ' -f1 cpu.max) / 1000))
else cat memory/memory.limit_in_bytes memory/memory.memsw.limit_in_bytes pids/pids.max; echo $(($(cat cpu/cpu.cfs_quota_us) / 1000)); fi | uniq`
	for _, limits := range []policy.ContainerLimits{
		{MemoryMB: 300, CPUCores: 1.5, PIDs: 99, TmpMB: 32, ShmMB: 300}, {MemoryMB: 64, CPUCores: 0.25, PIDs: 20, TmpMB: 32, ShmMB: 64},
	} {
		spec := f.Spec()
		eventually(t, "four containers with the usual limits", func() bool {
			return slices.ContainsFunc(pool.Stats().Keys, func(k engine.PoolKey) bool { return k.Limits == spec.Limits && k.Waiting == 4 })
		})
		spec.Limits = enginetest.Limits(limits)
		slot, err := pool.Acquire(t.Context(), spec)
		if err != nil || !slot.Warm() || !slot.Attached() {
			t.Fatal(err, slot)
		}
		var out bytes.Buffer
		exit, err := slot.Run(t.Context(), enginetest.Shell(script), &out, io.Discard)
		want := fmt.Sprintf("%d\n%d\n%d\n", limits.MemoryMB<<20, limits.PIDs, int(limits.CPUCores*100))
		if err != nil || out.String() != want || !slot.Attached() {
			t.Errorf("%+v %v, attached %v: %q, want %q", exit, err, slot.Attached(), &out, want)
		}
	}
}
