package api_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
	"secbox/policy"
	"secbox/runner"
)

func TestRun(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.runner.files = map[string]string{"hi.txt": "hi\n"}
	r := f.do(request{method: "POST", path: "/sandbox/execs", body: `{
		"project_id": "demo", "conversation_id": "c1", "user_id": "u1", "skill_id": "",
		"exec": {"kind": "python", "command": "python", "args": ["-c", "print(1)"], "cwd": "/workspace/work", "env": {"K": "V", "1": "x"}, "stdin": "in"},
		"image": "img", "inputs": [{"path": "a.txt", "content": "aGk=", "encoding": "base64"}, {"path": "b", "content": "", "encoding": "utf-8"}, {"path": "c", "content": "x", "mode": "0644"},
			{"path": "d", "content": "#!/bin/sh", "mode": "0755"}],
		"policy_overrides": {"timeout_ms": 5000, "cpu_cores": 0.5, "net": {"mode": "none"}, "fs.read": [], "fs": {"write": ["artifacts/**"]}},
		"task_ref": {"task_id": "t1"}}`, header: map[string]string{"Idempotency-Key": "k 1"}})
	got := decodeAs[wire.ExecResult](t, r, 200)
	if got.Status != audit.Succeeded || got.ExitCode == nil || *got.ExitCode != 0 || got.Stdout != "hi\n" || got.Audit != "stored" ||
		got.ArtifactsDir != "projects/demo/artifacts/"+got.ExecID || got.StdoutPath != got.ArtifactsDir+"/stdout.txt" ||
		got.StderrPath != got.ArtifactsDir+"/stderr.txt" || len(got.Artifacts) != 1 || got.Artifacts[0].Path != "hi.txt" {
		t.Errorf("got %s", r.body)
	}
	req := f.runner.seen()[0]
	req.Digest = ""
	want := runner.Request{
		ProjectID: "demo", ConversationID: "c1", UserID: "u1", TaskID: "t1", Image: "img",
		Command: runner.Command{
			Kind: "python", Name: "python", Args: []string{"-c", "print(1)"}, Cwd: "/workspace/work",
			Env: map[string]string{"K": "V", "1": "x"}, Stdin: []byte("in"),
		},
		Inputs: []runner.Input{
			{Path: "a.txt", Content: []byte("hi")},
			{Path: "b", Content: []byte{}},
			{Path: "c", Content: []byte("x")},
			{Path: "d", Content: []byte("#!/bin/sh"), Executable: true},
		},
		Overrides: policy.Layer{
			Limits: policy.Limits{
				TimeoutMS: new(int64(5000)),
				CPUCores:  new(0.5),
			},
			NetMode: new("none"),
			FSRead:  []string{},
			FSWrite: []string{"artifacts/**"},
		},
		RequestedBy: "loopback", IdempotencyKey: "k 1",
	}
	if !reflect.DeepEqual(req, want) {
		t.Errorf("the runner was given\n%+v, want\n%+v", req, want)
	}
	if f.runner.seen()[0].Digest == "" {
		t.Error("no digest")
	}
}

// TestShortForms: script and code have the same command and digest as the long form.
func TestShortForms(t *testing.T) {
	t.Parallel()
	f := start(t)
	for short, long := range map[string]string{
		`{"script": "echo $0", "stdin": "x"}`: `{"kind": "shell", "command": "bash", "args": ["-lc", "echo $0"], "stdin": "x"}`,
		`{"kind": "shell", "script": "true"}`: `{"kind": "shell", "command": "bash", "args": ["-lc", "true"]}`,
		`{"code": "print(1)"}`:                `{"kind": "python", "command": "python", "args": ["/tmp/exec-code.py", "print(1)"]}`,
		`{"args": [], "code": "1"}`:           `{"kind": "python", "command": "python", "args": ["/tmp/exec-code.py", "1"]}`,
	} {
		for _, command := range []string{short, long} {
			if r := f.post("/sandbox/execs", `{"project_id": "demo", "exec": `+command+`}`); r.StatusCode != 200 {
				t.Fatalf("%s: %d %s", command, r.StatusCode, r.body)
			}
		}
		seen := f.runner.seen()
		a, b := seen[len(seen)-2], seen[len(seen)-1]
		if !reflect.DeepEqual(a.Command, b.Command) || a.Digest != b.Digest {
			t.Errorf("%s is %+v, %s is %+v", short, a.Command, long, b.Command)
		}
	}
}

