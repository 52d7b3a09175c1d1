//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/audit"
	"secbox/store"
)

// history are the kinds of an exec's events, read from the database beside the server.
func (s *testServer) history(execID string) string {
	s.t.Helper()
	var kinds []string
	s.inDatabase(func(ctx context.Context, db audit.Store) {
		events, err := db.Events(ctx, execID)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, e := range events {
			kinds = append(kinds, string(e.Kind))
		}
	})
	return strings.Join(kinds, " ")
}

// inDatabase opens the embedded database as core-api's own sub-commands do.
func (s *testServer) inDatabase(do func(ctx context.Context, db audit.Store)) {
	s.t.Helper()
	db, err := store.Open(s.t.Context(), "", filepath.Join(s.dir, "state"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	do(s.t.Context(), db.Audit())
}

// TestNodeKilled kills core-api under a running exec.
func TestNodeKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const noPool = "CORE_API_POOL_MAX=0"
	p := serve(t, dir, noPool)
	running := p.post(shell("demo", "echo before; touch started; trap '' TERM HUP; while sleep 0.1; do echo >> alive; done"))
	execID := p.awaitOutput("demo", "before\n")
	// A second one waits for nothing but its end, which will be in the spool when the node comes back.
	spooled := p.post(shell("spooled", waiting("true")))
	spooledID := p.awaitStart("spooled")
	p.kill()
	running.noAnswer()
	spooled.noAnswer()

	// The lease ended with the process, so the job dies without a new server.
	killed := time.Now()
	p.noContainers()
	t.Logf("the containers were gone %v after the kill", time.Since(killed).Round(time.Millisecond))
	p.quiet("demo")

	var end audit.Record
	p.inDatabase(func(ctx context.Context, db audit.Store) {
		var err error
		if end, err = db.Get(ctx, spooledID); err != nil || end.Status != audit.Running {
			t.Fatalf("%+v %v", end, err)
		}
	})
	code := 0
	end.Status, end.ExitCode, end.EndedAt, end.DurationMS = audit.Succeeded, &code, end.StartedAt.Add(time.Second), 1000
	putIntoSpool(t, dir, end)

	p = serve(t, dir, noPool)
	p.get("/sandbox/execs/"+execID).wants(t, object{"status": "lost", "error_reason": "node_lost", "exit_code": nil})
	p.get("/sandbox/execs/"+spooledID).wants(t, object{"status": "succeeded", "exit_code": 0})
	for id, want := range map[string]string{execID: "created started ended", spooledID: "created started ended"} {
		if got := p.history(id); got != want {
			t.Errorf("events of %s: %s, want %s", id, got, want)
		}
	}
	if list := p.get("/sandbox/execs/" + execID + "/artifacts"); len(list.list("items")) != 0 {
		t.Errorf("artifacts of a lost exec: %v", list)
	}
	p.works("demo")

	// Its result turns up after all.
	p.kill()
	p.inDatabase(func(ctx context.Context, db audit.Store) {
		var err error
		if end, err = db.Get(ctx, execID); err != nil {
			t.Fatal(err)
		}
	})
	code = 3
	end.Status, end.ErrorReason, end.Detail, end.ExitCode = audit.Failed, audit.NonzeroExit, "exit code 3", &code
	end.EndedAt, end.DurationMS = end.StartedAt.Add(2*time.Second), 2000
	putIntoSpool(t, dir, end)
	p = serve(t, dir, noPool)
	p.get("/sandbox/execs/"+execID).wants(t, object{"status": "failed", "error_reason": "nonzero_exit", "exit_code": 3, "duration_ms": 2000})
	if got, want := p.history(execID), "created started ended corrected"; got != want {
		t.Errorf("events: %s, want %s", got, want)
	}
	if files, err := os.ReadDir(filepath.Join(dir, "state/spool")); err != nil || len(files) > 0 {
		t.Errorf("the spool has %v, %v", files, err)
	}
	p.noContainers()
}

// putIntoSpool leaves a record where a node that could not reach its database leaves it.
func putIntoSpool(t *testing.T, dir string, r audit.Record) {
	t.Helper()
	content, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "state/spool", r.ExecID+".json"), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestNodeKilledAtAnyMoment kills core-api again and again while four clients use it, and holds every answer against the rows that are
// found afterwards.
func TestNodeKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	const clients = 4
	rounds := scaled(4, 50)
	dir := t.TempDir()
	var left []string               // containers and their mounts, of the run before
	answered := map[string]string{} // status by exec id
	lost := 0
	var p *process
	check := func() {
		seen := 0
		for path := "/sandbox/execs?limit=500"; ; {
			page := p.get(path)
			for _, row := range page.list("items") {
				seen++
				id, status := row.str("exec_id"), row.str("status")
				if !audit.Status(status).Final() {
					t.Errorf("exec %s is %s after the restart", id, status)
				}
				if want, ok := answered[id]; ok && status != want {
					t.Errorf("exec %s was answered as %s and is %s", id, want, status)
				}
				if status == "lost" {
					lost++
				}
			}
			if page.str("next_cursor") == "" {
				break
			}
			path = "/sandbox/execs?limit=500&cursor=" + page.str("next_cursor")
		}
		if seen < len(answered) {
			t.Errorf("%d rows for %d answers", seen, len(answered))
		}
	}
	for round := range rounds {
		p = serve(t, dir, "CORE_API_POOL_READY=3")
		check()
		p.noneOf(left)
		var mu sync.Mutex
		var all sync.WaitGroup
		stop := make(chan struct{})
		for client := range clients {
			all.Go(func() {
				for i := 0; ; i++ {
					script := []string{"true", "sleep 0.2; exit 3", "head -c 200000 /dev/zero; echo x > /workspace/artifacts/f"}[i%3]
					posted := p.post(shell(fmt.Sprintf("p%d", client+clients*(i%2)), script))
					select {
					case a := <-posted.answer:
						var o object
						if err := json.Unmarshal(a.Body, &o); err != nil || a.Code != http.StatusOK {
							t.Errorf("%d %s", a.Code, a.Body)
							return
						}
						mu.Lock()
						answered[o.str("exec_id")] = o.str("status")
						mu.Unlock()
					case <-posted.failed:
						return
					}
					select {
					case <-stop:
						return
					default:
					}
				}
			})
		}
		// Sometimes at once, sometimes after a few answers, and then at any moment.
		mu.Lock()
		enough := len(answered) + rand.IntN(2*clients)
		mu.Unlock()
		eventually(t, "enough answers", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(answered) >= enough || t.Failed()
		})
		time.Sleep(time.Duration(rand.Int64N(int64(400 * time.Millisecond))))
		p.kill()
		left = p.remains()
		close(stop)
		all.Wait()
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	p = serve(t, dir, "CORE_API_POOL_READY=3")
	lost = 0
	check()
	p.noneOf(left)
	p.noContainers()
	t.Logf("%d execs were answered, %d were lost", len(answered), lost)
	if len(answered) == 0 || lost == 0 {
		t.Error("the kills hit nothing")
	}
	if captures, err := os.ReadDir(filepath.Join(dir, "state/captures")); err != nil || len(captures) > 0 {
		t.Errorf("captures stay: %v %v", captures, err)
	}
	p.terminate()
	if code := p.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if left := append(p.containers(), mountsOf(p.node())...); len(left) > 0 {
		t.Errorf("after the end: %q", left)
	}
}

