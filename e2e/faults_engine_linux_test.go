package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"secbox/internal/statedir"
	"secbox/policy"
)

// TestEngineFaults takes an engine away from a server in every way. The cases share the engine, one
// after the other.
func TestEngineFaults(t *testing.T) {
	t.Parallel()
	e := newOwnEngine(t)
	e.start()
	e.loadImage()
	t.Run("down at the start", func(t *testing.T) { engineDownAtStart(t, e) })
	t.Run("has no room", func(t *testing.T) { engineWithoutRoom(t, e) })
	t.Run("loses its containerd", func(t *testing.T) { engineLosesContainerd(t, e) })
	t.Run("stops under a full pool", func(t *testing.T) { engineStopsUnderAFullPool(t, e) })
	t.Run("is killed under a full pool and comes back at once", func(t *testing.T) { engineKilledUnderAFullPool(t, e) })
}

func engineDownAtStart(t *testing.T, e *ownEngine) {
	dir := t.TempDir()
	state, err := statedir.Open(filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Close(); err != nil {
		t.Fatal(err)
	}
	leftover := e.docker("create", "--label", "secbox.node="+state.NodeID(), "--network=none", policy.DefaultImage, "bash")
	foreign := e.docker("create", "--label", "secbox.node=another", "--network=none", policy.DefaultImage, "bash")
	e.stop()

	s := startWith(t, dir, e.environ(), noPool)
	ready := s.send(http.MethodGet, "/readyz", nil)
	if ready.Code != http.StatusServiceUnavailable || ready.json(t).str("code") != "engine_unavailable" || ready.json(t).str("detail") == "" {
		t.Errorf("/readyz: %d %s", ready.Code, ready.Body)
	}
	health := s.send(http.MethodGet, "/sandbox/health", nil)
	if problems := health.json(t).list("problems"); health.Code != http.StatusServiceUnavailable || len(problems) == 0 ||
		problems[0].str("check") != "engine" || problems[0].str("remedy") == "" {
		t.Errorf("/sandbox/health: %d %s", health.Code, health.Body)
	}
	problem := s.refused(http.StatusServiceUnavailable, "engine_unavailable", shell("demo", "true"))
	s.get("/sandbox/execs/"+problem.str("exec_id")).wants(t, object{"status": "error", "error_reason": "engine_unavailable", "started_at": nil})

	e.start()
	eventually(t, "ready", func() bool { return s.send(http.MethodGet, "/readyz", nil).Code == http.StatusOK })
	// The sweep removes leftovers of the previous run, not containers that run now.
	running := s.post(shell("demo", waiting("echo survived")))
	s.awaitStart("demo")
	eventually(t, "the leftover is removed", func() bool {
		return !strings.Contains(e.docker("ps", "-aq", "--no-trunc"), leftover)
	})
	s.letGo("demo")
	running.result().wants(t, object{"status": "succeeded", "stdout": "survived\n"})
	if !strings.Contains(e.docker("ps", "-aq", "--no-trunc"), foreign) {
		t.Error("another node's container was removed")
	}
	e.docker("rm", foreign)
	s.noContainers()
}

// engineWithoutRoom has an engine that cannot make containers because its disk is full.
func engineWithoutRoom(t *testing.T, e *ownEngine) {
	s := startWith(t, t.TempDir(), e.environ(), noPool)
	e.disk.fill(0)
	problem := s.refused(http.StatusInsufficientStorage, "disk_full", shell("demo", "true"))
	if !strings.Contains(problem.str("detail"), "the engine's disk") {
		t.Errorf("%v", problem)
	}
	s.get("/sandbox/execs/"+problem.str("exec_id")).wants(t, object{"status": "error", "error_reason": "start_failed", "started_at": nil})
	e.disk.makeRoom()
	// A disk may hand out freed blocks a moment late.
	eventually(t, "there is room", func() bool { return s.post(shell("demo", "true")).any().Code == http.StatusOK })
	s.works("demo")
	s.noContainers()
}

// engineLosesContainerd kills containerd: dockerd answers but cannot start containers. A running
// exec is not affected.
func engineLosesContainerd(t *testing.T, e *ownEngine) {
	s := startWith(t, t.TempDir(), e.environ(), noPool)
	running := s.post(shell("demo", waiting("echo finished")))
	container := "secbox-" + s.awaitStart("demo")
	// Its process may run a moment before dockerd has heard so from containerd.
	eventually(t, "running", func() bool {
		state, err := e.try("container", "inspect", "--format", "{{.State.Running}}", container)
		return err == nil && state == "true"
	})
	_ = e.containerd.Process.Kill()
	_ = e.containerd.Wait()
	problem := s.refused(http.StatusServiceUnavailable, "engine_unavailable", shell("other", "true"))
	s.get("/sandbox/execs/"+problem.str("exec_id")).wants(t, object{"status": "error", "error_reason": "engine_unavailable"})
	s.letGo("demo")
	running.result().wants(t, object{"status": "succeeded", "stdout": "finished\n"})
	e.kill()
	e.start()
	s.works("demo")
	s.noContainers()
}

// TestContainerFaults kills, stops, removes and pauses the containers of running execs from
// outside.
func TestContainerFaults(t *testing.T) {
	t.Parallel()
	coldAndWarm(t, containerFaults)
}

func containerFaults(t *testing.T, how serving) {
	s := shared(t)
	if how == warm {
		s = start(t, how.settings).serving(how)
	}
	both := map[string]bool{"docker rm -f": true, "the CLI is killed": true}
	for name, interfere := range map[string]func(t *testing.T, container string){
		"docker kill":       func(t *testing.T, container string) { dockerRun(t, "kill", container) },
		"docker stop":       func(t *testing.T, container string) { dockerRun(t, "stop", "-t", "1", container) },
		"docker rm -f":      func(t *testing.T, container string) { dockerRun(t, "rm", "-f", container) },
		"the CLI is killed": killCLI,
	} {
		if how == warm && !both[name] {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := s.with(t)
			project := strings.NewReplacer(" ", "-").Replace(name)
			running := s.post(shell(project, "echo before; touch started; while sleep 0.1; do echo >> alive; done"))
			execID := s.awaitOutput(project, "before\n")
			interfere(t, "secbox-"+execID)
			running.result().wants(t, object{"status": "error", "error_reason": "container_lost", "exit_code": nil, "stdout": "before\n"})
			s.get("/sandbox/execs/"+execID).wants(t, object{"status": "error", "error_reason": "container_lost"})
			if out := s.docker("ps", "-aq", "--filter", "name=secbox-"+execID); out != "" {
				t.Errorf("the container is still there: %s", out)
			}
			s.quiet(project)
			if how == cold {
				s.works(project)
			}
		})
	}
	if how == warm {
		return
	}
	t.Run("a paused container", func(t *testing.T) {
		t.Parallel()
		s := s.with(t)
		running := s.post(shell("paused", waiting("true"), "policy_overrides", object{"timeout_ms": 60000}))
		execID := s.awaitStart("paused")
		dockerRun(t, "pause", "secbox-"+execID)
		if a := s.send(http.MethodPost, "/sandbox/execs/"+execID+"/cancel", nil); a.Code != http.StatusAccepted {
			t.Errorf("cancel: %d %s", a.Code, a.Body)
		}
		running.result().wants(t, object{"status": "canceled", "error_reason": "canceled"})
		eventually(t, "no container", func() bool { return s.docker("ps", "-aq", "--filter", "name=secbox-"+execID) == "" })
	})
}

func dockerRun(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("docker", args...).CombinedOutput(); err != nil {
		t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// killCLI kills the docker CLI of a container.
func killCLI(t *testing.T, container string) {
	t.Helper()
	clis := slices.DeleteFunc(processesWith(container), func(pid int) bool {
		program, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
		return err != nil || filepath.Base(program) != "docker"
	})
	if len(clis) != 1 {
		t.Fatalf("the CLIs of %s: %v", container, clis)
	}
	if err := syscall.Kill(clis[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
