//go:build unix

package api_test

import (
	"maps"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/retention"
	"secbox/sandbox/places/placestest"
)

// TestSandboxCommandIsRecorded checks the record and the answer.
func TestSandboxCommandIsRecorded(t *testing.T) {
	t.Parallel()
	f := start(t)
	id, secret := f.token(tokens.Spec{Role: tokens.Worker, Agents: []string{"ag"}})
	r := f.do(request{method: "POST", path: inSandbox + "bash", body: `["-c", "echo hi; echo no >&2; pwd >where; exit 3"]`, token: secret})
	if got := string(r.body); got != `{"status":"success","data":{"stdout":"hi\n","stderror":"no\n","exit_code":3}}`+"\n" {
		t.Errorf("answered %s", got)
	}
	rec := decodeAs[wire.ExecRecord](t, f.do(request{path: "/sandbox/execs/" + r.Header.Get("X-Exec-Id"), token: secret}), 200)
	if rec.Cmd != "bash" || rec.AgentID != "ag" || rec.UserID != "u" || rec.ProjectID != "ag~u" || rec.Backend != "none" || rec.Runner != "" ||
		rec.Cwd != "/workspace" ||
		rec.RequestedBy != id || rec.Status != audit.Failed || *rec.ExitCode != 3 || rec.StdoutBytes != 3 {
		t.Errorf("recorded %+v", rec)
	}
	if ran := f.runner.seen(); len(ran) != 1 { // it was asked for the policy only
		t.Errorf("the runner was asked for %+v", ran)
	}
	if where := data[wire.V1Content](t, f.do(request{path: "/v1/sandbox/u/ag/content?path=where", token: secret})).Content; where != filepath.Join(f.root,
		"projects", "ag~u", "work")+"\n" {
		t.Errorf("it ran in %q", where)
	}
	// without a body, without arguments
	if got := data[wire.V1Output](t, f.do(request{method: "POST", path: inSandbox + "ls", token: secret})); got.Stdout != "where\n" {
		t.Errorf("%+v", got)
	}

	f.runner.maxStdout = 2000
	long := data[wire.V1Output](t, f.do(request{
		method: "POST", path: inSandbox + "bash", body: `["-c", "printf %2001d 0; printf %3000d 0 >&2"]`,
		token: secret,
	}))
	if !long.StdoutTruncated || long.StderrTruncated || len(long.Stdout) != 2000 || len(long.Stderror) != 3000 {
		t.Errorf("%d and %d bytes, truncated %v and %v", len(long.Stdout), len(long.Stderror), long.StdoutTruncated, long.StderrTruncated)
	}

	f.runner.timeoutCeiling = 500
	got := data[wire.V1Output](t, f.do(request{method: "POST", path: inSandbox + "bash", body: `["-c", "echo begun; sleep 1000"]`, token: secret}))
	if got.ExitCode != -1 || got.Stdout != "begun\n" || !strings.Contains(got.Stderror, "timeout_ms=500") {
		t.Errorf("its time was up: %+v", got)
	}
	for query, want := range map[string]int{"backend=none": 4, "backend=docker": 0, "runner=laptop": 0, "backend=none&status=timeout": 1} {
		if list := decodeAs[wire.ExecList](t, f.do(request{path: "/sandbox/execs?" + query, token: secret}), 200); len(list.Items) != want {
			t.Errorf("%s: %d rows, want %d", query, len(list.Items), want)
		}
	}
}

