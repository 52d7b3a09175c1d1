package engine_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"secbox/engine"
	"secbox/engine/attach"
	"secbox/engine/enginetest"
)

// TestEngineThatDoesNotSeeMounts: containers wait for their project, Stats has the reason, and
// execs run.
func TestEngineThatDoesNotSeeMounts(t *testing.T) {
	t.Parallel()
	f := enginetest.New(t, func(t *testing.T, cfg engine.Config) engine.Engine {
		parent, node := filepath.Join(t.TempDir(), "private"), uuid.NewString()
		base, err := attach.Open(parent, node)
		if err != nil {
			t.Fatal(err)
		}
		// An engine in another mount namespace sees the base as little.
		if err := unix.Mount("", filepath.Join(parent, node), "", unix.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		image := enginetest.ImageOf(t)
		return newPool(t, cfg, func(p *engine.PoolConfig) {
			p.Base, p.Ready = base, 1
			p.Default = func(context.Context) (engine.Spec, error) { return enginetest.SpecOf(image), nil }
		})
	})
	pool := f.Engine.(*engine.Pool)
	<-pool.Decided()
	if s := pool.Stats(); s.Shared || s.Ready != 0 || !strings.Contains(s.NotShared, "the engine does not see the mounts of this machine") {
		t.Errorf("%+v", s)
	}
	if ran := f.RunSpec(t.Context(), f.Spec(), engine.Job{
		Argv: []string{"echo", "hi"}, Cwd: "/workspace/work", Timeout: time.Minute,
		MaxStdout: 10,
	}); ran.Err != nil || ran.Stdout != "hi\n" {
		t.Errorf("%+v", ran)
	}
}

// TestReplacementIsNotAttached: what replaces a frozen container was started with the project's
// directories, and says so.
func TestReplacementIsNotAttached(t *testing.T) {
	t.Parallel()
	f := enginetest.New(t, func(t *testing.T, cfg engine.Config) engine.Engine { return newAnyPool(t, cfg, 1) })
	pool := f.Engine.(*engine.Pool)
	var names []string
	eventually(t, "one container, which waits", func() bool { // the trial's container is being removed
		var err error
		if names, err = f.CLI.Containers(t.Context(), engine.LabelNode+"="+f.Node); err != nil {
			t.Fatal(err)
		}
		return len(names) == 1 && pool.Stats().Waiting == 1 && pool.Answered()
	})
	f.Docker("pause", names[0])
	slot, err := pool.Acquire(t.Context(), f.Spec())
	if err != nil || !slot.Attached() || !strings.Contains(strings.Join(slot.Args(), " "), "rslave") {
		t.Fatal(err, slot)
	}
	var stdout strings.Builder
	_, err = slot.Run(t.Context(), engine.Job{Argv: []string{"echo", "hi"}, Cwd: "/workspace/work", Timeout: time.Minute, MaxStdout: 10}, &stdout, io.Discard)
	if err != nil || stdout.String() != "hi\n" || slot.Attached() || strings.Contains(strings.Join(slot.Args(), " "), "rslave") {
		t.Errorf("%v %q, attached %v, %q", err, stdout.String(), slot.Attached(), slot.Args())
	}
	if info, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(info), f.Dir) {
		t.Errorf("attached to the frozen container: %v\n%s", err, info)
	}
}

// TestReasonIsGiven: a pool without a base, and a pool that is off, give their reason at once.
func TestReasonIsGiven(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		max  int
		want string
	}{"no base": {1, "pool.share is false"}, "off": {0, engine.PoolOff}} {
		p := engine.NewPool(engine.NewCold(engine.Config{}), engine.PoolConfig{Max: c.max, MaxMemoryMB: 512, Now: time.Now, NotShared: "pool.share is false"})
		<-p.Decided()
		if s := p.Stats(); s.Shared || s.NotShared != c.want {
			t.Errorf("%s: %+v", name, s)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}
