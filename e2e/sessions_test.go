package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/settings"
)

// session is a session of a server's.
type session struct {
	*testServer
	id string
}

// startSession starts a session in a project; more sets further fields.
func (s *testServer) startSession(project string, more ...any) session {
	s.t.Helper()
	request := object{"project_id": project}
	for i := 0; i+1 < len(more); i += 2 {
		request[more[i].(string)] = more[i+1]
	}
	a := s.send(http.MethodPost, "/sandbox/sessions", request)
	if a.Code != http.StatusCreated {
		s.t.Fatalf("session: %d %s", a.Code, a.Body)
	}
	o := a.json(s.t)
	if a.Header.Get("Location") != "/sandbox/sessions/"+o.str("session_id") {
		s.t.Errorf("Location is %q", a.Header.Get("Location"))
	}
	return session{s, o.str("session_id")}
}

// try posts an exec for the session; more sets further fields.
func (s session) try(exec object, more ...any) answer {
	s.t.Helper()
	request := object{"session_id": s.id, "exec": exec}
	for i := 0; i+1 < len(more); i += 2 {
		request[more[i].(string)] = more[i+1]
	}
	a, err := s.testServer.try(http.MethodPost, "/sandbox/execs", request)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

// run runs a script in the session.
func (s session) run(script string, more ...any) object {
	s.t.Helper()
	a := s.try(object{"script": script}, more...)
	if a.Code != http.StatusOK {
		s.t.Fatalf("%s: %d %s", script, a.Code, a.Body)
	}
	return a.json(s.t)
}

// says wants a script to succeed and to print a text.
func (s session) says(script, stdout string) object {
	s.t.Helper()
	r := s.run(script)
	r.wants(s.t, object{"status": "succeeded", "stdout": stdout, "audit": "stored"})
	return r
}

func (s session) state() object {
	s.t.Helper()
	return s.get("/sandbox/sessions/" + s.id)
}

// awaitEnd waits for the session's end, and returns it.
func (s session) awaitEnd() (o object) {
	s.t.Helper()
	eventually(s.t, "the session has ended", func() bool { o = s.state(); return o.str("status") == "ended" })
	return o
}

func (s session) end() object {
	s.t.Helper()
	if a := s.send(http.MethodDelete, "/sandbox/sessions/"+s.id, nil); a.Code != http.StatusAccepted {
		s.t.Fatalf("delete: %d %s", a.Code, a.Body)
	}
	return s.awaitEnd()
}

// TestSession is the life of a session: its execs share a container, and each has its row.
func TestSession(t *testing.T) {
	t.Parallel()
	s := shared(t).startSession("session-life", "name", "the first", "env", object{"A": "1", "B": "2"}, "policy_overrides",
		object{"timeout_ms": 20000, "memory_mb": 200}, "task_ref", "the task")
	s.state().wants(t, object{
		"name": "the first", "status": "running", "end_reason": "", "project_id": "session-life", "task_id": "the task", "execs": 0.0,
		"execs_running": 0.0, "idle_ms": 600000.0, "ttl_ms": 3600000.0, "policy_snapshot.fields.memory_mb.value": 200.0,
	})
	s.get("/sandbox/execs/"+s.id).wants(t, object{
		"session_id": s.id, "session_seq": 0.0, "status": "running", "cmd": "session", "env_keys": []string{"A", "B"},
		"args": []string{"--name=the first", "--idle-ms=600000", "--ttl-ms=3600000"},
	})

	// Files and processes stay, a variable of an exec replaces the session's, and each exec has a
	// directory for artifacts.
	s.says("echo kept > /tmp/kept; echo $A$B", "12\n")
	keyed := func() object {
		t.Helper()
		request := object{"session_id": s.id, "exec": object{"script": "echo once"}}
		a, err := s.testServer.try(http.MethodPost, "/sandbox/execs", request, "Idempotency-Key", "once "+s.id)
		if err != nil || a.Code != http.StatusOK {
			t.Fatalf("%v %d %s", err, a.Code, a.Body)
		}
		return a.json(t)
	}
	once := keyed()
	r := s.run("cat /tmp/kept; echo $A; pwd; mkdir $SECBOX_ARTIFACTS/d; echo 1 > $SECBOX_ARTIFACTS/d/one; exit 3")
	r.wants(t, object{"status": "failed", "exit_code": 3.0, "stdout": "kept\n1\n/workspace/work\n"})
	if list := r.list("artifacts"); len(list) != 1 || list[0].str("path") != "d/one" {
		t.Errorf("artifacts %v", list)
	}
	if a := s.artifact(r.str("exec_id"), "d/one"); string(a.Body) != "1\n" {
		t.Errorf("artifact: %d %s", a.Code, a.Body)
	}
	a := s.try(object{"code": "import os,sys\nprint(os.environ['A'], __file__[:10], sys.stdin.read())", "env": object{"A": "own"}, "stdin": "in"})
	a.json(t).wants(t, object{"status": "succeeded", "stdout": "own /tmp/exec- in\n"})
	s.says("ls /tmp; ls /workspace/artifacts | wc -l", "kept\n1\n") // nothing of the execs before
	s.run("cat /workspace/inputs/data/in.txt", "inputs", []object{{"path": "data/in.txt", "content": "hello"}}).wants(t, object{
		"status": "succeeded", "stdout": "hello",
	})

	// Time and output may be less than the session's, and nothing else may differ.
	s.run("echo 12345; sleep 30", "policy_overrides", object{"timeout_ms": 300, "max_stdout_bytes": 3}).wants(t, object{
		"status": "timeout", "stdout": "123", "stdout_truncated": true,
	})
	for _, c := range []struct {
		field, code string
		value       any
		status      int
	}{
		{"policy_overrides", "policy_denied", object{"timeout_ms": 20001}, 403},
		{"policy_overrides", "policy_denied", object{"memory_mb": 100}, 403},
		{"policy_overrides", "policy_denied", object{"fs.write": []string{"work/**"}}, 403},
		{"image", "policy_denied", "other:1", 403},
		{"project_id", "invalid_request", "another", 400},
		{"skill_id", "invalid_request", "shell.run", 400},
		{"session_id", "unknown_exec", r.str("exec_id"), 404},
	} {
		if a := s.try(object{"script": "true"}, c.field, c.value); a.Code != c.status || a.json(t).str("code") != c.code {
			t.Errorf("%s %v: %d %s", c.field, c.value, a.Code, a.Body)
		}
	}
	s.run("true", "policy_overrides", object{"memory_mb": 200}).wants(t, object{"status": "succeeded"}) // as it is

	// It may get more time, or less.
	before := s.state()
	extend := func(times object) answer {
		t.Helper()
		a, err := s.testServer.try(http.MethodPost, "/sandbox/sessions/"+s.id+"/extend", times)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	extend(object{"ttl_ms": 7_200_000, "idle_ms": 60_000}).json(t).wants(t, object{"idle_ms": 60000.0})
	if after := s.state(); after.str("expires_at") <= before.str("expires_at") || after.str("idle_expires_at") >= before.str("idle_expires_at") {
		t.Errorf("ends at %v, then %v", before, after)
	}
	if a := extend(object{"ttl_ms": 86_400_000}); a.Code != http.StatusBadRequest || !strings.Contains(string(a.Body), "max_ttl_seconds") {
		t.Errorf("beyond the longest time: %d %s", a.Code, a.Body)
	}
	if events := s.get("/audit/events?kind=session_extended&subject=" + s.id).list("items"); len(events) != 1 {
		t.Errorf("events %v", events)
	} else {
		events[0].wants(t, object{"data.ttl_ms": 7200000.0, "data.idle_ms": 60000.0})
	}

	// The rows name the session, in order. What its execs leave beside their directories is the
	// session's.
	s.says("echo left > /workspace/artifacts/left.txt", "")
	var seqs []float64
	for _, row := range s.get("/sandbox/execs?limit=100&session_id=" + s.id).list("items") {
		if row.str("exec_id") != s.id && row.str("status") != "rejected" {
			seqs = append(seqs, row.num("session_seq"))
		}
	}
	slices.Reverse(seqs)
	if fmt.Sprint(seqs) != "[1 2 3 4 5 6 7 8 9]" {
		t.Errorf("places %v", seqs)
	}
	s.end().wants(t, object{"end_reason": "deleted", "execs": nil})
	if a := s.artifact(s.id, "left.txt"); string(a.Body) != "left\n" {
		t.Errorf("left.txt: %d %s", a.Code, a.Body)
	}
	if a := s.try(object{"script": "true"}); a.Code != http.StatusConflict || a.json(t).str("code") != "session_ended" {
		t.Errorf("after the end: %d %s", a.Code, a.Body)
	}
	keyed().wants(t, object{"exec_id": once.str("exec_id"), "stdout": "once\n"})
	s.get("/sandbox/execs/"+s.id).wants(t, object{"exit_code": nil, "error_reason": "canceled"})
	found := false
	for _, row := range s.get("/sandbox/sessions?project_id=session-life").list("items") {
		found = found || row.str("session_id") == s.id
	}
	if !found {
		t.Error("the list lacks the session")
	}
}

// TestSessionEnds: a session ends for each of its reasons, and so does what runs in it.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	s := shared(t)
	s.startSession("session-idle", "idle_ms", 1000).awaitEnd().wants(t, object{"end_reason": "idle"})
	s.startSession("session-ttl", "ttl_ms", 1000).awaitEnd().wants(t, object{"end_reason": "expired"})

	under := s.startSession("session-under", "ttl_ms", 3000, "idle_ms", 1000) // an exec keeps it from being idle
	under.run("sleep 20").wants(t, object{"status": "error", "error_reason": "session_ended"})
	under.awaitEnd().wants(t, object{"end_reason": "expired"})

	killed := s.startSession("session-killed")
	killed.docker("kill", "secbox-"+killed.id)
	killed.awaitEnd().wants(t, object{"end_reason": "engine"})

	for name, value := range map[string]any{"idle_ms": 999, "ttl_ms": 0, "image": "other:1", "name": strings.Repeat("x", 256)} {
		a := s.send(http.MethodPost, "/sandbox/sessions", object{"project_id": "session-refused", name: value})
		if a.Code != http.StatusBadRequest && (name != "image" || a.Code != http.StatusForbidden) {
			t.Errorf("%s: %d %s", name, a.Code, a.Body)
		}
	}
}

// TestSessionBounds: too many sessions, and too many execs in one, are refused; one Idempotency-Key
// is one session.
func TestSessionBounds(t *testing.T) {
	t.Parallel()
	s := start(t, noPool, func(s *settings.Settings) {
		s.Sandbox.Sessions.Max, s.Sandbox.Sessions.MaxExecs, s.Sandbox.DiskGrowthMaxBytes = 1, 2, 50<<20
		s.Sandbox.Sessions.WarmImports = []string{"xml.dom", "none.such"}
	})
	request := object{"project_id": "demo", "idle_ms": 60000}
	first := s.send(http.MethodPost, "/sandbox/sessions", request, "Idempotency-Key", "k").json(t)
	again := s.send(http.MethodPost, "/sandbox/sessions", request, "Idempotency-Key", "k")
	if again.Code != http.StatusCreated || again.json(t).str("session_id") != first.str("session_id") ||
		again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("again: %d %s", again.Code, again.Body)
	}
	request["idle_ms"] = 60001
	if a := s.send(http.MethodPost, "/sandbox/sessions", request, "Idempotency-Key", "k"); a.json(t).str("code") != "idempotency_mismatch" {
		t.Errorf("another request: %s", a.Body)
	}
	if a := s.send(http.MethodPost, "/sandbox/sessions", request); a.Code != http.StatusTooManyRequests || a.Header.Get("Retry-After") == "" {
		t.Errorf("a second one: %d %s", a.Code, a.Body)
	}
	one := session{s, first.str("session_id")}
	imported := object{"context": "a", "code": "import sys\nprint('xml.dom' in sys.modules, sys.argv)"}
	one.try(imported).json(t).wants(t, object{"status": "succeeded", "stdout": "True ['-c']\n", "stderr": "", "detail": ""})
	imported["context"] = "b" // only the first one has them
	one.try(imported).json(t).wants(t, object{"stdout": "False ['-c']\n"})
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { one.run("until [ -e go ]; do sleep .05; done").wants(t, object{"status": "succeeded"}) })
	}
	eventually(t, "two run", func() bool { return one.state().num("execs_running") == 2 })
	if a := one.try(object{"script": "true"}); a.Code != http.StatusTooManyRequests || a.json(t).str("code") != "session_limit" {
		t.Errorf("a third exec: %d %s", a.Code, a.Body)
	}
	if err := os.WriteFile(s.work("demo", "go"), nil, 0o644); err != nil {
		t.Error(err)
	}
	both.Wait()
	one.end()
	// Removed files that are open count, too.
	full := s.startSession("demo")
	full.run(`exec 5>big; rm big; head -c 100M /dev/zero >&5; sleep 60`).wants(t, object{"status": "error", "error_reason": "session_ended"})
	full.awaitEnd().wants(t, object{"end_reason": "disk"})
	second := s.startSession("demo")
	second.says("echo works", "works\n")
	if err := s.app.Close(); err != nil { // a server that ends does not wait for its sessions
		t.Error(err)
	}
	if left := s.containers(); len(left) > 0 {
		t.Errorf("containers are left: %q", left)
	}
}