// TestChoiceEndsRunningCommands: a new choice ends the commands in the previous sandbox.
func TestChoiceEndsRunningCommands(t *testing.T) {
	t.Parallel()
	f := start(t)
	answered := make(chan reply, 1)
	go func() { answered <- f.post(inSandbox+"bash", `["-c", "echo begun >begun; sleep 1000"]`) }()
	begun := filepath.Join(f.root, "projects", "ag~u", "work", "begun")
	for {
		if _, err := os.Stat(begun); err == nil {
			break
		}
		select {
		case r := <-answered:
			t.Fatalf("it ended before it began: %s", r.body)
		case <-time.After(5 * time.Millisecond):
		}
	}
	data[wire.V1Backend](t, f.do(request{method: "PUT", path: whereU, body: remotely}))
	if r := <-answered; r.StatusCode < 400 || !strings.Contains(string(r.body), "moved to another backend") {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	list := decodeAs[wire.ExecList](t, f.get("/sandbox/execs?user_id=u"), 200)
	if len(list.Items) != 1 || list.Items[0].Status != audit.Canceled || list.Items[0].ErrorReason != audit.ReasonCanceled {
		t.Errorf("%+v", list.Items)
	}
}

// TestExamplesOfDocsWork runs each command in a shell and expects a declared successful status.
func TestExamplesOfDocsWork(t *testing.T) {
	t.Parallel()
	f, kept := startWithInputs(t, func(c *api.Config) { c.Runners, c.PreviewDomain = &dialledIn{}, previewDomain })
	f.runner.files, f.runner.inside = map[string]string{"hi.txt": "hi\n"}, placestest.Here{Dir: t.TempDir()}
	doc, err := openapi3.NewLoader().LoadFromData(api.Contract())
	if err != nil {
		t.Fatal(err)
	}
	good, public := map[string][]string{}, map[string]bool{} // by operation
	for _, item := range doc.Paths.Map() {
		for _, op := range item.Operations() {
			public[op.OperationID] = op.Security != nil
			for status := range op.Responses.Map() {
				if status[0] == '2' {
					good[op.OperationID] = append(good[op.OperationID], status)
				}
			}
		}
	}

	commands := examples(string(f.get("/docs").body))
	protocols := []string{"mcpSend", "mcpListen", "mcpEnd", "runnerLink", "runnerTransferOffset", "runnerTransferSend", "runnerTransferFetch", "execTerminal"}
	for id := range good {
		if commands[id] == "" && !slices.Contains(protocols, id) {
			t.Errorf("%s has no example", id)
		}
	}

	putOwnImage(t, f)
	dir, downloads := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "weather_skill.zip"), []byte(weather(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	// Examples that make things run first, and those that remove them last. No real exec has left a
	// manifest or a policy, and none runs.
	first := []string{"uploadSkill", "editSkillFile", "editSandboxFile", "publishToRegistry", "installFromRegistry", "writeProjectFile", "writeSessionFile"}
	last := []string{
		"moveProjectFile", "moveSessionFile",
		"removeProject", "uninstall", "withdrawFromRegistry", "deletePackage", "removeHold", "followExecs", "watchSessionFiles",
	}
	f.inWork("1001", "agent001", "skills/csv-report/SKILL.md", "# CSV")
	elsewhere := slices.Concat(first, last, []string{"getManifest", "getMeta", "replayExec", "getComparison", "sendStdin"})
	order := slices.Concat(first, slices.DeleteFunc(slices.Sorted(maps.Keys(commands)), func(id string) bool {
		return slices.Contains(elsewhere, id)
	}), last)
	execID := f.record(func(r *audit.Record) {
		r.ManifestDigest, r.Inputs = strings.Repeat("ab", 32), []audit.Input{kept.add("main.py", "print(1)")}
	}).ExecID
	sessionID := f.session().ExecID
	f.runner.published = map[string]string{"terminal.cast": "{}"}
	if err := admin.Record(t.Context(), f.db.AdminEvents(), admin.Export, "jsonl", nil); err != nil {
		t.Fatal(err)
	}
	f.logEvents()
	for _, id := range order {
		if id == "installFromRegistry" { // the author has it
			if err := os.RemoveAll(filepath.Join(f.root, "projects/agent001~1001/work/skills/csv-report")); err != nil {
				t.Fatal(err)
			}
		}
		command := strings.Replace(commands[id], `"backend": "docker"`, `"backend": "none"`, 1) // there is no engine here
		if strings.Contains(command, "$TOKEN") {
			t.Errorf("%s sends a token, and none is needed:\n%s", id, command)
		}
		if id == "followExecs" { // ends its streams, which have no end otherwise
			f.server.Close()
		}
		if id == "removeHold" {
			holds, err := f.db.Retention().Holds(t.Context(), retention.HoldCursor{}, 1)
			if err != nil || len(holds) == 0 {
				t.Fatal(holds, err)
			}
			command = strings.Replace(command, "019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d", holds[0].ID, 1)
		}
		cmd := osexec.CommandContext(t.Context(), "sh", "-c", strings.Replace(command, "curl ", `curl -w '\n%{http_code}' `, 1))
		cmd.Dir = dir
		if id != "uploadSkill" {
			cmd.Dir = downloads // curl overwrites nothing
		}
		cmd.Env = append(os.Environ(), "EXEC_ID="+execID, "SESSION_ID="+sessionID)
		out, err := cmd.CombinedOutput()
		if status := string(out[max(0, len(out)-3):]); err != nil || !slices.Contains(good[id], status) {
			t.Errorf("%s: %v, want %v\n%s\n%.400s", id, err, good[id], command, out)
		}
	}
	for _, name := range []string{"hi.txt", "main.py", "weather_skill.zip"} {
		if _, err := os.Stat(filepath.Join(downloads, name)); err != nil {
			t.Error(err)
		}
	}

	// Once a token is needed, the commands send it.
	f.token(tokens.Spec{Role: tokens.Worker})
	for id, command := range examples(string(f.get("/docs").body)) {
		if strings.Contains(command, "Bearer $TOKEN") == public[id] {
			t.Errorf("%s: public %v, and the command is\n%s", id, public[id], command)
		}
	}
}

func TestRemoteCommandSeesEdits(t *testing.T) {
	t.Parallel()
	f := onTheirMachine(t)
	data[string](t, f.edit("deep/down/a.txt", "one\r\n"))
	if got := data[wire.V1Output](t, f.post(inSandbox+"cat", `["deep/down/a.txt"]`)); got.Stdout != "one\r\n" {
		t.Errorf("cat: %+v", got)
	}
	rows := decodeAs[wire.ExecList](t, f.get("/sandbox/execs?backend=remote"), 200)
	if len(rows.Items) != 1 || rows.Items[0].Image != "" {
		t.Errorf("rows %+v", rows.Items)
	}
}

// TestCommandOfAgentNamedBackend: the routes of such an agent have one step more than the routes
// that choose a backend.
func TestCommandOfAgentNamedBackend(t *testing.T) {
	t.Parallel()
	f := start(t)
	if r := f.post("/v1/sandbox/v/backend/execute?command=echo", `["hi"]`); data[wire.V1Output](t, r).Stdout != "hi\n" {
		t.Errorf("%s", r.body)
	}
}
