package engine_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"secbox/dockercli"
	"secbox/engine"
	"secbox/engine/enginetest"
	"secbox/fault"
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
	p := &anyPooled{pooled: &pooled{t: t}, root: filepath.Join(t.TempDir(), "ws"), base: filepath.Join(t.TempDir(), "private"), gate: t.TempDir(), log: &safeBuffer{}}
	script, err := filepath.Abs("testdata/docker.sh")
	must(t, err)
	must(t, os.Symlink(script, filepath.Join(p.gate, "docker")))
	cli, err := dockercli.Find(filepath.Join(p.gate, "docker"), os.Environ())
	must(t, err)
	adapter, err := pathadapter.New(pathadapter.Config{Mode: pathadapter.Linux, Root: p.root})
	must(t, err)
	p.ws, err = workspace.Open(workspace.Options{Adapter: adapter, UID: 1000, GID: 1000})
	must(t, err)
	t.Cleanup(func() { must(t, p.ws.Close()) })
	p.Fixture = enginetest.New(t, func(t *testing.T, cfg engine.Config) engine.Engine {
		cfg.CLI, cfg.AnswerTimeout = cli, time.Minute // none is replaced on a slow machine
		cfg.Log = slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), p.log), nil))
		p.pool = newAnyPoolIn(t, cfg, 1, p.base)
		return p.pool
	})
	return p
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

// of is the spec of an exec of a project. between, which may be nil, is called once, between the check of the directories and their use.
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