const removedDirectory = "it has no artifacts: a command of the session removed or replaced its directory for them"

// TestSessionAfterHostileExecs: what an exec leaves does not break the next one.
func TestSessionAfterHostileExecs(t *testing.T) {
	t.Parallel()
	s := shared(t).startSession("session-hostile", "policy_overrides", object{"memory_mb": 200, "pids": 60, "tmp_mb": 20, "timeout_ms": 30000})
	for name, script := range map[string]string{
		"stopped workers":              `for p in $(pgrep -f sandbox-init); do kill -STOP $p; done`,
		"killed processes":             `kill -9 -1`,
		"a fork bomb":                  `f() { f | f & }; f; sleep .2`,
		"daemons":                      `for i in 1 2 3; do (setsid setsid sleep 1000 &) ; done; sleep 1000 & kill -STOP $!`,
		"a full /tmp":                  `head -c 30M /dev/zero > /tmp/full; rm /tmp/full`,
		"lowered limits":               `python3 -c "import resource,os; resource.setrlimit(resource.RLIMIT_NPROC,(1,1))"; ulimit -n 5; umask 777`,
		"a poisoned profile":           `echo 'echo poisoned' > ~/.bashrc`,
		"a process that traces itself": `python3 -c "import ctypes,os; ctypes.CDLL(None).ptrace(0,0,0,0); os.kill(os.getpid(),19)"`,
		"killed workers":               `for p in $(pgrep -f sandbox-init); do [ $p = $PPID ] || kill -9 $p; done 2>/dev/null; true`,
		"masked signals":               `trap '' TERM INT HUP; (sleep 1000; true) &`,
		"memory":                       `python3 -c "a=bytearray(1<<30)"`,
	} {
		r := s.run(script, "policy_overrides", object{"timeout_ms": 1000}) // the first one stops what runs itself, too
		if r.str("status") == "" {
			t.Errorf("%s: %v", name, r)
		}
		s.says("echo works", "works\n")
	}
	s.says("pgrep -c sleep || true", "0\n")

	// A process that traces another one keeps it from being reaped.
	trace := `import ctypes, os, time
victim = next(p for p in os.listdir("/proc") if p.isdigit() and b"sleep\x00777" in open("/proc/"+p+"/cmdline","rb").read())
assert ctypes.CDLL(None).ptrace(0x4206, int(victim), 0, 0) == 0
open("/workspace/work/traced", "w").close()
time.sleep(1000)`
	done := make(chan object)
	go func() { done <- s.run("exec sleep 777", "policy_overrides", object{"timeout_ms": 3000}) }()
	eventually(t, "the victim runs", func() bool { return s.run("pgrep -f 'sleep 777'").str("stdout") != "" })
	go func() { done <- s.try(object{"code": trace}).json(t) }()
	for range 2 { // the victim ends at its timeout, and its tracer with it
		if r := <-done; r.str("status") == "succeeded" || r.str("status") == "" {
			t.Error(r)
		}
	}
	if _, err := os.Stat(s.work("session-hostile", "traced")); err != nil {
		t.Error("nothing was traced")
	}
	s.says("echo works", "works\n")
	s.state().wants(t, object{"status": "running"})
	s.end()
}

