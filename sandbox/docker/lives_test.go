//go:build linux

package docker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/diskwatch"
	"secbox/engine"
	"secbox/engine/enginetest"
	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/docker"
)

// await polls for what another goroutine, or a container, is about to do.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// background runs a line that says when it is up; it returns what it ends with.
func (s *space) background(ctx context.Context, command string) (up <-chan struct{}, ended <-chan outcome) {
	over := make(chan outcome, 1)
	seen := enginetest.NewSignal("up")
	spec := line("echo up; " + command)
	spec.User = user
	go func() {
		r, err := s.ExecTo(ctx, spec, seen, nil)
		over <- outcome{r, err}
	}()
	return seen.Seen, over
}

type outcome struct {
	*sandbox.ExecResult
	err error
}

func TestFileOperationsStartNoContainer(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *docker.Config) { c.Engine = nil }) // who asks it panics
	ctx := t.Context()
	if err := s.MkdirAll(ctx, "/workspace/a/b", 0o755, user); err != nil {
		t.Fatal(err)
	}
	if err := s.WriteFile(ctx, "/workspace/a/b/f", []byte("x"), 0o644, user); err != nil {
		t.Fatal(err)
	}
	if got, err := s.ReadFile(ctx, "/workspace/a/b/f", user); err != nil || string(got) != "x" {
		t.Fatal(string(got), err)
	}
	if _, err := s.ReadDir(ctx, "/workspace/a", user); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveAll(ctx, "/workspace/a", user); err != nil {
		t.Fatal(err)
	}
}

// TestTwoUsers: neither sees the other's files, home or processes; concurrent first calls of one share a container.
func TestTwoUsers(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	other := sandbox.User{AgentID: "agent", ID: "other"}
	var first sync.WaitGroup
	for range 4 {
		first.Go(func() { s.run(line("true")) })
	}
	first.Wait()
	if got := s.containers(); len(got) != 1 {
		t.Errorf("four first calls started %q", got)
	}
	s.run(line("echo secret > /workspace/file; echo secret > ~/file; (setsid sleep 54321 &) ; cat"))
	spec := line("cat /workspace/file ~/file; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep 'sleep 5432[1]'; ls -A ~ /workspace")
	spec.User = other
	if r := s.run(spec); strings.Contains(r.Stdout, "secret") || strings.Contains(r.Stdout, "54321") {
		t.Errorf("%+v", *r)
	}
	s.prints("cat ~/file", "secret\n")
}

// TestFlags compares a sandbox's container with that of an exec: all that docker knows of it is equal but for its mounts.
func TestFlags(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	s.run(line("true"))
	f := enginetest.New(t, func(_ *testing.T, cfg engine.Config) engine.Engine { return engine.NewCold(cfg) })
	spec := f.Spec()
	spec.Limits = s.container.Load().Limits
	slot, err := f.Engine.Acquire(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer slot.Discard()
	up := enginetest.NewSignal("up")
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	slot, err = f.Engine.Acquire(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(over)
		_, _ = slot.Run(ctx, enginetest.Shell("echo up; sleep 1000"), up, up)
	}()
	<-up.Seen
	inspect := func(name string) string {
		all := enginetest.Docker(t, "inspect", "--format", "{{json .HostConfig}} {{.Config.User}} {{.Config.StopSignal}} {{.Config.Entrypoint}}", name)
		all = regexp.MustCompile(`"Mounts":\[.*?\}\],`).ReplaceAllString(all, "")
		return regexp.MustCompile(`"PidsLimit":\d+`).ReplaceAllString(all, "") // those of init and the workers come on top
	}
	ours, theirs := inspect(s.containers()[0]), inspect("secbox-"+slot.ExecID())
	cancel()
	<-over
	if ours != theirs || !strings.Contains(ours, `"NetworkMode":"none"`) || !strings.Contains(ours, "no-new-privileges") {
		t.Errorf("\n%s\n%s", ours, theirs)
	}
}

func TestAHomePersists(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *docker.Config) { c.IdleFor = 50 * time.Millisecond })
	s.run(line("mkdir -p ~/.local/bin; printf '#!/bin/sh\\necho mine\\n' > ~/.local/bin/tool; cp ~/.local/bin/tool ~/.local/bin/ls; chmod +x ~/.local/bin/*"))
	await(t, "the container to be stopped when idle", func() bool { return len(s.containers()) == 0 })
	s.prints("tool; cd /opt && ls", "mine\nsecbox\ntools\n") // what is planted takes the place of nothing
	if r := s.run(sandbox.ExecSpec{Command: "tool", Dir: docker.HomePath}); r.Stdout != "mine\n" {
		t.Errorf("%+v", *r)
	}
	nowhere := sandbox.ExecSpec{Command: "true", Dir: docker.HomePath + "/none", User: user}
	if _, err := s.Exec(t.Context(), nowhere); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestAContainerThatIsKilledIsReplaced(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	up, ended := s.background(t.Context(), "sleep 1000")
	<-up
	enginetest.Docker(t, "kill", s.containers()[0])
	if o := <-ended; !fault.Is(o.err, fault.OutcomeUnknown) {
		t.Errorf("%+v", o)
	}
	s.prints("echo again", "again\n")
}