// TestBodiesOfOtherWriters: a body is understood with a byte order mark, as editors of Windows
// write it, and with whole numbers as Python writes computed ones.
func TestBodiesOfOtherWriters(t *testing.T) {
	t.Parallel()
	f := start(t)
	for _, body := range []string{
		"\xef\xbb\xbf" + withOverrides(`{"timeout_ms": 5000}`), withOverrides(`{"timeout_ms": 5000.0}`),
		withOverrides(`{"timeout_ms": 5e3}`),
	} {
		if r := f.post("/sandbox/execs", body); r.StatusCode != 200 {
			t.Errorf("%q: %d %s", body, r.StatusCode, r.body)
		} else if seen := f.runner.seen(); *seen[len(seen)-1].Overrides.TimeoutMS != 5000 {
			t.Errorf("%q: %d ms", body, *seen[len(seen)-1].Overrides.TimeoutMS)
		}
	}
}

func TestUnusualResults(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.runner.run = func(_ context.Context, req runner.Request) (runner.Result, error) {
		rec := newRecord(req)
		rec.Status, rec.ErrorReason, rec.StartedAt, rec.ArtifactsPath = audit.Errored, audit.StartFailed, time.Time{}, ""
		return runner.Result{Record: rec, Spooled: true, Replayed: true, Stdout: []byte("a\xffb")}, nil
	}
	r := f.post("/sandbox/execs", `{"project_id": "demo", `+aCommand+`}`)
	got := decodeAs[map[string]any](t, r, 200)
	for field, want := range map[string]any{
		"audit": "spooled", "exit_code": nil, "started_at": nil, "ended_at": nil, "stdout": "a\uFFFDb", "stdout_path": "", "artifacts_dir": "",
		"artifacts": []any{}, "status": "error", "error_reason": "start_failed",
	} {
		if v, ok := got[field]; !ok || !reflect.DeepEqual(v, want) {
			t.Errorf("%s is %#v, want %#v", field, v, want)
		}
	}
	if r.Header.Get("Idempotency-Replayed") != "true" {
		t.Error("a replay does not say so")
	}
}