// remains are the ids of the containers of a killed core-api, also of those that docker is still to make, and of those with mounts.
func (p *process) remains() (ids []string) {
	p.t.Helper()
	text := strings.Join(append(p.containers(), mountsOf(p.node())...), "\n")
	for _, pid := range processesWith("secbox.node=" + p.node()) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		text += "\n" + string(line)
	}
	for _, id := range containerID.FindAllStringSubmatch(text, -1) {
		if id[1] != p.node() {
			ids = append(ids, id[1])
		}
	}
	return ids
}

var containerID = regexp.MustCompile(`(?:secbox-|/)([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})`) // of names and paths

// noneOf waits until nothing of the run before is left.
func (p *process) noneOf(ids []string) {
	p.t.Helper()
	var left []string
	defer func() {
		if p.t.Failed() {
			p.t.Logf("left of the run before: %q", left)
		}
	}()
	eventually(p.t, "nothing of the run before is left", func() bool {
		left = slices.DeleteFunc(p.remains(), func(id string) bool { return !slices.Contains(ids, id) })
		return len(left) == 0
	})
}

// TestTwoServersOnOneStateDir starts a second server where one runs.
func TestTwoServersOnOneStateDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := serve(t, dir, "CORE_API_POOL_MAX=0")
	second := coreAPI(t, os.Environ(), "serve", "--addr", "127.0.0.1:0",
		"--state-dir", filepath.Join(dir, "state"), "--workspace-root", filepath.Join(dir, "other"))
	out, err := second.CombinedOutput()
	if code := second.ProcessState.ExitCode(); err == nil || code != 5 {
		t.Errorf("exit code %d, want 5", code)
	}
	if words := string(out); !strings.Contains(words, filepath.Join(dir, "state")) || !strings.Contains(words, "--state-dir") {
		t.Errorf("it said: %s", words)
	}
	first.works("demo")
	first.kill()
	serve(t, dir, "CORE_API_POOL_MAX=0").works("demo") // the claim ends with the process
}
