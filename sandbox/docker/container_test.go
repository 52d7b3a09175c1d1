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

	"secbox/engine"
	"secbox/engine/enginetest"
	"secbox/fault"
	"secbox/runner/diskwatch"
	"secbox/sandbox"
	"secbox/sandbox/docker"
)

// await polls until is() is true.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// background starts a command and returns when it is up, and its outcome.
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
	s := open(t, func(c *docker.Config) { c.Engine = nil }) // a call panics
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

// TestTwoUsers: users do not see each other's files, homes or processes. Concurrent first calls of
// one user share a container.
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

// TestFlags compares a sandbox's container with an exec's container: docker inspect shows the same
// but for the mounts.
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
		return regexp.MustCompile(`"PidsLimit":\d+`).ReplaceAllString(all, "") // init and the workers add theirs
	}
	ours, theirs := inspect(s.containers()[0]), inspect("secbox-"+slot.ExecID())
	cancel()
	<-over
	if ours != theirs || !strings.Contains(ours, `"NetworkMode":"none"`) || !strings.Contains(ours, "no-new-privileges") {
		t.Errorf("\n%s\n%s", ours, theirs)
	}
}

func TestHomePersists(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *docker.Config) { c.IdleFor = 50 * time.Millisecond })
	s.run(line("mkdir -p ~/.local/bin; printf '#!/bin/sh\\necho mine\\n' > ~/.local/bin/tool; cp ~/.local/bin/tool ~/.local/bin/ls; chmod +x ~/.local/bin/*"))
	await(t, "the container to be stopped when idle", func() bool { return len(s.containers()) == 0 })
	s.prints("tool; cd /opt && ls", "mine\nsecbox\ntools\n") // a planted program replaces none of the image
	if r := s.run(sandbox.ExecSpec{Command: "tool", Dir: docker.HomePath}); r.Stdout != "mine\n" {
		t.Errorf("%+v", *r)
	}
	nowhere := sandbox.ExecSpec{Command: "true", Dir: docker.HomePath + "/none", User: user}
	if _, err := s.Exec(t.Context(), nowhere); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestKilledContainerIsReplaced(t *testing.T) {
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

// TestPausedContainerIsReplaced: a paused container delays neither the end of canceled commands nor
// the next commands.
func TestPausedContainerIsReplaced(t *testing.T) {
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

func TestRecreatedWorkspaceIsMountedAgain(t *testing.T) {
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

func TestChangedLimitsReplaceContainer(t *testing.T) {
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

func TestPolicyForWorkspace(t *testing.T) {
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

func TestContainerLimits(t *testing.T) {
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

	// A token at its limit does not keep another one from starting a container.
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
	if _, err := s.Exec(of(t.Context(), "greedy"), spec); !fault.Is(err, fault.SandboxBusy) ||
		!strings.Contains(err.Error(), "sandboxes.max_containers_per_token") {
		t.Errorf("a second container of one token: %v", err)
	}
	if _, err := s.Exec(of(t.Context(), "modest"), spec); err != nil {
		t.Errorf("the first of another: %v", err)
	}
	cancel()
	busy.Wait()
}

func TestDiskWatch(t *testing.T) {
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
	for range 3 { // space that a command frees does not raise the next one's bound
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
		t.Errorf("too deep to scan: %+v", *r)
	}
}

// TestOlderInitIsRefused: an image whose sandbox-init speaks an older protocol is refused by its
// hello.
func TestOlderInitIsRefused(t *testing.T) {
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

// TestImageChange: a busy container stays when the policy names another image, and the next command
// after it gets a container of that image with the same home.
func TestImageChange(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	image := derived(t, `LABEL which=new`)
	before, after := imageID(t, enginetest.Image), imageID(t, image)
	at := func() string {
		where, err := s.Locate(t.Context(), user)
		if err != nil {
			t.Fatal(err)
		}
		return where.ImageID
	}
	s.run(line("echo kept > ~/kept"))
	up, ended := s.background(t.Context(), "while [ ! -e ~/go ]; do sleep 0.05; done; echo done")
	<-up
	changed := *s.container.Load()
	changed.Image = image
	s.container.Store(&changed)
	if now := at(); now != before {
		t.Errorf("while a command runs it is at %s, was at %s", now, before)
	}
	s.run(line("touch ~/go"))
	if o := <-ended; o.err != nil || o.ExitCode != 0 {
		t.Errorf("%+v", o)
	}
	if now := at(); now != after {
		t.Errorf("it is at %s, not at %s", now, after)
	}
	s.prints("cat ~/kept", "kept\n")
	located := line("touch ran")
	located.User, located.ImageID = user, after
	if _, err := s.Exec(t.Context(), located); err != nil {
		t.Error(err)
	}
	located.ImageID, located.Command = before, "touch elsewhere"
	if _, err := s.Exec(t.Context(), located); !fault.Is(err, fault.SandboxBusy) {
		t.Errorf("a command that was located in the former image: %v", err)
	}
	s.prints("ls /workspace", "ran\n")
}

func imageID(t *testing.T, name string) string {
	t.Helper()
	return enginetest.Docker(t, "image", "inspect", "--format", "{{.Id}}", name)
}

// derived builds an image from the sandbox image for one test.
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