func TestRunnerErrors(t *testing.T) {
	t.Parallel()
	denied := fault.New(fault.PolicyDenied, "memory_mb: above the ceiling")
	denied.ExecID = "019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d"
	denied.Fields = []fault.Field{{Field: "policy_overrides.memory_mb", Reason: "is above the ceiling", Asked: 16384, Ceiling: 8192, Layer: "request"}}
	full := fault.New(fault.QueueFull, "64 execs wait")
	full.RetryAfter = 1500 * time.Millisecond
	for name, tc := range map[string]struct {
		err    error
		code   fault.Code
		fields []string
		header map[string]string
	}{
		"policy":   {denied, fault.PolicyDenied, []string{"policy_overrides.memory_mb"}, nil},
		"queue":    {fmt.Errorf("admission: %w", full), fault.QueueFull, nil, map[string]string{"Retry-After": "2"}},
		"bad path": {fault.BadField("inputs[0].path", "is absolute"), fault.InvalidRequest, []string{"inputs[0].path"}, nil},
		"engine": {
			fault.Wrap(fault.EngineUnavailable, errors.New("dial unix"), "the engine does not answer"), fault.EngineUnavailable, nil,
			map[string]string{"Retry-After": "5"},
		},
		"database": {
			fault.New(fault.DatabaseUnavailable, "the database does not answer"), fault.DatabaseUnavailable, nil,
			map[string]string{"Retry-After": "5"},
		},
		"disk":         {fault.New(fault.DiskFull, "no room"), fault.DiskFull, nil, map[string]string{"Retry-After": ""}},
		"conflict":     {fault.New(fault.InputInUse, "in use"), fault.InputInUse, nil, nil},
		"image":        {fault.New(fault.ImageMissing, "no image"), fault.ImageMissing, nil, nil},
		"skill":        {fault.New(fault.UnknownSkill, "no skill"), fault.UnknownSkill, nil, nil},
		"a stranger's": {errors.New("password=hunter2"), fault.Internal, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t)
			f.runner.run = func(context.Context, runner.Request) (runner.Result, error) { return runner.Result{}, tc.err }
			r := f.post("/sandbox/execs", `{"project_id": "demo", `+aCommand+`}`)
			p := r.wants(t, tc.code, tc.fields...)
			for name, want := range tc.header {
				if got := r.Header.Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
			if strings.Contains(string(r.body), "hunter2") || strings.Contains(string(r.body), "dial unix") {
				t.Errorf("the answer shows the cause: %s", r.body)
			}
			id := strings.TrimPrefix(p.Instance, "urn:request:")
			if id == "" || id != r.Header.Get("X-Request-Id") {
				t.Errorf("instance %q, X-Request-Id %q", p.Instance, r.Header.Get("X-Request-Id"))
			}
			if tc.code == fault.Internal && (!strings.Contains(f.log.String(), "hunter2") || !strings.Contains(f.log.String(), id)) {
				t.Errorf("the log has no cause with the request's id: %s", f.log)
			}
			if name == "policy" && (p.ExecID != denied.ExecID || p.Errors[0].Layer != "request" || p.Errors[0].Ceiling != float64(8192)) {
				t.Errorf("got %s", r.body)
			}
		})
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.runner.run = func(context.Context, runner.Request) (runner.Result, error) { panic("at the disco") }
	f.post("/sandbox/execs", `{"project_id": "demo", `+aCommand+`}`).wants(t, fault.Internal)
	if !strings.Contains(f.log.String(), "at the disco") {
		t.Error("the log does not have the panic")
	}
	f.get("/healthz")
}

func TestListPages(t *testing.T) {
	t.Parallel()
	f := start(t)
	want := map[string]bool{}
	for range 7 {
		want[f.record(nil).ExecID] = true
	}
	for _, limit := range []int{1, 2, 3, 7, 8} {
		seen, path, pages := map[string]bool{}, fmt.Sprintf("/sandbox/execs?limit=%d", limit), 0
		for next := path; next != ""; pages++ {
			page := decodeAs[wire.ExecList](t, f.get(next), 200)
			for _, item := range page.Items {
				if seen[item.ExecID] {
					t.Fatalf("limit %d: %s twice", limit, item.ExecID)
				}
				seen[item.ExecID] = true
			}
			if next = ""; page.NextCursor != nil {
				next = path + "&cursor=" + *page.NextCursor
			}
		}
		if !reflect.DeepEqual(seen, want) || pages != (7+limit-1)/limit {
			t.Errorf("limit %d: %d of 7 in %d pages", limit, len(seen), pages)
		}
	}
}

