package api_test

import (
	"strings"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
)

func TestBatch(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.runner.run = f.runner.queue
	_, worker := f.token(tokens.Spec{Role: tokens.Worker, Projects: []string{"demo"}})
	one := func(project, rest string) string {
		return `{"project_id": "` + project + `"` + rest + `, ` + aCommand + `}`
	}
	batch := func(key string, execs ...string) request {
		r := request{method: "POST", path: "/sandbox/execs/batch", token: worker, body: `{"execs": [` + strings.Join(execs, ",") + `]}`}
		if key != "" {
			r.header = map[string]string{"Idempotency-Key": key}
		}
		return r
	}

	execs := []string{
		one("demo", `, "priority": "low"`), one("other", ""), one("demo", `, "session_id": "s"`), one("demo", `, "stream": true`),
		one("demo", `, "inputs": [{"path": "a", "content": "!", "encoding": "base64"}]`), one("demo", ""),
	}
	got := decodeAs[wire.ExecBatch](t, f.do(batch("nightly", execs...)), 200)
	if got.Accepted != 2 || got.Refused != 4 || len(got.Items) != 6 {
		t.Fatalf("%+v", got)
	}
	for n, want := range []fault.Code{"", fault.Forbidden, fault.InvalidRequest, fault.InvalidRequest, fault.InvalidRequest, ""} {
		item := got.Items[n]
		switch {
		case want == "" && (item.Error != nil || item.Status != audit.Queued || item.ExecID == "" || item.Replayed):
			t.Errorf("exec %d: %+v", n, item)
		case want != "" && (item.Error == nil || item.Error.Code != want || item.Error.Status != fault.HTTPStatus(want) || item.ExecID != ""):
			t.Errorf("exec %d: %+v", n, item)
		}
	}
	for n, req := range f.runner.seen() {
		if want := []string{"nightly/0", "nightly/5"}[n]; req.IdempotencyKey != want || req.Queue == nil {
			t.Errorf("the runner was given the key %q, and %+v", req.IdempotencyKey, req.Queue)
		}
	}
	again := decodeAs[wire.ExecBatch](t, f.do(batch("nightly", execs...)), 200)
	if a, b := again.Items[5], got.Items[5]; a.ExecID != b.ExecID || !a.Replayed || again.Accepted != 2 {
		t.Errorf("repeated: %+v", again)
	}

	f.do(batch("")).wants(t, fault.InvalidRequest, "execs")
	f.do(batch("", strings.Split(strings.Repeat(one("demo", "")+";", 1000)+one("demo", ""), ";")...)).wants(t, fault.InvalidRequest, "execs")
	f.do(batch(strings.Repeat("k", 251), execs...)).wants(t, fault.InvalidRequest, "Idempotency-Key")
	f.do(batch("", execs[0], `{"project_id": "demo", "exce": {}}`)).wants(t, fault.InvalidRequest, "execs[1].exce")
}

func TestWaitTask(t *testing.T) {
	t.Parallel()
	f := start(t)
	id, worker := f.token(tokens.Spec{Role: tokens.Worker, Projects: []string{"demo"}})
	add := func(by, task string, status audit.Status) audit.Record {
		return f.record(func(r *audit.Record) {
			r.RequestedBy, r.TaskID, r.Status = by, task, status
			if !status.Final() {
				r.EndedAt, r.ExitCode = time.Time{}, nil
			}
		})
	}
	add(id, "ended", audit.Succeeded)
	add(id, "ended", audit.Failed)
	add("other", "ended", audit.Running)
	add(id, "running", audit.Succeeded)
	add(id, "running", audit.Running)

	wait := func(token, query string) reply {
		return f.do(request{path: "/sandbox/execs/wait?" + query, token: token})
	}
	got := decodeAs[wire.TaskState](t, wait(worker, "task_id=ended"), 200)
	if !got.Ended || got.Total != 2 || got.Unended != 0 || got.Statuses[audit.Failed] != 1 {
		t.Errorf("%+v", got)
	}
	_, auditor := f.token(tokens.Spec{Role: tokens.Auditor})
	for token, query := range map[string]string{auditor: "task_id=ended&timeout_ms=1", worker: "task_id=running&timeout_ms=1"} {
		got := decodeAs[wire.TaskState](t, wait(token, query), 200)
		if got.Ended || got.Unended != 1 || got.Statuses[audit.Running] != 1 {
			t.Errorf("%s: %+v", query, got)
		}
	}
	wait(worker, "task_id=typo").wants(t, fault.UnknownExec)
	wait(worker, "").wants(t, fault.InvalidRequest, "task_id")
	wait(worker, "task_id=ended&timeout_ms=300001").wants(t, fault.InvalidRequest, "timeout_ms")
}