// TestSessionNeighbours: what one exec does to another one's files and processes is not evidence of
// the other's, or ends with the exec.
func TestSessionNeighbours(t *testing.T) {
	t.Parallel()
	s := shared(t).startSession("session-neighbours")
	// A background process ends with its exec.
	s.says("sleep 1000 & (setsid sh -c 'sleep 1001 &') ; echo started", "started\n")
	s.says("pgrep -c sleep || true", "0\n")

	// A neighbour keeps a file and a directory of another exec's artifacts open, and writes later.
	done := make(chan object)
	go func() {
		done <- s.run(`until [ -s dir ]; do sleep .02; done; cd "$(cat dir)"; exec 5>>held; until [ -e /workspace/work/ended ]; do sleep .02; done
			echo more >&5; echo new > new; ls; echo tried`)
	}()
	victim := s.run(`echo mine > $SECBOX_ARTIFACTS/held; echo $SECBOX_ARTIFACTS > dir; sleep .3`)
	if err := os.WriteFile(s.work("session-neighbours", "ended"), nil, 0o644); err != nil {
		t.Error(err)
	}
	if r := <-done; !strings.HasSuffix(r.str("stdout"), "tried\n") {
		t.Errorf("the neighbour: %v", r)
	}
	if list := victim.list("artifacts"); len(list) != 1 || list[0].str("path") != "held" || list[0].num("size") != 5 {
		t.Errorf("artifacts %v", list)
	}
	if a := s.artifact(victim.str("exec_id"), "held"); string(a.Body) != "mine\n" {
		t.Errorf("held: %d %s", a.Code, a.Body)
	}
	entries, err := os.ReadDir(filepath.Join(s.dir, "workspace", victim.str("artifacts_dir")))
	if names := fmt.Sprint(entries); os.Geteuid() == 0 && (err != nil || strings.Contains(names, "new")) {
		t.Errorf("%v: a neighbour has changed what was collected: %s", err, names)
	}

	// A directory that is gone or replaced leaves no artifacts, and a word.
	for script, detail := range map[string]string{
		`rm -r $SECBOX_ARTIFACTS`:                               removedDirectory,
		`rm -r $SECBOX_ARTIFACTS; ln -s /etc $SECBOX_ARTIFACTS`: removedDirectory,
		`mkdir ../artifacts/mine; echo forged > ../artifacts/mine/x; mv -T ../artifacts/mine $SECBOX_ARTIFACTS`: removedDirectory,
		`chmod 0 $SECBOX_ARTIFACTS`: "",
	} {
		r := s.run(script)
		r.wants(t, object{"status": "succeeded", "detail": detail})
		if len(r.list("artifacts")) != 0 {
			t.Errorf("%s: %v", script, r.list("artifacts"))
		}
	}

	// Links lead where they led in the container.
	links := s.run(`cd $SECBOX_ARTIFACTS; echo w > /workspace/work/w; echo own > own; ` +
		`ln -s $PWD/own 1; ln -s ../../work/w 2; ln -s own 3; ln -s ../work/w no; ln -s /workspace/artifacts/own no2`)
	var paths []string
	for _, a := range links.list("artifacts") {
		paths = append(paths, a.str("path"))
	}
	if fmt.Sprint(paths) != "[1 2 3 own]" {
		t.Errorf("links: %v", links)
	}
	s.end()
}

