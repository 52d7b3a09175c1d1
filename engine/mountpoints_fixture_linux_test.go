package engine_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/engine"
	"secbox/engine/dockercli"
	"secbox/engine/enginetest"
	"secbox/pathadapter"
	"secbox/workspace"
)

// anyPooled is a pool for any project, and projects as the workspace makes them.
type anyPooled struct {
	*pooled
	ws   *workspace.Workspace
	root string // of ws
	base string // has the pool's base
	gate string // has the switches of testdata/docker.sh
	log  *safeBuffer
}

// safeBuffer is a buffer that loggers write to.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) has(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Contains(b.b.String(), text)
}

func newAnyPooled(t *testing.T) *anyPooled {
	t.Helper()
	p := &anyPooled{
		pooled: &pooled{t: t}, root: filepath.Join(t.TempDir(), "ws"), base: filepath.Join(t.TempDir(), "private"), gate: t.TempDir(),
		log: &safeBuffer{},
	}
	script, err := filepath.Abs("testdata/docker.sh")
	must(t, err)
	must(t, os.Symlink(script, filepath.Join(p.gate, "docker")))
	cli, err := dockercli.Find(filepath.Join(p.gate, "docker"), os.Environ())
	must(t, err)
	adapter, err := pathadapter.New(pathadapter.Config{Root: p.root})
	must(t, err)
	p.ws, err = workspace.Open(workspace.Options{Adapter: adapter, UID: 1000, GID: 1000})
	must(t, err)
	t.Cleanup(func() { must(t, p.ws.Close()) })
	p.Fixture = enginetest.New(t, func(t *testing.T, cfg engine.Config) engine.Engine {
		cfg.Driver, cfg.AnswerTimeout = engine.NewDocker(cli, engine.Options{ReadOnlyRootfs: true}), time.Minute // none is replaced on a slow machine
		cfg.Log = slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), p.log), nil))
		p.pool = newAnyPoolIn(t, cfg, 1, p.base)
		return p.pool
	})
	return p
}

// in lets the methods report to a subtest until back.
func (p *anyPooled) in(t *testing.T) (back func()) {
	before := p.t
	p.t = t
	return func() { p.t = before }
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// set sets a switch of testdata/docker.sh until release, or the end of the test.
func (p *anyPooled) set(name string) (release func()) {
	p.t.Helper()
	path := filepath.Join(p.gate, name)
	must(p.t, os.WriteFile(path, nil, 0o600))
	release = func() { _ = os.Remove(path) }
	p.t.Cleanup(release)
	return release
}

// dir is the directory of a project.
func (p *anyPooled) dir(project string) string { return filepath.Join(p.root, "projects", project) }

// of is the spec of an exec of a project. between, which may be nil, is called once, between the
// check of the directories and their use.
func (p *anyPooled) of(project string, between func()) engine.Spec {
	p.t.Helper()
	made, err := p.ws.Project(project)
	must(p.t, err)
	spec := p.Spec()
	spec.ProjectID = project
	spec.Prepare = func(_ context.Context, execID string) (engine.MountSet, error) {
		place, err := made.PrepareMounts(execID, workspace.FullAccess)
		if err != nil {
			return engine.MountSet{}, err
		}
		mounts := make([]engine.Mount, len(place.Mounts))
		for i, m := range place.Mounts {
			mounts[i] = engine.Mount(m)
		}
		open := func() ([]*os.File, error) {
			if between != nil {
				between()
				between = nil
			}
			return place.Open()
		}
		return engine.MountSet{Mounts: mounts, Intact: place.Intact, Open: open, Drop: func() { _ = place.Drop() }}, nil
	}
	return spec
}

// take acquires a container that waits.
func (p *anyPooled) take(spec engine.Spec) engine.Slot {
	p.t.Helper()
	for {
		eventually(p.t, "a waiting container", func() bool { return p.pool.Stats().Waiting > 0 })
		slot, err := p.pool.Acquire(p.t.Context(), spec)
		must(p.t, err)
		if slot.Warm() {
			return slot
		}
		slot.Discard()
	}
}

// runs runs a script in a slot; no project must be mounted when it returns.
func (p *anyPooled) runs(ctx context.Context, slot engine.Slot, script string, stdout io.Writer) (engine.Exit, string, error) {
	p.t.Helper()
	var errs bytes.Buffer
	exit, err := slot.Run(ctx, enginetest.Shell(script), stdout, &errs)
	p.notMounted()
	return exit, errs.String(), err
}

// begins is runs for a script that prints "began"; it returns then.
func (p *anyPooled) begins(ctx context.Context, slot engine.Slot, script string) (ended func() (engine.Exit, error)) {
	p.t.Helper()
	type result struct {
		exit engine.Exit
		err  error
	}
	began, done := enginetest.NewSignal("began"), make(chan result, 1)
	go func() {
		exit, _, err := p.runs(ctx, slot, script, began)
		done <- result{exit, err}
	}()
	select {
	case <-began.Seen:
	case r := <-done:
		p.t.Fatalf("ended early: %+v %v", r.exit, r.err)
	}
	return func() (engine.Exit, error) {
		r := <-done
		return r.exit, r.err
	}
}

// notMounted checks that no project is mounted on this machine.
func (p *anyPooled) notMounted() {
	p.t.Helper()
	if at := p.mounted(); at != "" {
		p.t.Errorf("a project is mounted: %s", at)
	}
}

// mounted is the part of mountinfo with the mounts below the pool's base.
func (p *anyPooled) mounted() (lines string) {
	p.t.Helper()
	info, err := os.ReadFile("/proc/self/mountinfo")
	must(p.t, err)
	for line := range strings.Lines(string(info)) {
		if at, below := strings.CutPrefix(strings.Fields(line)[4], p.base+"/"); below && strings.Contains(at, "/") {
			lines += line
		}
	}
	return lines
}
