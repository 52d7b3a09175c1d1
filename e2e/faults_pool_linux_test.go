package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"secbox/audit"
	"secbox/settings"
)

// slots returns the names of the containers that wait: the node's containers without a row.
func (s *testServer) slots() (names []string) {
	s.t.Helper()
	known := map[string]bool{}
	for _, row := range s.records("") {
		known[row.str("exec_id")] = true
	}
	for _, id := range strings.Fields(s.docker("ps", "--filter", "label=secbox.node="+s.node(), "--format", `{{.Label "secbox.exec"}}`)) {
		if !known[id] {
			names = append(names, "secbox-"+id)
		}
	}
	return names
}

// TestSlotsTakenAwayUnderTraffic ends all that waits, behind the server's back and again and again,
// while clients use it. Every answer is a success or says what happened, and the next ones are warm
// again.
func TestSlotsTakenAwayUnderTraffic(t *testing.T) {
	t.Parallel()
	ways := [][]string{{"rm", "-f"}, {"kill"}}
	s := tidy(t, ready(2))
	request := shell("demo", "echo $RANDOM > /workspace/artifacts/f; echo ran")
	s.fill(request, 2)
	stop := make(chan struct{})
	var clients sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[string]int{}
	for range 2 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				a := s.post(request).any()
				var o object
				err := json.Unmarshal(a.Body, &o)
				id, outcome := o.str("exec_id"), o.str("status")
				switch {
				case err == nil && a.Code == http.StatusOK && outcome == "succeeded" && o.str("stdout") == "ran\n" && len(o.list("artifacts")) == 1:
				case err == nil && a.Code == http.StatusOK && outcome == "error" && o.str("error_reason") == "container_lost":
					outcome = "container_lost"
				case err == nil && a.Code >= 500 && o.str("code") != "" && o.str("detail") != "" && id != "":
					outcome = o.str("code")
				default:
					t.Errorf("%d %s", a.Code, a.Body)
					return
				}
				mu.Lock()
				outcomes[outcome]++
				mu.Unlock()
				time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond) // at a pace at which something gets to wait
			}
		})
	}
	taken := 0
	for round := range scaled(2, 12) {
		var slots []string
		eventually(t, "a container waits", func() bool { slots = s.slots(); return len(slots) > 0 || t.Failed() })
		for _, name := range slots {
			taken++
			_, _ = s.tryDocker(slices.Concat(ways[round%2], []string{name})...) // it may have got its job and ended
		}
	}
	close(stop)
	clients.Wait()
	t.Logf("%d containers were taken away: %v", taken, outcomes)
	if taken == 0 || outcomes["succeeded"] == 0 {
		t.Error("nothing happened")
	}
	s.serving(warm).exec(request).wants(t, object{"status": "succeeded"})

	// Once more all of them, in a quiet moment and in both ways: each death is noticed.
	s.fill(request, 2)
	before := s.get("/sandbox/pool").num("dropped.dead")
	slots := s.slots()
	for i, name := range slots {
		s.docker(slices.Concat(ways[i%2], []string{name})...)
	}
	eventually(t, "all the deaths are noticed", func() bool { return s.get("/sandbox/pool").num("dropped.dead") >= before+float64(len(slots)) })
	s.exec(request).wants(t, object{"status": "succeeded"})
	s.serving(warm).exec(request).wants(t, object{"status": "succeeded"})
	s.closedRows()
	s.noContainers()
	s.onlyWaiting("demo")
}