func TestListFilters(t *testing.T) {
	t.Parallel()
	f := start(t)
	a := f.record(func(r *audit.Record) {
		r.TaskID, r.ConversationID, r.SkillID, r.UserID, r.ProjectID = "t1", "c1", "shell.run", "u1", "ag~u1"
	})
	b := f.record(func(r *audit.Record) { r.Status, r.ErrorReason = audit.Failed, audit.NonzeroExit })
	after := b.CreatedAt.Add(time.Hour).Format(time.RFC3339)
	for query, want := range map[string][]string{
		"":                          {b.ExecID, a.ExecID},
		"?task_id=t1":               {a.ExecID},
		"?project_id=ag~u1":         {a.ExecID},
		"?conversation_id=c1":       {a.ExecID},
		"?skill_id=shell.run":       {a.ExecID},
		"?user_id=u1":               {a.ExecID},
		"?status=failed":            {b.ExecID},
		"?status=failed&task_id=t1": {},
		"?task_id=":                 {b.ExecID, a.ExecID},
		"?since=" + after:           {},
		"?until=" + after:           {b.ExecID, a.ExecID},
		"?since=2026-01-01T00:00:00.5%2B02:00&until=" + after: {b.ExecID, a.ExecID},
		"?task_id=%27%20OR%201=1":                             {},
	} {
		page := decodeAs[wire.ExecList](t, f.get("/sandbox/execs"+query), 200)
		got := []string{}
		for _, item := range page.Items {
			got = append(got, item.ExecID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
	}
}

func TestGetExec(t *testing.T) {
	t.Parallel()
	f := start(t)
	rec := f.record(func(r *audit.Record) {
		r.EnvKeys, r.Inputs = []string{"K"}, []audit.Input{{Path: "a", Size: 1, SHA256: "x"}}
	})
	got := decodeAs[map[string]any](t, f.get("/sandbox/execs/"+rec.ExecID), 200)
	raw, _ := json.Marshal(rec)
	var want map[string]any
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	for name, value := range want {
		if at, ok := value.(string); ok && strings.HasSuffix(name, "_at") {
			parsed, err := time.Parse(time.RFC3339Nano, at)
			if err != nil {
				t.Fatal(err)
			}
			value = parsed.UTC().Format("2006-01-02T15:04:05.000000Z")
		}
		if value == nil && (name == "args" || name == "env_hmacs") {
			value = []any{}
		}
		if !reflect.DeepEqual(got[name], value) {
			t.Errorf("%s is %#v, want %#v", name, got[name], value)
		}
	}
	if upper := f.get("/sandbox/execs/" + strings.ToUpper(rec.ExecID)); upper.StatusCode != 200 {
		t.Errorf("an id in upper case: %d", upper.StatusCode)
	}
}

// TestRequestOfSkill: a record has the request, a list its beginning, and an export all of it.
func TestRequestOfSkill(t *testing.T) {
	t.Parallel()
	f := start(t)
	long := `{"script":"` + strings.Repeat("x", 3000) + `"}`
	asked, other := f.record(func(r *audit.Record) { r.SkillID, r.Request = "shell.run", long }), f.record(nil)
	if got := decodeAs[wire.ExecRecord](t, f.get("/sandbox/execs/"+asked.ExecID), 200); got.Request == nil || *got.Request != long {
		t.Errorf("%+v", got)
	}
	if got := decodeAs[wire.ExecRecord](t, f.get("/sandbox/execs/"+other.ExecID), 200); got.Request != nil {
		t.Errorf("an exec without a request: %q", *got.Request)
	}
	list := decodeAs[wire.ExecList](t, f.get("/sandbox/execs?skill_id=shell.run"), 200)
	if got := *list.Items[0].Request; len(got) > 1<<10 || !json.Valid([]byte(got)) || !strings.HasPrefix(got, `{"script":"xxx`) {
		t.Errorf("in a list: %q", got)
	}
	if list := decodeAs[wire.ExecList](t, f.get("/sandbox/execs?skill_id=shell.run&view=summary"), 200); list.Items[0].Request != nil {
		t.Errorf("in a summary: %q", *list.Items[0].Request)
	}
	if out := string(f.get("/audit/export?skill_id=shell.run").body); !strings.Contains(out, `"request":"{\"script\":\"xxx`) {
		t.Errorf("in an export: %.3000s", out)
	}
}

func TestRecordWithoutPolicy(t *testing.T) {
	t.Parallel()
	f := start(t)
	rec := f.record(func(r *audit.Record) { r.PolicySnapshot, r.Status = nil, audit.Running })
	got := decodeAs[map[string]any](t, f.get("/sandbox/execs/"+rec.ExecID), 200)
	if v, ok := got["ended_at"]; !ok || v != nil {
		t.Errorf("ended_at of a running exec is %v", v)
	}
	if v, ok := got["exit_code"]; !ok || v != nil {
		t.Errorf("exit_code of a running exec is %v", v)
	}
}

// TestDamagedRecord: a value that was changed past core-api fails neither the record nor the
// others.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	f := start(t)
	whole := f.record(func(r *audit.Record) { r.Args = []string{"-lc"} })
	damaged := f.record(func(r *audit.Record) { r.Args = []string{"-lc"} })
	file, err := sql.Open("sqlite", f.dbFile)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Exec(`UPDATE sandbox_execs SET args = '{"0": "-lc"}' WHERE exec_id = ?`, damaged.ExecID); err != nil {
		t.Fatal(err)
	}
	for _, got := range []wire.ExecRecord{
		decodeAs[wire.ExecRecord](t, f.get("/sandbox/execs/"+damaged.ExecID), 200),
		decodeAs[wire.ExecList](t, f.get("/sandbox/execs"), 200).Items[0],
	} {
		if got.ExecID != damaged.ExecID || len(got.Args) != 0 || got.Unreadable == nil ||
			!maps.Equal(*got.Unreadable, map[string]string{"args": `{"0": "-lc"}`}) {
			t.Errorf("%+v", got)
		}
	}
	if n := strings.Count(f.log.String(), "not written by core-api"); n != 2 {
		t.Errorf("%d log lines: %s", n, f.log)
	}
	if got := decodeAs[wire.ExecRecord](t, f.get("/sandbox/execs/"+whole.ExecID), 200); got.Unreadable != nil {
		t.Errorf("%+v", got)
	}
	for _, format := range []string{"jsonl", "csv", "ocsf"} {
		if r := f.get("/audit/export?format=" + format); r.StatusCode != 200 || !strings.Contains(string(r.body), whole.ExecID) ||
			!strings.Contains(string(r.body), "unreadable") {
			t.Errorf("%s: %d %s", format, r.StatusCode, r.body)
		}
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	f := start(t)
	rec := f.record(func(r *audit.Record) { r.Status = audit.Running })
	path := "/sandbox/execs/" + rec.ExecID + "/cancel"
	got := decodeAs[wire.CancelAccepted](t, f.do(request{method: "POST", path: path}), 202)
	if got.ExecID != rec.ExecID || got.Status != audit.Running || !slices.Equal(f.runner.canceled, []string{rec.ExecID}) {
		t.Errorf("got %+v, canceled %v", got, f.runner.canceled)
	}
	f.runner.cancelError = fault.New(fault.ExecEnded, "it has ended")
	f.do(request{method: "POST", path: path}).wants(t, fault.ExecEnded)
}

func TestResolvePolicy(t *testing.T) {
	t.Parallel()
	f := start(t)
	got := decodeAs[map[string]any](t, f.post("/sandbox/policy/resolve", `{"policy_overrides": {"timeout_ms": 5000}}`), 200)
	want := map[string]any{"value": float64(5000), "layer": "request", "ceiling": float64(1800000), "ceiling_from": "default"}
	if !reflect.DeepEqual(got["fields"].(map[string]any)["timeout_ms"], want) {
		t.Errorf("got %v", got)
	}
	if req := f.runner.seen()[0]; *req.Overrides.TimeoutMS != 5000 {
		t.Errorf("the runner was given %+v", req)
	}
	f.post("/sandbox/policy/resolve", `{"exec": {}}`).wants(t, fault.InvalidRequest, "exec")
}