// cell runs code in a context of Python.
func (s session) cell(code string, more ...any) object {
	s.t.Helper()
	a := s.try(object{"context": "main", "code": code}, more...)
	if a.Code != http.StatusOK {
		s.t.Fatalf("%s: %d %s", code, a.Code, a.Body)
	}
	return a.json(s.t)
}

// TestSessionContexts: interpreters keep their state, and lose it only with a word.
func TestSessionContexts(t *testing.T) {
	t.Parallel()
	s := shared(t).startSession("session-contexts", "policy_overrides", object{"timeout_ms": 20000, "memory_mb": 200})
	s.says("for m in ast json linecache types; do echo 'raise SystemExit(1)' >$m.py; done; echo 'v = 1' >own.py", "")
	const loses, keeps = "the context main has ended with it, and loses its state", "the context main keeps its state"
	short := object{"timeout_ms": 1000, "kill_grace_ms": 800}
	for _, c := range []struct {
		code, results, stderr, detail string
		want                          object
		more                          []any
	}{
		{code: "import math\nx = 41\nprint('hi')", want: object{"stdout": "hi\n"}},
		{code: "x + 1", results: `[{"data":{"text/plain":"42"}}]`},
		{code: "_", results: `[{"data":{"text/plain":"42"}}]`},
		{code: "x; None", want: object{"stdout": ""}},
		{code: "x;", want: object{"stdout": ""}},
		{code: "x  # not quiet;", results: `[{"data":{"text/plain":"41"}}]`},
		{
			code: "def f():\n  return 1/0\nf()", stderr: "File \"<cell 7>\", line 2, in f\n    return 1/0\n",
			want: object{"status": "failed", "exit_code": 1.0},
		},
		{code: "x =", stderr: "SyntaxError", want: object{"status": "failed", "exit_code": 1.0}},
		{code: "import sys\nsys.exit(7)", want: object{"status": "failed", "exit_code": 7.0}},
		{code: "input('who?')", stderr: "input() has nobody to ask here", want: object{"status": "failed"}},
		{
			code: "class T:\n  def _repr_html_(self): return '<b>x</b>'\n  def _repr_png_(self): return b'p' * 70000\n" +
				"  def __repr__(self): return 'T'\ndisplay(T())",
			results: `[{"data":{"text/html":"\u003cb\u003ex\u003c/b\u003e","text/plain":"T"},"files":{"image/png":"result-1.png"}}]`,
		},
		{
			code: "import time\nx = 5\ntime.sleep(60)", stderr: "KeyboardInterrupt", detail: keeps, more: []any{"policy_overrides", short},
			want: object{"status": "timeout"},
		},
		{code: "x", results: `[{"data":{"text/plain":"5"}}]`},
		{
			code:    "import asyncio\nasync def g():\n  await asyncio.sleep(0)\n  return x + 1\ny = await g()\nawait g() + y",
			results: `[{"data":{"text/plain":"12"}}]`,
		},
		{
			code: "await asyncio.sleep(60)", stderr: "KeyboardInterrupt", detail: keeps,
			more: []any{"policy_overrides", short}, want: object{"status": "timeout"},
		},
		{code: "await asyncio.gather(g(), g())", results: `[{"data":{"text/plain":"[6, 6]"}}]`},
		{
			code:    "class B:\n  def _repr_mimebundle_(self, include=None, exclude=None): return {'text/html': '<i>', 'text/plain': 'b'}, {}\nB()",
			results: `[{"data":{"text/html":"\u003ci\u003e","text/plain":"b"}}]`,
		},
		{
			code: "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(60)", detail: loses,
			more: []any{"policy_overrides", short}, want: object{"status": "timeout"},
		},
		{code: "x", stderr: "NameError", detail: "; the context main began anew, without the state of the one before", want: object{"status": "failed"}},
		{
			code:    "class J:\n  def _repr_json_(self): return {'a': [1]}\n  def _repr_html_(self): return 1/0\n  def __repr__(self): return 'J'\nJ()",
			stderr:  "ZeroDivisionError",
			results: `[{"data":{"application/json":{"a":[1]},"text/plain":"J"}}]`,
		},
		{
			code:   "'x' * 300000; display('y' * 60000, 'y' * 60000, 'y' * 60000, 'y' * 60000, 'y' * 60000)",
			detail: "more than an answer: read the artifact results.json",
		},
		{code: "import os, sys\nos.close(1)\nsys.stdout = sys.stderr = None\nprint('x')", want: object{"stdout": ""}},
		{code: "print('again')\n1/0", stderr: "ZeroDivisionError", want: object{"status": "failed", "stdout": "again\n"}},
		{code: "sys.stdout.close(); sys.stderr.close()"},
		{code: "print('more')\nprint('err', file=sys.stderr)", stderr: "err\n", want: object{"stdout": "more\n"}},
		{
			code: "import os\nos.system('echo sub; echo err >&2')\nos._exit(9)", stderr: "err\n", detail: loses,
			want: object{"status": "failed", "exit_code": 9.0, "stdout": "sub\n"},
		},
		{code: "a = bytearray(1 << 30)", detail: loses, want: object{"status": "oom_killed"}},
		{code: "import own\nown.v", results: `[{"data":{"text/plain":"1"}}]`},
		{
			code:    "import os, sys\nme = os.getpid()\nif os.fork() == 0:\n  print('child')\n  sys.exit(3)\nos.waitstatus_to_exitcode(os.wait()[1])",
			results: `[{"data":{"text/plain":"3"}}]`, want: object{"stdout": "child\n"},
		},
		{code: "os.getpid() == me", results: `[{"data":{"text/plain":"True"}}]`},
		{
			code:   "class N:\n  def _repr_json_(self): return 'NaN'\n  def __repr__(self): return 'N'\nN()",
			stderr: "NaN is no JSON", results: `[{"data":{"text/plain":"N"}}]`,
		},
		{
			code:   "open(os.environ['SECBOX_ARTIFACTS'] + '/results.json', 'w').write('[1]');",
			detail: "its results are none that an answer can have",
		},
		{code: "print('x' * 100)", more: []any{"policy_overrides", object{"max_stdout_bytes": 10}}, want: object{"stdout": "xxxxxxxxxx"}},
		{code: "open('/dev/fd/1', 'wb').write(b'\\0forged 3\\0')", results: `[{"data":{"text/plain":"10"}}]`},
	} {
		r := s.cell(c.code, c.more...)
		want := object{"status": "succeeded", "audit": "stored"}
		maps.Copy(want, c.want)
		r.wants(t, want)
		results, _ := json.Marshal(r.at("results"))
		if r.at("results") == nil {
			results = nil
		}
		if string(results) != c.results || !strings.Contains(r.str("stderr"), c.stderr) || !strings.Contains(r.str("detail"), c.detail) {
			t.Errorf("%s:\n\tresults %s\n\tstderr %s\n\tdetail %s", c.code, results, r.str("stderr"), r.str("detail"))
		}
	}

	// An interrupt that comes at a cell's end harms nobody.
	s.cell("import time\nkept = 1")
	for n := range 8 {
		s.cell(fmt.Sprintf("time.sleep(%f)", 0.197+float64(n)/2000), "policy_overrides", short)
		s.cell("kept").wants(t, object{"status": "succeeded", "detail": ""})
	}

	s.cell("import signal\ndef late(*a): raise ValueError('late')\nsignal.signal(signal.SIGALRM, late)\nsignal.setitimer(signal.ITIMER_REAL, .03);")
	s.says("sleep .1", "")
	s.cell("kept").wants(t, object{"status": "succeeded", "detail": ""})

	// A shell keeps its directory, variables and functions.
	shell := func(script string) object { return s.try(object{"context": "sh", "script": script}).json(t) }
	shell("cd /tmp; A=5; f() { echo fn $A; }").wants(t, object{"status": "succeeded"})
	shell("pwd; f; false").wants(t, object{"exit_code": 1.0, "stdout": "/tmp\nfn 5\n"})
	if r := s.try(object{"context": "sh", "script": "sleep 60; echo after"}, "policy_overrides", short).json(t); r.str("stdout") != "" ||
		!strings.HasSuffix(r.str("detail"), "the context sh keeps its state") {
		t.Errorf("a shell at its timeout: %v", r)
	}
	if r := shell("echo $A; nosuch"); r.str("stdout") != "5\n" || !strings.Contains(r.str("stderr"), "line 1: nosuch") {
		t.Errorf("%v", r)
	}
	shell("echo to > $SECBOX_ARTIFACTS/file").wants(t, object{"artifacts_bytes": nil, "status": "succeeded"})
	shell("echo a; continue; echo b").wants(t, object{"status": "succeeded", "stdout": "a\n"})
	shell("echo a; break; echo b").wants(t, object{"status": "succeeded", "stdout": "a\n", "detail": ""})
	shell("read() { :; }; printf() { :; }; set -x").wants(t, object{"status": "succeeded"})
	if r := shell("set +x; echo $A"); r.str("stdout") != "5\n" || strings.Contains(r.str("stderr"), "secbox") {
		t.Errorf("%v", r)
	}
	shell("exit 4").wants(t, object{"exit_code": 4.0, "detail": "exit code 4; the context sh has ended with it, and loses its state"})
	shell("pwd").wants(t, object{"stdout": "/workspace/work\n"})

	// A repeated request, and a stream, have the results, too; a record names the context.
	once := object{"session_id": s.id, "exec": object{"context": "main", "code": "40 + 2"}}
	for range 2 {
		a, err := s.testServer.try(http.MethodPost, "/sandbox/execs", once, "Idempotency-Key", "results "+s.id)
		if err != nil || !strings.Contains(string(a.Body), `"results":[{"data":{"text/plain":"42"}}]`) {
			t.Errorf("%v %s", err, a.Body)
		}
		s.get("/sandbox/execs/"+a.json(t).str("exec_id")).wants(t, object{"context": "main", "cwd": "", "cpu_us": nil, "max_rss_bytes": nil})
	}
	if a := s.try(object{"context": "main", "code": "40 + 2"}, "stream", true); !strings.Contains(string(a.Body), `"results":[{"data":{"text/plain":"42"}}]`) {
		t.Errorf("a stream: %s", a.Body)
	}

	// Execs of one context take turns, a context can be ended, and misuse is refused.
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			s.try(object{"context": "turns", "code": "n = globals().get('n', 0)\nimport time\ntime.sleep(.01)\nn += 1"}).
				json(t).wants(t, object{"status": "succeeded"})
		})
	}
	all.Wait()
	s.try(object{"context": "turns", "code": "print(n)"}).json(t).wants(t, object{"stdout": "8\n"})
	s.cell("'z' * 70000").wants(t, object{"status": "succeeded"})
	names := map[string]string{}
	for _, c := range s.state().list("contexts") {
		names[c.str("name")] = c.str("kind")
	}
	if fmt.Sprint(names) != "map[main:python sh:shell turns:python]" {
		t.Errorf("contexts %v", names)
	}
	path := "/sandbox/sessions/" + s.id + "/contexts/turns"
	if a := s.send(http.MethodDelete, path, nil); a.Code != http.StatusNoContent {
		t.Errorf("end: %d %s", a.Code, a.Body)
	}
	if a := s.send(http.MethodDelete, path, nil); a.Code != http.StatusNotFound {
		t.Errorf("end again: %d %s", a.Code, a.Body)
	}
	ended := make(chan object)
	go func() {
		ended <- s.try(object{"context": "turns", "code": "open('turning', 'w').close()\nimport time\ntime.sleep(60)"}).json(t)
	}()
	eventually(t, "the context works", func() bool { _, err := os.Stat(s.work("session-contexts", "turning")); return err == nil })
	s.send(http.MethodDelete, path, nil)
	(<-ended).wants(t, object{"status": "failed", "exit_code": 137.0, "detail": "ended by signal 9; the context turns was ended by request"})
	s.try(object{"context": "turns", "code": "print(n)"}).json(t).wants(t, object{"status": "failed"})
	for range 5 {
		if a := s.send(http.MethodDelete, path, nil); a.Code != http.StatusNoContent {
			t.Errorf("end: %d %s", a.Code, a.Body)
		}
		r := s.try(object{"context": "turns", "code": "1"}).json(t)
		r.wants(t, object{"status": "succeeded"})
		if !strings.Contains(r.str("detail"), "began anew") {
			t.Errorf("%v", r)
		}
	}
	for _, exec := range []object{
		{"context": "main", "code": "1", "cwd": "/workspace/work"},
		{"context": "main", "code": "1", "env": object{"A": "1"}},
		{"context": "main", "code": "1", "stdin": "x"},
		{"context": "main", "kind": "python", "command": "python", "args": []string{"/workspace/inputs/a.py"}},
		{"context": strings.Repeat("x", 256), "code": "1"},
	} {
		if a := s.try(exec); a.Code != http.StatusBadRequest {
			t.Errorf("%v: %d %s", exec, a.Code, a.Body)
		}
	}
	s.try(object{"context": "main", "script": "true"}).json(t).wants(t, object{"code": "invalid_request"})
	s.refused(http.StatusBadRequest, "invalid_request", object{"project_id": "session-contexts", "exec": object{"context": "main", "code": "1"}})

	// An exec that runs when its session ends says so.
	done := make(chan object)
	go func() { done <- s.cell("import time\ntime.sleep(60)") }()
	eventually(t, "it runs", func() bool { return s.state().num("execs_running") == 1 })
	s.end()
	(<-done).wants(t, object{"status": "error", "error_reason": "session_ended"})
}