// TestHostileJobs: jobs attack their mounts.
func TestHostileJobs(t *testing.T) {
	t.Parallel()
	p := newAnyPooled(t)
	spec := p.of("one", nil)
	must(t, os.WriteFile(filepath.Join(p.dir("one"), "inputs/given"), []byte("given\n"), 0o644))

	t.Run("directories", func(t *testing.T) {
		slot := p.take(spec)
		var out bytes.Buffer
		exit, errs, err := p.runs(t.Context(), slot, `cd /workspace
			for d in work inputs artifacts; do
				mv $d $d-moved && echo moved $d
				mv $d /tmp/ && echo moved $d out
				rm -rf $d; rmdir $d && echo removed $d
				ln -sfnT /etc $d && echo linked $d
				umount $d && echo unmounted $d
				umount -l $d && echo unmounted $d
				mount --bind /tmp $d && echo mounted $d
				mount -o remount,rw $d && echo remounted $d
			done
			umount -l /workspace && echo unmounted
			unshare -m true && echo unshared; unshare -rm true && echo unshared
			python3 -c 'import os
for a in ("work", "inputs"), ("work", "/tmp/work"):
    try: os.rename(*a); print("renamed")
    except OSError: pass'
			mkdir new && echo made
			echo kept >work/kept; echo kept >artifacts/kept; chmod 0 work
			exit 7`, &out)
		if err != nil || exit.Code != 7 || out.String() != "" {
			t.Errorf("%+v %v\n%s\n%s", exit, err, &out, errs)
		}
		for _, name := range []string{"inputs/given", "work/kept", "artifacts/" + slot.ExecID() + "/kept"} {
			if _, err := os.Lstat(filepath.Join(p.dir("one"), name)); err != nil {
				t.Error(err)
			}
		}
		must(t, os.Chmod(filepath.Join(p.dir("one"), "work"), 0o755))
	})

	t.Run("processes that stay", func(t *testing.T) {
		slot := p.take(spec)
		var out bytes.Buffer
		_, errs, err := p.runs(t.Context(), slot, `cd /workspace
			seq 10000 >work/mapped
			for d in work artifacts inputs; do
				(cd $d; exec 9<.; trap '' TERM; exec -a $HOSTNAME-stays setsid sleep 1000 </dev/null >/dev/null 2>&1 &)
			done
			exec 8>work/open
			setsid python3 -c 'import mmap, sys, time
with open("/workspace/work/mapped", "r+b") as f:
    m = mmap.mmap(f.fileno(), 0)
while True: m[0] = m[0] ^ 1' $HOSTNAME-stays </dev/null >/dev/null 2>&1 &
			until [ "$(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -c -- -stays)" -ge 4 ]; do sleep 0.01; done
			echo $HOSTNAME`, &out)
		host := strings.TrimSpace(out.String())
		if err != nil || len(host) != 12 {
			t.Fatalf("%v %q %s", err, &out, errs)
		}
		commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
		must(t, err)
		for _, path := range commands {
			if line, _ := os.ReadFile(path); bytes.Contains(line, []byte(host+"-stays")) {
				t.Errorf("alive: %q", line)
			}
		}
		slot = p.take(p.of("two", nil))
		out.Reset()
		if _, errs, err = p.runs(t.Context(), slot, `ls -A /workspace/*; grep -c /projects/one /proc/self/mountinfo; find / -name given -o -name kept 2>/dev/null`, &out); err != nil {
			t.Fatal(err)
		}
		if want := "/workspace/artifacts:\n\n/workspace/inputs:\n\n/workspace/work:\n0\n"; out.String() != want {
			t.Errorf("the next project sees %q %s", &out, errs)
		}
	})

	t.Run("a full disk", func(t *testing.T) {
		work := filepath.Join(p.dir("full"), "work")
		spec := p.of("full", nil)
		must(t, syscall.Mount("full", work, "tmpfs", 0, "size=256k,uid=1000,mode=755"))
		defer func() { must(t, syscall.Unmount(work, 0)) }() // not busy any more
		var out bytes.Buffer
		if _, errs, err := p.runs(t.Context(), p.take(spec), `head -c 1M /dev/zero >full; mkdir -p made; for n in $(seq 100); do echo x >made/$n; done; ls full`, &out); err != nil || out.String() != "full\n" {
			t.Errorf("%v %q %s", err, &out, errs)
		}
		out.Reset()
		if _, errs, err := p.runs(t.Context(), p.take(spec), `rm -r full made; echo room >room; cat room`, &out); err != nil || out.String() != "room\n" {
			t.Errorf("the next exec: %v %q %s", err, &out, errs)
		}
	})

	t.Run("root in the container", func(t *testing.T) {
		spec := p.of("one", nil)
		spec.User = "0:0"
		slot, err := p.pool.Acquire(t.Context(), spec) // none waits for this user yet
		must(t, err)
		slot.Discard()
		eventually(t, "a container of root", func() bool {
			slot, err = p.pool.Acquire(t.Context(), spec)
			must(t, err)
			if !slot.Warm() {
				slot.Discard()
			}
			return slot.Warm()
		})
		var out bytes.Buffer
		if _, errs, err := p.runs(t.Context(), slot, `cd /workspace; id -u; touch inputs/new; chmod 777 inputs; mount -o remount,rw inputs; mknod work/null c 1 3; rm -f inputs/given; ls inputs work/null`, &out); err != nil || !strings.HasPrefix(out.String(), "0\n") || strings.Contains(out.String(), "new") || strings.Contains(out.String(), "null") || !strings.Contains(out.String(), "given") {
			t.Errorf("%v %q %s", err, &out, errs)
		}
	})

	t.Run("one project twice", func(t *testing.T) {
		first, second := p.take(spec), p.take(spec)
		began, done := enginetest.NewSignal("began"), make(chan error, 1)
		go func() {
			_, err := first.Run(t.Context(), enginetest.Shell(`echo of the first >of; echo first >/workspace/artifacts/a; echo began
				until [ -e go ]; do sleep 0.01; done; cat of; ls /workspace/artifacts; touch /workspace/artifacts/late`), began, io.Discard)
			done <- err
		}()
		select {
		case <-began.Seen:
		case err := <-done:
			t.Fatalf("ended early: %v", err)
		}
		var out bytes.Buffer
		if _, err := second.Run(t.Context(), enginetest.Shell(`cat of; echo of both >of; ls -A /workspace/artifacts; touch /workspace/artifacts/b`), &out, io.Discard); err != nil || out.String() != "of the first\n" {
			t.Errorf("the second: %v %q", err, &out)
		}
		if p.mounted() == "" {
			t.Error("the end of the second detached the first")
		}
		must(t, os.WriteFile(filepath.Join(p.dir("one"), "work/go"), nil, 0o644))
		if err := <-done; err != nil || began.String() != "began\nof both\na\n" {
			t.Errorf("the first: %v %q", err, began.String())
		}
		p.notMounted()
		for slot, names := range map[engine.Slot]string{first: "a late", second: "b"} {
			entries, err := os.ReadDir(filepath.Join(p.dir("one"), "artifacts", slot.ExecID()))
			var found []string
			for _, entry := range entries {
				found = append(found, entry.Name())
			}
			if err != nil || strings.Join(found, " ") != names {
				t.Errorf("artifacts %v, want %s: %v", found, names, err)
			}
		}
	})
}