// tryDocker runs a docker command that may fail on the server's engine.
func (s *testServer) tryDocker(args ...string) (string, error) {
	cmd := exec.Command("docker", args...)
	cmd.Env = s.environ
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// closedRows checks that every row is final and counts rows by warm and cold.
func (s *testServer) closedRows() (byWarmth map[bool]int) {
	s.t.Helper()
	byWarmth = map[bool]int{}
	for _, row := range s.records("") {
		if !audit.Status(row.str("status")).Final() || row.at("ended_at") == nil {
			s.t.Errorf("a row is open: %v", row)
		}
		byWarmth[row.at("warm") == true]++
	}
	return byWarmth
}

// TestManyExecsAtOnce sends many execs of one project at the same time: each has its own id, output
// and artifacts.
func TestManyExecsAtOnce(t *testing.T) {
	t.Parallel()
	n := scaled(20, 200)
	s := tidy(t, ready(4), func(c *settings.Settings) { c.Sandbox.MaxConcurrentExecs, c.Sandbox.MaxQueuedExecs = 8, n })
	s.fill(shell("demo", "true"), 4)
	before, rows := s.get("/sandbox/pool"), len(s.records(""))
	s.client = &http.Client{Transport: &http.Transport{}} // other tests check answers against the contract
	defer s.client.CloseIdleConnections()
	var all []*later
	for i := range n {
		all = append(all, s.post(shell("demo", fmt.Sprintf("echo %d; echo %d > /workspace/artifacts/f; cat /workspace/inputs/%d", i, i, i),
			"inputs", []object{{"path": fmt.Sprint(i), "content": fmt.Sprint("in", i)}})))
	}
	seen := map[string]bool{}
	for i, l := range all {
		result := l.result()
		id := result.str("exec_id")
		result.wants(t, object{"status": "succeeded", "stdout": fmt.Sprintf("%d\nin%d", i, i)})
		if seen[id] {
			t.Errorf("%s twice", id)
		}
		seen[id] = true
		if a := s.artifact(id, "f"); string(a.Body) != fmt.Sprintf("%d\n", i) {
			t.Errorf("the artifact of the %dth: %d %s", i, a.Code, a.Body)
		}
	}
	byWarmth := s.closedRows()
	after := s.get("/sandbox/pool")
	t.Logf("warm %d, cold %d", byWarmth[true], byWarmth[false])
	if got := byWarmth[true] + byWarmth[false]; got != n+rows {
		t.Errorf("%d rows, want %d", got, n+rows)
	}
	if hits, misses := after.num("hits")-before.num("hits"), after.num("misses")-before.num("misses"); hits+misses != float64(n) || hits < 1 {
		t.Errorf("%v hits and %v misses", hits, misses)
	}
	s.noContainers()
	s.onlyWaiting("demo")
}

// TestCancelDuringHandOver cancels execs while they get their containers: each ends as canceled or
// succeeded.
func TestCancelDuringHandOver(t *testing.T) {
	t.Parallel()
	s := tidy(t, ready(2))
	request := shell("demo", "touch /workspace/artifacts/ran; sleep 0.05")
	s.fill(request, 2)
	outcomes := map[string]int{}
	for i := range scaled(6, 30) {
		s.awaitWaiting(request, 1)
		running := s.post(request)
		var id string
		eventually(t, "it has a row", func() bool {
			rows := s.get("/sandbox/execs?limit=1&project_id=demo").list("items")
			if len(rows) == 1 && rows[0].str("status") == "running" {
				id = rows[0].str("exec_id")
			}
			return id != "" || len(running.answer) > 0
		})
		if id == "" {
			id = running.any().json(t).str("exec_id")
			t.Logf("the %dth had ended before it was seen", i)
			continue
		}
		a := s.cancel(id)
		if a.Code != http.StatusAccepted && (a.Code != http.StatusConflict || a.json(t).str("code") != "exec_ended") {
			t.Errorf("cancel: %d %s", a.Code, a.Body)
		}
		result := running.result()
		status := result.str("status")
		outcomes[status]++
		ran := len(result.list("artifacts")) > 0
		switch {
		case status == "canceled" && result.str("error_reason") == "canceled":
			if result.at("started_at") == nil && ran {
				t.Errorf("it ran, and is said not to have started: %v", result)
			}
		case status == "succeeded" && ran:
		default:
			t.Errorf("%v", result)
		}
		s.get("/sandbox/execs/"+id).wants(t, object{"status": status, "error_reason": result.str("error_reason")})
	}
	t.Logf("%v", outcomes)
	if outcomes["canceled"] == 0 {
		t.Error("no cancel hit")
	}
	s.closedRows()
	s.noContainers()
	s.onlyWaiting("demo")
}

// TestDrainUnderAFullPool ends a process by a signal while execs run and containers wait.
func TestDrainUnderAFullPool(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := serve(t, dir, "CORE_API_POOL_READY=3")
	p.works("idle")
	p.fill(shell("idle", "true"), 2)
	p.fill(shell("busy", "true"), 1)
	running := p.serving(warm).post(shell("busy", waiting("echo finished; echo x > /workspace/artifacts/x")))
	id := p.awaitStart("busy")
	p.terminate()
	eventually(t, "idle containers are gone and the running one is left", func() bool {
		return strings.TrimSpace(p.docker("ps", "-a", "--filter", "label=secbox.node="+p.node(), "--format", `{{.Label "secbox.exec"}}`)) == id
	})
	p.letGo("busy")
	result := running.result()
	result.wants(t, object{"status": "succeeded", "stdout": "finished\n", "warm": true, "audit": "stored"})
	if code := p.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if left := p.containers(); len(left) > 0 {
		t.Errorf("containers after the end: %v", left)
	}
	p.noStray(dir, "idle")
	p.noStray(dir, "busy")
}

// clis are the docker CLIs that hold the node's containers.
func (s *testServer) clis() []int {
	s.t.Helper()
	return slices.DeleteFunc(processesWith("secbox.node="+s.node()), func(pid int) bool {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return !strings.Contains(string(line), "\x00run\x00")
	})
}

// TestNodeKilledWithSlotsInHand kills core-api again and again while containers wait, run and are
// being started. The next start leaves nothing of the earlier run but its rows.
func TestNodeKilledWithSlotsInHand(t *testing.T) {
	t.Parallel()
	rounds := scaled(3, 8)
	dir := t.TempDir()
	ended := map[string]string{} // status by exec id, of rows that a kill must not touch
	lost := 0
	for round := range rounds {
		p := serve(t, dir)
		// Nothing of the run before is there, but for its rows.
		eventually(t, "the containers of the run before are gone", func() bool { return len(p.containers()) == 0 })
		eventually(t, "its CLIs are gone", func() bool { return len(p.clis()) == 0 })
		if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), filepath.Base(filepath.Dir(dir))) {
			t.Errorf("round %d: a project is mounted: %v\n%s", round, err, mounts)
		}
		if round > 0 {
			for _, project := range []string{"a", "b"} {
				if stray := p.withoutRow(project); len(stray) > 0 {
					t.Errorf("round %d: artifacts/ of %s has %v", round, project, stray)
				}
			}
		}
		if left, err := os.ReadDir(filepath.Join(dir, "state/allotted")); err != nil || len(left) > 0 {
			t.Errorf("round %d: pending directories are left: %v %v", round, left, err)
		}
		for _, row := range p.records("") {
			id, status := row.str("exec_id"), row.str("status")
			if want, ok := ended[id]; ok && status != want {
				t.Errorf("round %d: %s was %s and is %s", round, id, want, status)
			} else if !ok && status != "lost" {
				t.Errorf("round %d: %s was open and is %s", round, id, status)
			} else if !ok {
				lost++
			}
			ended[id] = status
		}

		for i := range 3 {
			for _, project := range []string{"a", "b"} {
				result := p.exec(shell(project, "echo ran"))
				result.wants(t, object{"status": "succeeded"})
				ended[result.str("exec_id")] = "succeeded"
			}
			if i == round%3 {
				break
			}
		}
		open := p.post(shell("a", "touch started; sleep 60"))
		eventually(t, "it has a row", func() bool { return len(p.records("status=running")) == 1 })
		switch round % 4 {
		case 0: // full
			eventually(t, "a container waits", func() bool { return p.waiting() > 0 })
		case 1: // in the middle of a start
			eventually(t, "one is being started", func() bool {
				return p.get("/sandbox/pool").num("starting") > 0 || p.get("/sandbox/pool").num("idle") > 0
			})
		default:
			time.Sleep(time.Duration(rand.Int64N(int64(400 * time.Millisecond))))
		}
		p.kill()
		open.noAnswer()
	}
	p := serve(t, dir)
	eventually(t, "no containers", func() bool { return len(p.containers()) == 0 })
	if n := len(p.records("status=lost")); n != rounds {
		t.Errorf("%d rows are lost, want %d", n, rounds)
	}
	if lost != rounds-1 {
		t.Errorf("%d were found lost on the way", lost)
	}
	for _, project := range []string{"a", "b"} {
		p.works(project)
		p.onlyWaiting(project)
	}
}

