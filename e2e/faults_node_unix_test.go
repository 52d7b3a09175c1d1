//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
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
	// A second one waits for nothing but its end, which will be in the spool when the node comes
	// back.
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

	// Its result turns up after all. It corrects the row. The history keeps the loss, because a
	// client may have been told about it.
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
	p.get("/sandbox/execs/"+execID).wants(t, object{"status": "failed", "error_reason": "nonzero_exit", "exit_code": 3})
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
	if words := string(out); !strings.Contains(words, filepath.Base(filepath.Dir(dir))) || !strings.Contains(words, "--state-dir") {
		t.Errorf("it said: %s", words)
	}
	first.works("demo")
	first.kill()
	serve(t, dir, "CORE_API_POOL_MAX=0").works("demo") // the claim ends with the process
}
