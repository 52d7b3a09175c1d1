package engine_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"secbox/engine"
	"secbox/engine/enginetest"
)

// TestDetachedInEveryCase: the directories are detached before Run returns, and by Discard, however
// the container ends.
func TestDetachedInEveryCase(t *testing.T) {
	t.Parallel()
	p := newAnyPooled(t)
	name := func(slot engine.Slot) string { return "secbox-" + slot.ExecID() }
	killCLI := func(slot engine.Slot) {
		for _, pid := range enginetest.CLIProcesses(slot.ExecID()) {
			must(t, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
	ends := map[string]func(engine.Slot){
		"docker kill":  func(slot engine.Slot) { p.Docker("kill", name(slot)) },
		"docker rm -f": func(slot engine.Slot) { p.Docker("rm", "-f", name(slot)) },
		"kill the CLI": killCLI,
	}
	for how, end := range ends {
		t.Run(how+" in the job", func(t *testing.T) {
			defer p.in(t)()
			slot := p.take(p.of("one", nil))
			ended := p.begins(t.Context(), slot, "echo began; sleep 1000")
			if p.mounted() == "" {
				t.Error("not mounted while the job runs")
			}
			end(slot)
			_, err := ended()
			var lost *engine.RunError
			if !errors.As(err, &lost) || !lost.Started || !lost.Dead {
				t.Error(err)
			}
		})
		t.Run(how+" before the job", func(t *testing.T) {
			defer p.in(t)()
			slot := p.take(p.of("one", nil))
			end(slot)
			_, _, err := p.runs(t.Context(), slot, "true", io.Discard)
			var lost *engine.RunError
			if errors.As(err, &lost) && !lost.Dead { // its end may not have been noticed yet
				t.Error(err)
			}
		})
	}
	t.Run("discard", func(t *testing.T) {
		defer p.in(t)()
		first := p.take(p.of("one", nil))
		id, container := first.ExecID(), first.Args()
		must(t, os.WriteFile(p.dir("one")+"/work/secret", nil, 0o644))
		first.Discard()
		p.notMounted()
		second := p.take(p.of("two", nil))
		var others []engine.Slot
		for !slices.Equal(second.Args(), container) { // others wait, too
			others = append(others, second)
			second = p.take(p.of("two", nil))
		}
		for _, slot := range others {
			slot.Discard()
		}
		if second.ExecID() == id {
			t.Error("the exec's id is used twice")
		}
		var out bytes.Buffer
		// As in a container that was attached to once: its own mount, the mount that holds the
		// three directories, and the three.
		if _, errs, err := p.runs(t.Context(), second, "grep -c ' /workspace' /proc/self/mountinfo; ls -A /workspace/*", &out); err != nil ||
			!strings.HasPrefix(out.String(), "5\n") || strings.Contains(out.String(), "secret") {
			t.Errorf("%v %q %s", err, &out, errs)
		}
	})
	t.Run("discard while they are attached", func(t *testing.T) {
		defer p.in(t)()
		release, discarded := make(chan struct{}), make(chan struct{})
		slot := p.take(p.of("one", func() { <-release })) // does not wait for them
		go func() { slot.Discard(); close(discarded) }()
		close(release)
		<-discarded
		p.notMounted()
	})
	t.Run("canceled before the job", func(t *testing.T) {
		defer p.in(t)()
		slot := p.take(p.of("one", nil))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := p.runs(ctx, slot, "true", io.Discard); err == nil {
			t.Error("it ran")
		}
	})
	t.Run("canceled in the job", func(t *testing.T) {
		defer p.in(t)()
		ctx, cancel := context.WithCancel(t.Context())
		ended := p.begins(ctx, p.take(p.of("one", nil)), "echo began; sleep 1000")
		cancel()
		if exit, err := ended(); err != nil || !exit.Killed {
			t.Errorf("%+v %v", exit, err)
		}
	})
}

// TestContainerThatDoesNotDie: its directories are detached although it lives, and the log says so.
func TestContainerThatDoesNotDie(t *testing.T) {
	t.Parallel()
	p := newAnyPooled(t)
	slot := p.take(p.of("one", nil))
	name := "secbox-" + slot.ExecID()
	point := p.Docker("inspect", "--format", "{{range .Mounts}}{{.Source}}{{end}}", name)
	ctx, cancel := context.WithCancel(t.Context())
	ended := p.begins(ctx, slot, "exec 9>open; echo began; sleep 1000")
	p.Docker("pause", name)
	release := p.set("keep")
	cancel()
	_, err := ended()
	var lost *engine.RunError
	if !errors.As(err, &lost) || !lost.Started || lost.Dead {
		t.Errorf("the death of a container that lives: %v", err)
	}
	if state := p.Docker("inspect", "--format", "{{.State.Status}}", name); state != "paused" {
		t.Errorf("the container is %s", state)
	}
	if _, err := os.Lstat(point); point == "" || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the point %q is left: %v", point, err)
	}
	if !p.log.has("whose death is not confirmed") {
		t.Error("the log does not say it")
	}
	release()
	_ = p.CLI.Remove(t.Context(), name) // the pool tries again, too
	eventually(t, "the end of the container", func() bool { return !slices.Contains(p.containers(), name) })
}
