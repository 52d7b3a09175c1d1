package api_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
)

// followAll opens the stream of the execs that match a query.
func (f *fixture) followAll(query, secret, lastID string) *events {
	f.t.Helper()
	header := map[string]string{}
	if lastID != "" {
		header["Last-Event-ID"] = lastID
	}
	return f.open(request{path: "/sandbox/execs/events" + query, token: secret, header: header})
}

// changes reads so many events, and returns their execs and statuses.
func (e *events) changes(n int) string {
	e.t.Helper()
	var out []string
	for range n {
		event, err := e.Next()
		must(e.t, err)
		var state wire.ExecState
		strict := json.NewDecoder(strings.NewReader(event.Data))
		strict.DisallowUnknownFields()
		must(e.t, strict.Decode(&state))
		if event.Name != "status" || event.ID == "" {
			e.t.Errorf("an event %+v", event)
		}
		e.last = state
		out = append(out, state.TaskID+" "+string(state.Status))
	}
	return strings.Join(out, ", ")
}

// TestFollowExecs: a client gets the changes of the execs that match and that it may see, and goes
// on where it was.
func TestFollowExecs(t *testing.T) {
	t.Parallel()
	f := start(t)
	worker, secret := f.token(tokens.Spec{Role: tokens.Worker})
	other, foreign := f.token(tokens.Spec{Role: tokens.Worker})
	_, auditor := f.token(tokens.Spec{Role: tokens.Auditor})
	run := func(task, project, by string, ends audit.Status) {
		f.record(func(r *audit.Record) {
			r.TaskID, r.ProjectID, r.RequestedBy, r.Status = task, project, by, ends
			if ends == audit.Failed {
				r.ErrorReason, r.ExitCode = audit.NonzeroExit, new(3)
			}
		})
	}
	run("before", "p", worker, audit.Succeeded)
	own, all := f.followAll("", secret, ""), f.followAll("", auditor, "")
	failed, none := f.followAll("?project_id=p&status=failed,timeout&exit_code_ne=0", auditor, ""), f.followAll("?requested_by="+other, secret, "")
	run("a", "p", worker, audit.Failed)
	run("b", "p", other, audit.Succeeded)
	run("c", "q", worker, audit.Failed)
	if got := own.changes(4); got != "a running, a failed, c running, c failed" {
		t.Errorf("a worker got %s", got)
	}
	if got := all.changes(2); got != "a running, a failed" {
		t.Errorf("an auditor got %s", got)
	}
	if got := failed.changes(1); got != "a failed" || failed.last.ErrorReason != audit.NonzeroExit || failed.last.ProjectID != "p" {
		t.Errorf("filtered: %s, %+v", got, failed.last)
	}
	if again := f.followAll("", auditor, all.LastID); again.changes(4) != "b running, b succeeded, c running, c failed" {
		t.Error("one that comes again got something else")
	}
	if past := f.followAll("?task_id=before", secret, "0"); past.changes(2) != "before running, before succeeded" {
		t.Error("from the first event on something else came")
	}
	run("d", "p", other, audit.Failed)
	if got := f.followAll("", foreign, "0").changes(4); got != "b running, b succeeded, d running, d failed" {
		t.Errorf("another worker got %s", got)
	}
	f.server.Close()
	if event, err := none.Next(); err == nil {
		t.Errorf("a worker got %+v of another", event)
	}
	if n, err := strconv.Atoi(none.LastID); err != nil || n < 1 {
		t.Errorf("a client without an event goes on with %q", none.LastID)
	}
	for _, bad := range []string{"x", "-1", "01", "1-0", "9223372036854775808"} {
		f.do(request{path: "/sandbox/execs/events", token: auditor, header: map[string]string{"Last-Event-ID": bad}}).wants(t, fault.InvalidRequest,
			"Last-Event-ID")
	}
	f.do(request{path: "/sandbox/execs/events?status=no&limit=3", token: auditor}).wants(t, fault.InvalidRequest, "limit")
	f.do(request{path: "/sandbox/execs/events?status=no", token: auditor}).wants(t, fault.InvalidRequest, "status")
	if r := f.do(request{
		path: "/sandbox/execs/events", token: auditor,
		header: map[string]string{"Last-Event-ID": "9223372036854775807"},
	}); r.StatusCode != 200 || strings.Contains(string(r.body), "event:") {
		t.Errorf("an id of the future: %d %s", r.StatusCode, r.body)
	}
	if r := f.do(request{method: "HEAD", path: "/sandbox/execs/events", token: auditor}); r.StatusCode != 200 {
		t.Errorf("HEAD: %d", r.StatusCode)
	}
}