// TestOneThatDoesNotAnswerIsReplaced: a container that stands still neither keeps its commands beyond their context nor the next ones.
func TestOneThatDoesNotAnswerIsReplaced(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	up, ended := s.background(ctx, "sleep 1000")
	<-up
	enginetest.Docker(t, "pause", s.containers()[0])
	cancel()
	if o := <-ended; !errors.Is(o.err, context.Canceled) && !fault.Is(o.err, fault.OutcomeUnknown) {
		t.Errorf("%+v", o)
	}
	s.prints("echo again", "again\n")
}

func TestAWorkspaceThatWasMadeAgainIsMountedAgain(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	s.prints("echo old > file; cat file", "old\n")
	if err := os.RemoveAll(s.dir(user)); err != nil {
		t.Fatal(err)
	}
	if err := s.WriteFile(t.Context(), "/workspace/file", []byte("new\n"), 0o644, user); err != nil {
		t.Fatal(err)
	}
	s.prints("cat file", "new\n")
}

func TestLimitsThatChangeReplaceIt(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	s.run(line("true"))
	old := s.containers()
	changed := *s.container.Load()
	changed.Limits.MemoryMB = 200
	s.container.Store(&changed)
	s.run(line("true"))
	if now := s.containers(); len(now) != 1 || slices.Equal(now, old) {
		t.Errorf("%q, then %q", old, now)
	}
}

func TestWhatThePolicyLeavesOfAWorkspace(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	s.prints("echo before > /workspace/f && cat /workspace/f", "before\n")
	changed := *s.container.Load()
	changed.ReadOnly = true
	s.container.Store(&changed)
	if r := s.run(line("echo after > /workspace/f")); r.ExitCode == 0 || !strings.Contains(r.Stderr, "Read-only file system") {
		t.Errorf("%+v", *r)
	}
	s.prints("cat /workspace/f", "before\n")
	if err := s.ExportAndImport(t.Context(), user); err != nil {
		t.Error(err)
	}
	refusing := changed
	refusing.Refused = fault.New(fault.PolicyDenied, "no")
	s.container.Store(&refusing)
	if _, err := s.Exec(t.Context(), sandbox.ExecSpec{Command: "true", User: user}); !fault.Is(err, fault.PolicyDenied) {
		t.Error(err)
	}
	if data, err := s.ReadFile(t.Context(), "/workspace/f", user); string(data) != "before\n" || err != nil {
		t.Error(string(data), err)
	}
}