// TestSessionBackground: execs that nobody waits for have a record, output and an end as others.
func TestSessionBackground(t *testing.T) {
	t.Parallel()
	s := shared(t).startSession("session-background", "ttl_ms", 60000)
	request := object{"session_id": s.id, "background": true, "exec": object{"script": "echo begun; until [ -e go ]; do sleep .05; done; echo done"}}
	post := func(header ...string) object {
		t.Helper()
		a, err := s.testServer.try(http.MethodPost, "/sandbox/execs", request, header...)
		if err != nil || a.Code != http.StatusAccepted || !strings.HasPrefix(a.Header.Get("Location"), "/sandbox/execs/") {
			t.Fatalf("%v %d %s", err, a.Code, a.Body)
		}
		return a.json(t)
	}
	first := post("Idempotency-Key", "background "+s.id)
	id := first.str("exec_id")
	first.wants(t, object{"status": "running", "session_id": s.id, "policy_snapshot.fields.timeout_ms.layer": "backend"})
	if ms := first.num("policy_snapshot.fields.timeout_ms.value"); ms <= 60000 || ms > 24*3600*1000 { // as the session may be extended
		t.Errorf("timeout_ms is %v", ms)
	}
	if again := post("Idempotency-Key", "background "+s.id); again.str("exec_id") != id {
		t.Errorf("again: %v", again)
	}
	eventually(t, "there is output", func() bool {
		return string(s.send(http.MethodGet, "/sandbox/execs/"+id+"/stdout", nil).Body) == "begun\n"
	})
	s.says("echo beside", "beside\n")
	delete(request, "background")
	request["exec"] = object{"script": "echo async; exit 3"}
	async := post("Prefer", "respond-async")
	s.get("/sandbox/execs/"+async.str("exec_id")+"/wait").wants(t, object{"status": "failed", "exit_code": 3.0, "session_id": s.id})
	if err := os.WriteFile(s.work("session-background", "go"), nil, 0o644); err != nil {
		t.Error(err)
	}
	s.get("/sandbox/execs/"+id+"/wait").wants(t, object{"status": "succeeded", "stdout_bytes": 11.0})

	request["background"], request["exec"] = true, object{"script": "sleep 1000"}
	stopped, left := post().str("exec_id"), post().str("exec_id")
	if a := s.cancel(stopped); a.Code != http.StatusAccepted {
		t.Errorf("cancel: %d %s", a.Code, a.Body)
	}
	s.get("/sandbox/execs/"+stopped+"/wait").wants(t, object{"status": "canceled"})
	if a := s.try(object{"context": "main", "code": "1"}, "background", true); a.Code != http.StatusBadRequest {
		t.Errorf("in a context: %d %s", a.Code, a.Body)
	}
	seen := func() int { return len(s.get("/sandbox/sessions/" + s.id + "/usage").list("samples")) }
	eventually(t, "there are samples of what it uses", func() bool { return seen() > 0 })
	if r := s.send(http.MethodGet, "/sandbox/sessions/"+s.id+"/processes", nil); !strings.Contains(string(r.Body), `"command":"sleep 1000"`) {
		t.Errorf("processes: %d %s", r.Code, r.Body)
	}
	s.end()
	s.get("/sandbox/execs/"+left+"/wait").wants(t, object{"status": "error", "error_reason": "session_ended"})
	if m := s.send(http.MethodGet, "/sandbox/execs/"+s.id+"/manifest", nil); seen() == 0 || !strings.Contains(string(m.Body), `"usage.json"`) {
		t.Errorf("%d samples: %s", seen(), m.Body)
	}
	if r := s.send(http.MethodGet, "/sandbox/sessions/"+s.id+"/processes", nil); r.Code != http.StatusConflict {
		t.Errorf("processes of an ended session: %d %s", r.Code, r.Body)
	}
}