// TestProjectChangesBeforeAttach: another directory takes the place of a checked one. Nothing foreign is mounted.
func TestProjectChangesBeforeAttach(t *testing.T) {
	t.Parallel()
	p := newAnyPooled(t)
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret\n"), 0o644))
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		runs   string // what `ls -A /workspace/work` prints in the exec; empty: the exec fails like a cold one
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
		"made-again": {runs: "again\n", change: func(t *testing.T, dir string) {
			must(t, os.RemoveAll(dir+"/work"))
			must(t, os.Mkdir(dir+"/work", 0o755))
			must(t, os.WriteFile(dir+"/work/again", nil, 0o644))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			before := p.pool.Stats().Unattached
			eventually(t, "a waiting container", func() bool { return p.pool.Stats().Waiting > 0 })
			changed := false
			slot, err := p.pool.Acquire(t.Context(), p.of(name, func() { c.change(t, p.dir(name)); changed = true }))
			p.notMounted()
			if s := p.pool.Stats(); !changed || s.Unattached != before+1 || s.Waiting == 0 {
				t.Errorf("changed %v; %+v", changed, s)
			}
			if c.runs == "" {
				if err == nil {
					slot.Discard()
					t.Fatal("the exec got a slot")
				}
				if fault.CodeOf(err) == "" {
					t.Error(err)
				}
				return
			}
			must(t, err)
			var out bytes.Buffer
			if _, errs, err := p.runs(t.Context(), slot, "ls -A", &out); err != nil || slot.Warm() || out.String() != c.runs {
				t.Errorf("warm %v: %v %q %s", slot.Warm(), err, &out, errs)
			}
		})
	}
	if !p.takes(p.of("other", nil)) {
		t.Error("the container that was not used does not wait any more")
	}
}

// TestTakenBeforeItStarted: directories are attached only when the container runs.
func TestTakenBeforeItStarted(t *testing.T) {
	t.Parallel()
	p := newAnyPooled(t)
	starting := func(spec engine.Spec) (slot engine.Slot, release func()) {
		release = p.set("hold")
		other := p.of("other", nil)
		for {
			eventually(t, "a container", func() bool { s := p.pool.Stats(); return s.Waiting+s.Starting > 0 })
			wanted := spec
			if p.pool.Stats().Waiting > 0 { // its start was not delayed
				wanted = other
			}
			slot, err := p.pool.Acquire(t.Context(), wanted)
			must(t, err)
			if wanted.ProjectID == spec.ProjectID && slot.Warm() && !engine.Greeted(slot) {
				p.notMounted()
				return slot, release
			}
			slot.Discard()
		}
	}
	var out bytes.Buffer
	slot, release := starting(p.of("one", nil))
	release()
	if _, errs, err := p.runs(t.Context(), slot, "echo made >made; cat made; touch /workspace/inputs/no || echo read-only", &out); err != nil || out.String() != "made\nread-only\n" {
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

	// Mount calls can fail when the directories are the right ones: the kernel has a limit of mounts.
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

// TestDetachedInEveryCase: the directories are detached before Run returns, and by Discard, however the container ends.
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
		p.take(p.of("one", nil)).Discard()
		p.notMounted()
	})
	t.Run("canceled before the job", func(t *testing.T) {
		slot := p.take(p.of("one", nil))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := p.runs(ctx, slot, "true", io.Discard); err == nil {
			t.Error("it ran")
		}
	})
	t.Run("canceled in the job", func(t *testing.T) {
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