func TestNoMoreContainersThanAllowed(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *docker.Config) { c.Max, c.MaxPerToken = 2, 1 })
	users := []sandbox.User{{AgentID: "a", ID: "1"}, {AgentID: "a", ID: "2"}, {AgentID: "a", ID: "3"}}
	for _, u := range users {
		spec := line("true")
		spec.User = u
		s.run(spec)
		if n := len(s.containers()); n > 2 {
			t.Errorf("%d containers", n)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	for _, u := range users[:2] {
		up := enginetest.NewSignal("up")
		spec := line("echo up; sleep 1000")
		spec.User = u
		busy.Go(func() { _, _ = s.ExecTo(ctx, spec, up, nil) })
		<-up.Seen
	}
	spec := line("true")
	spec.User = users[2]
	if _, err := s.Exec(t.Context(), spec); !fault.Is(err, fault.SandboxBusy) {
		t.Error(err)
	}
	cancel()
	busy.Wait()

	// One token has its share, and another one a container beside it.
	of := func(ctx context.Context, token string) context.Context {
		return sandbox.WithRequest(ctx, sandbox.Request{RequestedBy: token})
	}
	if err := s.CloseForUser(users[0]); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	up := enginetest.NewSignal("up")
	greedy := line("echo up; sleep 1000")
	greedy.User = users[0]
	busy.Go(func() { _, _ = s.ExecTo(of(ctx, "greedy"), greedy, up, nil) })
	<-up.Seen
	if _, err := s.Exec(of(t.Context(), "greedy"), spec); !fault.Is(err, fault.SandboxBusy) || !strings.Contains(err.Error(), "sandboxes.max_containers_per_token") {
		t.Errorf("a second container of one token: %v", err)
	}
	if _, err := s.Exec(of(t.Context(), "modest"), spec); err != nil {
		t.Errorf("the first of another: %v", err)
	}
	cancel()
	busy.Wait()
}

func TestTheDiskIsWatched(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *docker.Config) {
		c.Disk = diskwatch.New(c.Workspace, diskwatch.Limits{GrowthMaxBytes: 8 << 20}, c.Log)
	})
	for _, where := range []string{"/workspace", "~"} {
		r := s.run(line("sleep 1; cd " + where + " && while :; do head -c 1000000 /dev/urandom >> big; sleep 0.05; done"))
		if r.ExitCode != 137 || !r.DiskLimit || !strings.Contains(r.Detail, "disk") {
			t.Errorf("%s: %+v", where, *r)
		}
	}
	for range 3 { // what a command removes, the next one may not write again on top of its own bound
		if err := os.WriteFile(filepath.Join(s.dir(user), "work", "large"), make([]byte, 40<<20), 0o644); err != nil {
			t.Fatal(err)
		}
		s.prints("rm -f large", "")
		r := s.run(line("head -c 40000000 /dev/zero > again; sleep 1000"))
		if r.ExitCode != 137 || !r.DiskLimit {
			t.Errorf("after a removal: %+v", *r)
		}
		s.prints("rm again", "")
	}
	deep := line("sleep 1; for i in $(seq 150); do mkdir d && cd d; done; while :; do head -c 1000000 /dev/zero > big; sleep 0.05; done")
	deep.Timeout = 2 * time.Minute
	if r := s.run(deep); r.ExitCode != 137 || !r.DiskLimit || !strings.Contains(r.Detail, "deeper than can be watched") {
		t.Errorf("where nobody looks: %+v", *r)
	}
}

// TestWorkStaysWhileItIsMounted: a container keeps its workspace from being packed, and gives it back when it ends.
func TestWorkStaysWhileItIsMounted(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	s.run(line("echo content > file"))
	project, err := s.workspace.Existing(user.ProjectID())
	if err != nil {
		t.Fatal(err)
	}
	if packed, err := project.PackIdle(t.Context(), 0, nil); packed || err != nil {
		t.Errorf("packed under a container: %v %v", packed, err)
	}
	if err := s.CloseForUser(user); err != nil {
		t.Fatal(err)
	}
	if packed, err := project.PackIdle(t.Context(), 0, nil); !packed || err != nil {
		t.Errorf("not packed after its end: %v %v", packed, err)
	}
	s.prints("cat file", "content\n")
}

// TestAnImageWithAnOlderInitIsRefused: it would take no commands, and says so by its hello.
func TestAnImageWithAnOlderInitIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	changed := *s.container.Load()
	changed.Image = derived(t, `USER 0
RUN printf '#!/bin/sh\nprintf "h\\0\\0\\0\\015secbox-init/2"; exec cat >/dev/null\n' > /opt/secbox/sandbox-init
USER 1000:1000`)
	s.container.Store(&changed)
	if _, err := s.Locate(t.Context(), user); err == nil || !strings.Contains(err.Error(), "rebuild the image") {
		t.Error(err)
	}
}