// TestSessionOverMCP is an agent's work by tools: state stays between the calls, an image is seen,
// also one that is a file, and the session ends with the MCP session.
func TestSessionOverMCP(t *testing.T) {
	t.Parallel()
	s := shared(t)
	client := s.mcpClient("?project_id=session-mcp", nil)
	call := func(tool string, arguments map[string]any) *mcp.CallToolResult {
		t.Helper()
		r, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := call("session_run", map[string]any{"command": "echo 1,2 >/tmp/data.csv; echo out >$SECBOX_ARTIFACTS/out.txt"})
	id, _ := r.Meta["secbox/session_id"].(string)
	if link, ok := r.Content[len(r.Content)-1].(*mcp.ResourceLink); r.IsError || id == "" || !ok || link.Name != "out.txt" {
		t.Fatalf("%s %v", mcpText(r), r.Meta)
	}
	call("session_python", map[string]any{"code": "rows = open('/tmp/data.csv').read().strip().split(',')"})
	r = call("session_python", map[string]any{"code": `class Picture:
    def __init__(self, size): self.size = size
    def _repr_png_(self): return b"\x89PNG\r\n\x1a\n" + b"0" * self.size
display(Picture(9), Picture(100 << 10))
sum(map(int, rows))`})
	images := 0
	for _, c := range r.Content {
		if image, ok := c.(*mcp.ImageContent); ok && image.MIMEType == "image/png" {
			images++
		}
	}
	if images != 2 || !strings.Contains(mcpText(r), "\n3") || r.Meta["secbox/session_id"] != id {
		t.Errorf("%d images: %s", images, mcpText(r))
	}
	call("session_run", map[string]any{"command": "cd /tmp; sleep 1000 & echo $! >pid", "context": "sh"})
	r = call("session_run", map[string]any{"command": "pwd; kill -0 $(cat pid) && echo alive", "context": "sh"})
	if !strings.Contains(mcpText(r), "/tmp\nalive") {
		t.Errorf("%s", mcpText(r))
	}
	if r := call("session_python", map[string]any{"code": "while True: pass", "timeout_ms": 2500}); !r.IsError ||
		!strings.Contains(mcpText(r), "main keeps its state") {
		t.Errorf("%s", mcpText(r))
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	session{s, id}.awaitEnd().wants(t, object{"end_reason": "deleted", "name": "mcp", "project_id": "session-mcp"})
}

// TestSkillInSession: a skill whose manifest allows it runs beside the execs of a session, and its
// output is its own.
func TestSkillInSession(t *testing.T) {
	t.Parallel()
	inSessions := func(m object) {
		m["runtime"].(object)["session"] = "optional"
		m["permissions"].(object)["fs"].(object)["write"] = []string{"work/**", "artifacts/**"}
	}
	const script = `cat /tmp/left; printf '{"n": %s}' "$(jq .n "$SKILL_INPUT")" >"$SKILL_OUTPUT"`
	s, _ := withSkills(t, []trialSkill{
		{id: "trial.both", script: script, change: inSessions, outputs: object{"type": "object", "required": []string{"n"}}},
		{id: "trial.alone", script: script},
		{id: "trial.narrow", script: script, change: func(m object) { m["runtime"].(object)["session"] = "optional" }},
	})
	in := s.startSession("skill-in-session")
	in.says("echo left >/tmp/left", "")
	for n := range 2 {
		r := s.invoke("trial.both", object{"session_id": in.id, "inputs": object{"n": n}})
		r.wants(t, object{
			"exec.status": "succeeded", "exec.stdout": "left\n", "outputs": object{"n": float64(n)},
		})
		s.get("/sandbox/execs/"+r.str("exec.exec_id")).wants(t, object{
			"session_id": in.id, "session_seq": float64(2 + n), "skill_id": "trial.both",
			"policy_snapshot.fields.timeout_ms": object{
				"value": 30000.0, "layer": "manifest", "ceiling": 60000.0, "ceiling_from": "session",
			},
		})
	}
	a, err := s.try(http.MethodPost, "/skills/trial.both/invoke", object{"session_id": in.id, "inputs": object{"n": 3}}, "Prefer", "respond-async")
	if err != nil || a.Code != http.StatusAccepted {
		t.Fatalf("%v: %d %s", err, a.Code, a.Body)
	}
	id := a.json(t).str("exec_id")
	eventually(t, "it ends", func() bool { return s.get("/sandbox/execs/"+id).str("status") == "succeeded" })
	if text := string(s.artifact(id, "skill_output.json").Body); text != `{"n": 3}` {
		t.Errorf("its output is %q", text)
	}

	for _, c := range []struct {
		skill string
		more  object
		code  int
		says  string
	}{
		{"trial.alone", nil, http.StatusBadRequest, "runs in a container of its own"},
		{"trial.narrow", nil, http.StatusForbidden, "the skill wants inputs:ro,work:ro,artifacts:rw, and the session has inputs:ro,work:rw,artifacts:rw"},
		{"trial.both", object{"project_id": "another"}, http.StatusBadRequest, "is not the session's project"},
		{"trial.both", object{"session_id": "01a22c6d-3bf4-73bc-b61e-c2deb2075e7f"}, http.StatusNotFound, "no session"},
		{"trial.both", object{"policy_overrides": object{"memory_mb": 64}}, http.StatusForbidden, "belongs to the session's container"},
	} {
		request := object{"session_id": in.id}
		maps.Copy(request, c.more)
		if a := s.send(http.MethodPost, "/skills/"+c.skill+"/invoke", request); a.Code != c.code || !strings.Contains(string(a.Body), c.says) {
			t.Errorf("%s %v: %d %s", c.skill, c.more, a.Code, a.Body)
		}
	}

	client := s.mcpClient("?project_id=skill-in-session", nil)
	result, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "skill.trial.both", Arguments: map[string]any{"session_id": in.id, "n": 5}})
	if err != nil {
		t.Fatal(err)
	}
	if result.IsError || !strings.Contains(mcpText(result), "left") {
		t.Errorf("%s", mcpText(result))
	}
	in.end()
	if a := s.send(http.MethodPost, "/skills/trial.both/invoke", object{"session_id": in.id}); a.Code != http.StatusConflict {
		t.Errorf("after its end: %d %s", a.Code, a.Body)
	}
}
