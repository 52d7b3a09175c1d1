package engine_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"secbox/engine"
)

// TestProjectChangesBeforeAttach: another directory takes the place of a checked one. Nothing
// foreign is mounted.
func TestProjectChangesBeforeAttach(t *testing.T) {
	t.Parallel()
	p := newAnyPooled(t)
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret\n"), 0o644))
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
	}{
		"linked": {change: func(t *testing.T, dir string) {
			must(t, os.Remove(dir+"/work"))
			must(t, os.Symlink(outside, dir+"/work"))
		}},
		"project-linked": {change: func(t *testing.T, dir string) {
			must(t, os.Rename(dir, dir+"-moved"))
			must(t, os.Symlink(outside, dir))
		}},
		"removed": {change: func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)) }},
		"made-again": {change: func(t *testing.T, dir string) {
			must(t, os.RemoveAll(dir+"/work"))
			must(t, os.Mkdir(dir+"/work", 0o755))
			must(t, os.WriteFile(dir+"/work/again", nil, 0o644))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			defer p.in(t)()
			before := p.pool.Stats().Unattached
			changed := false
			slot := p.take(p.of(name, func() { c.change(t, p.dir(name)); changed = true }))
			_, errs, err := p.runs(t.Context(), slot, "touch /workspace/work/made", io.Discard)
			if s := p.pool.Stats(); !changed || s.Unattached != before+1 || slot.Warm() || slot.Attached() {
				t.Errorf("changed %v, warm %v, attached %v; %+v", changed, slot.Warm(), slot.Attached(), s)
			}
			var lost *engine.RunError
			if !errors.As(err, &lost) || lost.Started || !lost.Dead {
				t.Errorf("it may have run: %v %s", err, errs)
			}
		})
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("written outside: %v %v", entries, err)
	}
}

// TestTakenBeforeItStarted: directories are attached only when the container runs.
func TestTakenBeforeItStarted(t *testing.T) {
	t.Parallel()
	p := newAnyPooled(t)
	// starting takes a container whose start is delayed until release; those that are ready get a
	// job.
	starting := func(spec engine.Spec) (slot engine.Slot, release func()) {
		release = p.set("hold")
		other := p.of("other", nil)
		for {
			eventually(t, "a container", func() bool { s := p.pool.Stats(); return s.Waiting+s.Starting > 0 })
			wanted := spec
			if p.pool.Stats().Waiting > 0 {
				wanted = other
			}
			slot, err := p.pool.Acquire(t.Context(), wanted)
			must(t, err)
			slot.Mounts() // decided: attached now, or in Run
			switch {
			case !slot.Warm():
				slot.Discard()
			case wanted.ProjectID == spec.ProjectID && !engine.Greeted(slot):
				p.notMounted()
				return slot, release
			default:
				release()
				if _, errs, err := p.runs(t.Context(), slot, "true", io.Discard); err != nil {
					t.Fatalf("%v %s", err, errs)
				}
				release = p.set("hold")
			}
		}
	}
	var out bytes.Buffer
	slot, release := starting(p.of("one", nil))
	release()
	if _, errs, err := p.runs(t.Context(), slot, "echo made >made; cat made; touch /workspace/inputs/no || echo read-only", &out); err != nil ||
		out.String() != "made\nread-only\n" {
		t.Errorf("%v %q %s", err, &out, errs)
	}

	outside := t.TempDir()
	slot, release = starting(p.of("swapped", nil))
	must(t, os.RemoveAll(p.dir("swapped")+"/work"))
	must(t, os.Symlink(outside, p.dir("swapped")+"/work"))
	release()
	_, _, err := p.runs(t.Context(), slot, "touch made", io.Discard)
	var lost *engine.RunError
	if !errors.As(err, &lost) || lost.Started || !lost.Dead {
		t.Errorf("a directory was swapped: %v", err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("written outside: %v %v", entries, err)
	}

	// Mount calls can fail when the directories are the right ones: the kernel has a limit of
	// mounts.
	spec := p.of("limit", nil)
	prepare := spec.Prepare
	spec.Prepare = func(ctx context.Context, execID string) (engine.MountSet, error) {
		set, err := prepare(ctx, execID)
		set.Open = func() ([]*os.File, error) {
			var open []*os.File
			for range set.Mounts {
				in, out, err := os.Pipe() // cannot be mounted
				must(t, err)
				out.Close()
				open = append(open, in)
			}
			return open, nil
		}
		return set, err
	}
	slot, release = starting(spec)
	release()
	out.Reset()
	if _, errs, err := p.runs(t.Context(), slot, "touch made; ls", &out); err != nil || out.String() != "made\n" {
		t.Errorf("the limit of mounts: %v %q %s", err, &out, errs)
	}

	slot, release = starting(p.of("canceled", nil))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := p.runs(ctx, slot, "true", io.Discard); !errors.As(err, &lost) || lost.Started {
		t.Errorf("canceled: %v", err)
	}
	release()
}
