package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"secbox/access/tokens"
	"secbox/sandbox/remote/machine"
	"secbox/settings"
)

// dialIn connects a runner, a real one, as a user's machine of this name, and waits until it is
// connected. The channel receives the error with which it ends.
func (s *testServer) dialIn(user, name, dir string, allow ...string) (id string, ended <-chan error) {
	s.t.Helper()
	id, secret := s.newToken(tokens.Spec{Role: tokens.Runner, UserID: user})
	m, err := machine.New(machine.Config{
		Server: s.url, Token: secret, Workspace: dir, Name: name, Allow: allow, Version: "test",
		Log: slog.New(slog.NewTextHandler(testLog{s.t}, nil)),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(s.t.Context())
	end := make(chan error, 1)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		end <- m.Run(ctx)
	}()
	s.t.Cleanup(func() { stop(); <-gone })
	eventually(s.t, name+" is connected", func() bool { return slices.Contains(s.connected(), user+"/"+name) })
	return id, end
}

// connected are the machines that are.
func (s *testServer) connected() []string {
	s.t.Helper()
	var names []string
	for _, r := range s.get("/runners").list("items") {
		names = append(names, r.str("user_id")+"/"+r.str("name"))
	}
	return names
}

// worksIn puts a user into a sandbox.
func (s *testServer) worksIn(user string, choice object) object {
	s.t.Helper()
	a := s.send(http.MethodPut, "/v1/sandbox/"+user+"/backend", choice)
	if a.Code != http.StatusOK {
		s.t.Fatalf("backend of %s: %d %s", user, a.Code, a.Body)
	}
	return a.json(s.t)
}

// TestRemoteSandbox uses a runner over a real link: commands, large and small files, operations
// that it does not allow, a cancel, and the end of the link when the token is revoked.
func TestRemoteSandbox(t *testing.T) {
	t.Parallel()
	s := start(t, noPool, func(s *settings.Settings) { s.Sandboxes.HeartbeatSeconds = 1 })
	_, s.token = s.newToken(tokens.Spec{Role: tokens.Admin})
	const u = "/v1/sandbox/u/ag"
	s.worksIn("u", object{"backend": "remote"})
	s.send(http.MethodPost, u+"/execute?command=ls", []string{}).refuses(t, 503, "runner_offline")
	s.send(http.MethodGet, u+"/files", nil).refuses(t, 503, "runner_offline")

	laptop, desk := t.TempDir(), t.TempDir()
	id, ended := s.dialIn("u", "laptop", laptop, machine.AllowExec, machine.AllowWrite)
	s.get("/runners").list("items")[0].wants(t, object{"user_id": "u", "name": "laptop", "version": "test", "allow": "[exec write]"})

	s.send(http.MethodPut, u+"/edit?path=deep/notes.txt", "one\ntwo\n").done(t)
	if got, err := os.ReadFile(filepath.Join(laptop, "deep/notes.txt")); err != nil || string(got) != "one\ntwo\n" {
		t.Errorf("on the laptop: %q, %v", got, err)
	}
	if got := s.content(u, "deep/notes.txt"); got != "one\ntwo\n" {
		t.Errorf("read %q", got)
	}
	large := strings.Repeat("0123456789abcde\n", 300_000) // more than goes in a message
	s.send(http.MethodPut, u+"/edit?path=large.txt", large, "Content-Type", "text/plain").done(t)
	if got := s.content(u, "large.txt"); got != large {
		t.Errorf("%d bytes came back of %d", len(got), len(large))
	}
	if got := strings.Join(s.files(u), " "); got != "deep/notes.txt large.txt" {
		t.Errorf("files %q", got)
	}
	bytes := strings.Repeat("\xff\x00 0123456789", 1<<20) // more than content shows, and no text
	put := s.send(http.MethodPut, u+"/file?path=bytes.bin", bytes, "If-None-Match", "*")
	put.done(t)
	if a := s.send(http.MethodGet, u+"/file?path=bytes.bin", nil, "Range", "bytes=12000000-"); a.Code != http.StatusPartialContent ||
		string(a.Body) != bytes[12_000_000:] {
		t.Errorf("%d bytes with status %d", len(a.Body), a.Code)
	}
	s.send(http.MethodPut, u+"/file?path=bytes.bin", bytes, "If-None-Match", "*").refuses(t, 412, "precondition_failed")
	s.send(http.MethodPut, u+"/file?path=bytes.bin", "small", "If-Match", put.Header.Get("ETag")).done(t)
	if a := s.send(http.MethodGet, u+"/file?path=bytes.bin", nil); string(a.Body) != "small" {
		t.Errorf("%d bytes with status %d", len(a.Body), a.Code)
	}
	const lines = 24
	s.send(http.MethodPut, u+"/edit?path=log.txt", strings.Repeat("-\n", lines)).done(t)
	var edits sync.WaitGroup
	var want strings.Builder
	for n := range lines {
		fmt.Fprintln(&want, n)
		edits.Go(func() {
			if a := s.send(http.MethodPut, fmt.Sprintf("%s/edit?path=log.txt&start=%d&end=%[2]d", u, n+1), strconv.Itoa(n)); a.Code != http.StatusOK {
				t.Errorf("line %d: %d %s", n, a.Code, a.Body)
			}
		})
	}
	edits.Wait()
	if got := s.content(u, "log.txt"); got != want.String() {
		t.Errorf("edits of all lines at once left %q", got)
	}
	ran := s.runs(u+"/execute?command=bash", "-c", "rm log.txt; cat deep/notes.txt; echo $SECBOX_WORKSPACE >&2; exit 3")
	ran.wants(t, object{"stdout": "one\ntwo\n", "stderror": laptop + "\n", "exit_code": 3})
	s.get("/sandbox/execs/"+ran.str("exec_id")).wants(t,
		object{"backend": "remote", "runner": "laptop", "status": "failed", "exit_code": 3, "user_id": "u", "image": "", "cwd": "/workspace"})
	if snapshot := s.get("/sandbox/execs/" + ran.str("exec_id")); len(snapshot.at("policy_snapshot.fields").(map[string]any)) != 3 ||
		!strings.Contains(fmt.Sprint(snapshot.at("policy_snapshot.not_enforced")), "memory_mb cpu_cores pids tmp_mb shm_mb net.max_bytes") {
		t.Errorf("the row says that a user's machine enforces %v", snapshot.at("policy_snapshot"))
	}
	s.send(http.MethodPost, u+"/execute?command=cat", []string{"/workspace/large.txt"}).refuses(t, 400, "path_refused")
	s.send(http.MethodGet, u+"/content?path=../x", nil).refuses(t, 400, "path_refused")

	s.usesAShortRunner(t)

	// A second machine: which one is asked for by name, and it allows less.
	s.dialIn("u", "desk", desk)
	if got := s.send(http.MethodGet, u+"/files", nil); got.Code == http.StatusOK {
		t.Errorf("of two machines one was picked: %s", got.Body)
	}
	if got := s.worksIn("u", object{"backend": "remote", "runner": "desk"}); got.at("data.connected") != true {
		t.Errorf("%v", got)
	}
	s.send(http.MethodPost, u+"/execute?command=ls", []string{}).refuses(t, 403, "runner_refused")
	s.send(http.MethodPut, u+"/edit?path=x", "x").refuses(t, 403, "runner_refused")
	s.get("/sandbox/execs?runner=desk").list("items")[0].wants(t, object{"status": "error", "error_reason": "runner_refused"})
	s.worksIn("u", object{"backend": "remote", "runner": "laptop"})

	// A command is canceled by its row, and one that runs when the token is revoked ends with the
	// link.
	begin := func(name string) <-chan answer {
		answered := make(chan answer, 1)
		go func() {
			answered <- s.send(http.MethodPost, u+"/execute?command=bash", []string{"-c", "echo begun; : >" + name + "; sleep 600"})
		}()
		eventually(t, "the command runs", func() bool { _, err := os.Stat(filepath.Join(laptop, name)); return err == nil })
		return answered
	}
	canceled := begin("first")
	running := s.get("/sandbox/execs?status=running").list("items")
	if len(running) != 1 {
		t.Fatalf("%d run", len(running))
	}
	eventually(t, "its output can be read while it runs", func() bool {
		return string(s.send(http.MethodGet, "/sandbox/execs/"+running[0].str("exec_id")+"/stdout", nil).Body) == "begun\n"
	})
	if a := s.send(http.MethodPost, "/sandbox/execs/"+running[0].str("exec_id")+"/cancel", nil); a.Code != http.StatusAccepted {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	result := (<-canceled).json(t)
	if result.str("data.stdout") != "begun\n" || result.num("data.exit_code") != -1 || !strings.Contains(result.str("data.stderror"), "canceled by request") {
		t.Errorf("canceled: %v", result)
	}

	cut := begin("second")
	s.revoke(id)
	if err := <-ended; err == nil {
		t.Error("the runner ended as if all were well")
	}
	if a := <-cut; a.Code < 400 {
		t.Errorf("a command of a revoked machine: %d %s", a.Code, a.Body)
	}
	eventually(t, "the laptop is gone", func() bool { return !slices.Contains(s.connected(), "u/laptop") })
	s.send(http.MethodPost, u+"/execute?command=ls", []string{}).refuses(t, 503, "runner_offline")
}

// TestDockerSandbox runs commands in a user's container and checks their rows, a cancel, and files
// that both sides see.
func TestDockerSandbox(t *testing.T) {
	t.Parallel()
	s := start(t, noPool)
	const u = "/v1/sandbox/u/ag"
	s.send(http.MethodPut, u+"/edit?path=notes.txt", "mine").done(t)
	first := s.runs(u+"/execute?command=bash", "-c", "cat notes.txt; pwd; id -u; echo x > /workspace/made.txt; touch /opt/skill-creator/x")
	first.wants(t, object{"stdout": "mine/workspace\n" + strings.Split(s.get("/sandbox/health").str("container_user"), ":")[0] + "\n", "exit_code": 1})
	if got := s.content(u, "made.txt"); got != "x\n" {
		t.Errorf("made %q", got)
	}
	row := s.get("/sandbox/execs/" + first.str("exec_id"))
	row.wants(t, object{
		"backend": "docker", "runner": "", "status": "failed", "image": "secbox-sandbox:latest", "cmd": "bash", "cwd": "/workspace",
		"agent_id": "ag", "user_id": "u",
	})
	if !strings.HasPrefix(row.str("image_id"), "sha256:") {
		t.Errorf("image id %q", row.str("image_id"))
	}
	limits := s.docker("inspect", "--format", "{{.HostConfig.PidsLimit}} {{.HostConfig.Memory}}", s.containers()[0])
	if got := fmt.Sprintf("%.0f %.0f\n", row.num("policy_snapshot.fields.pids.value"),
		row.num("policy_snapshot.fields.memory_mb.value")*(1<<20)); got != limits {
		t.Errorf("the row says %q, and the engine %q", got, limits)
	}
	row.wants(t, object{"policy_snapshot.not_enforced": "[kill_grace_ms max_artifacts_bytes_total]"})
	s.runs(u+"/execute?command=python3", "/opt/skill-creator/skill.py", "scaffold", "a-skill", "--dir", "/workspace/skills").wants(t, object{"exit_code": 0})
	if n := len(s.containers()); n != 1 {
		t.Errorf("%d containers", n)
	}

	answered := make(chan answer, 1)
	go func() {
		answered <- s.send(http.MethodPost, u+"/execute?command=bash", []string{"-c", "echo begun; : >begun; sleep 600"})
	}()
	eventually(t, "the command runs", func() bool { _, err := os.Stat(filepath.Join(s.project("ag~u"), "work/begun")); return err == nil })
	id := s.get("/sandbox/execs?status=running").list("items")[0].str("exec_id")
	eventually(t, "its output can be read while it runs", func() bool {
		return string(s.send(http.MethodGet, "/sandbox/execs/"+id+"/stdout", nil).Body) == "begun\n"
	})
	if a := s.send(http.MethodPost, "/sandbox/execs/"+id+"/cancel", nil); a.Code != http.StatusAccepted {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	if got := (<-answered).json(t); got.str("data.stdout") != "begun\n" || got.num("data.exit_code") != -1 ||
		!strings.Contains(got.str("data.stderror"), "canceled by request") {
		t.Errorf("canceled: %v", got)
	}
	s.get("/sandbox/execs/"+id).wants(t, object{"status": "canceled", "backend": "docker"})
	if a := s.send(http.MethodGet, "/sandbox/execs/"+id+"/stdout", nil); a.Code != http.StatusOK || len(a.Body) != 0 {
		t.Errorf("its output is stored: %d %q", a.Code, a.Body)
	}
	s.runs(u+"/execute?command=echo", "still here").wants(t, object{"stdout": "still here\n"})

	// A backend that is not enabled cannot be chosen.
	s.send(http.MethodPut, "/v1/sandbox/u/backend", object{"backend": "none"}).refuses(t, 400, "invalid_request")
}