// TestCLIsOfSlotsKilled ends the docker CLIs of what waits: the containers go with them, and the
// next execs do not notice.
func TestCLIsOfSlotsKilled(t *testing.T) {
	t.Parallel()
	s := tidy(t, ready(2))
	request := shell("demo", "echo ran")
	s.fill(request, 2)
	for _, pid := range s.clis() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for range 3 {
		a := s.post(request).any()
		if o := a.json(t); o.str("status") != "succeeded" && o.str("error_reason") != "container_lost" && a.Code < 500 {
			t.Errorf("%d %s", a.Code, a.Body)
		}
	}
	s.serving(warm).exec(request).wants(t, object{"status": "succeeded", "stdout": "ran\n"})
	s.noContainers()
	s.onlyWaiting("demo")
}

// fullPool is a server on this engine with containers that wait for two projects, and an exec that
// runs until its container dies.
func fullPool(t *testing.T, e *ownEngine) (s *testServer, running *later, execID string) {
	s = startWith(t, t.TempDir(), e.environ())
	for _, project := range []string{"a", "b"} {
		s.fill(shell(project, "echo works"), 1)
	}
	running = s.post(shell("busy", "echo before; touch started; trap '' TERM; while sleep 0.1; do echo >> alive; done"))
	return s, running, s.awaitOutput("busy", "before\n")
}