// TestMoving moves a sandbox to an image that works and to one that does not, while others call.
func TestMoving(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	good, bad := derived(t, `LABEL which=good`), derived(t, `LABEL which=bad
USER 0
RUN rm /bin/bash
USER 1000:1000`)
	s.run(line("echo kept > ~/kept"))
	set := func(image string) {
		changed := *s.container.Load()
		changed.Image = image
		s.container.Store(&changed)
	}
	at := func() string {
		where, err := s.Locate(t.Context(), user)
		if err != nil {
			t.Fatal(err)
		}
		return where.ImageID
	}
	up, ended := s.background(t.Context(), "while [ ! -e ~/go ]; do sleep 0.05; done; echo done")
	<-up
	set(good)
	moved := make(chan error, 1)
	go func() { moved <- s.ExportAndImport(t.Context(), user) }()
	await(t, "the move to begin", func() bool { return s.IsExporting(user) })
	waiting := make(chan error, 1)
	go func() {
		_, err := s.Stat(t.Context(), sandbox.Root, user)
		waiting <- err
	}()
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Stat(short, sandbox.Root, user); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	select {
	case err := <-waiting:
		t.Errorf("a call during the move did not wait: %v", err)
	default:
	}
	if err := os.WriteFile(filepath.Join(s.dir(user), ".home", "home", "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if o := <-ended; o.err != nil || o.ExitCode != 0 {
		t.Errorf("%+v", o)
	}
	if err := errors.Join(<-moved, <-waiting); err != nil {
		t.Fatal(err)
	}
	here := at()
	if here != enginetest.Docker(t, "image", "inspect", "--format", "{{.Id}}", good) {
		t.Errorf("it is at %s", here)
	}
	s.prints("cat ~/kept", "kept\n")
	located := line("touch ran")
	located.User, located.ImageID = user, here
	if _, err := s.Exec(t.Context(), located); err != nil {
		t.Error(err)
	}
	located.ImageID, located.Command = enginetest.Docker(t, "image", "inspect", "--format", "{{.Id}}", enginetest.Image), "touch elsewhere"
	if _, err := s.Exec(t.Context(), located); !fault.Is(err, fault.SandboxBusy) {
		t.Errorf("a command that was to run in the image before: %v", err)
	}
	s.prints("ls /workspace", "ran\n")

	set(bad)
	err := s.ExportAndImport(t.Context(), user)
	if err == nil || !strings.Contains(err.Error(), here) {
		t.Errorf("moving to an image without a shell: %v", err)
	}
	if now := at(); now != here || s.IsExporting(user) {
		t.Errorf("it is at %s, was at %s", now, here)
	}
	s.prints("cat ~/kept", "kept\n")
}

// slow is an engine whose first container comes late.
type slow struct {
	docker.Engine
	once sync.Once
	wait <-chan struct{}
}

func (e *slow) StartResident(ctx context.Context, spec engine.ResidentSpec) (*engine.Resident, error) {
	e.once.Do(func() { <-e.wait })
	return e.Engine.StartResident(ctx, spec)
}

// TestAMoveDoesNotWaitForACommandThatBeginsLate: its container was being started for all of the time that commands have.
func TestAMoveDoesNotWaitForACommandThatBeginsLate(t *testing.T) {
	t.Parallel()
	comes := make(chan struct{})
	s := open(t, func(c *docker.Config) {
		c.Engine, c.MovePatience = &slow{Engine: c.Engine, wait: comes}, time.Nanosecond // over before any container can be there
	})
	_, ended := s.background(t.Context(), "sleep 1000")
	await(t, "the command to ask for a container", func() bool { _, err := os.Stat(s.dir(user)); return err == nil })
	moved := make(chan error, 1)
	go func() { moved <- s.ExportAndImport(t.Context(), user) }()
	await(t, "the move to begin", func() bool { return s.IsExporting(user) })
	close(comes)
	select {
	case o := <-ended:
		if o.err != nil || !strings.Contains(o.Detail, "moved to another image") {
			t.Errorf("%+v", o)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it still runs")
	}
	if err := <-moved; err != nil {
		t.Error(err)
	}
}

// derived builds an image on the sandbox's for one test.
func derived(t *testing.T, lines string) string {
	t.Helper()
	tag := "secbox-test:" + uuid.NewString()
	cmd := exec.CommandContext(t.Context(), "docker", "build", "-q", "--network=none", "-t", tag, "-")
	cmd.Stdin = strings.NewReader(fmt.Sprintf("FROM %s\n%s\n", enginetest.Image, lines))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() {
		_ = exec.Command("docker", "rmi", "-f", tag).Run()
	})
	return tag
}