// afterTheEngine checks what an exec says whose engine went away under it, and that the server is
// whole again with the engine.
func (s *testServer) afterTheEngine(result object, execID string) {
	s.t.Helper()
	result.wants(s.t, object{"status": "error", "error_reason": "engine_unavailable", "exit_code": nil, "stdout": "before\n", "audit": "stored"})
	s.get("/sandbox/execs/"+execID).wants(s.t, object{"status": "error", "error_reason": "engine_unavailable", "detail": result.str("detail")})
	eventually(s.t, "ready", func() bool { return s.send(http.MethodGet, "/readyz", nil).Code == http.StatusOK })
	s.works("a")
	s.serving(warm).exec(shell("b", "echo again")).wants(s.t, object{"status": "succeeded", "stdout": "again\n"})
	s.noContainers()
	s.quiet("busy")
	for _, project := range []string{"a", "b"} {
		s.onlyWaiting(project)
	}
	s.closedRows()
}

// engineStopsUnderAFullPool stops the engine as a service manager does, and starts it after execs
// have failed without it.
func engineStopsUnderAFullPool(t *testing.T, e *ownEngine) {
	s, running, execID := fullPool(t, e)
	e.stop()
	result := running.result()
	for range 2 {
		a := s.send(http.MethodPost, "/sandbox/execs", shell("a", "echo works"))
		if o := a.json(t); a.Code != http.StatusServiceUnavailable || o.str("code") != "engine_unavailable" || o.str("exec_id") == "" {
			t.Errorf("without an engine: %d %s", a.Code, a.Body)
		}
	}
	e.start()
	s.afterTheEngine(result, execID)
}

// engineKilledUnderAFullPool kills the engine, which is back before the exec's answer.
func engineKilledUnderAFullPool(t *testing.T, e *ownEngine) {
	s, running, execID := fullPool(t, e)
	e.kill()
	e.start()
	s.afterTheEngine(running.result(), execID)
}
