package api_test

import (
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
	"secbox/sandbox/places/placestest"
)

// session puts the row of a running session into the database.
func (f *fixture) session() audit.Record {
	f.t.Helper()
	return f.record(func(r *audit.Record) {
		r.Status, r.EndedAt, r.ExitCode, r.SessionID, r.Cmd = audit.Running, time.Time{}, nil, r.ExecID, "session"
	})
}

func TestSessionsAreSeenByTheirTokens(t *testing.T) {
	t.Parallel()
	f := start(t)
	_, mine := f.token(tokens.Spec{Role: tokens.Worker})
	_, other := f.token(tokens.Spec{Role: tokens.Worker})
	_, auditor := f.token(tokens.Spec{Role: tokens.Auditor})
	body := `{"project_id": "demo", "name": "n", "ttl_ms": 5000, "env": {"A": "secret"}}`
	r := f.do(request{method: "POST", path: "/sandbox/sessions", body: body, token: mine})
	got := decodeAs[wire.Session](t, r, 201)
	if got.Status != "running" || got.Name != "n" || got.TTLMS != 5000 || r.Header.Get("Location") != "/sandbox/sessions/"+got.SessionID {
		t.Errorf("%s", r.body)
	}
	path := "/sandbox/sessions/" + got.SessionID
	for token, status := range map[string]int{mine: 200, other: 404, auditor: 200} {
		if r := f.do(request{path: path, token: token}); r.StatusCode != status {
			t.Errorf("%d, want %d: %s", r.StatusCode, status, r.body)
		}
		list := decodeAs[wire.SessionList](t, f.do(request{path: "/sandbox/sessions", token: token}), 200)
		if (len(list.Items) == 1) != (status == 200) {
			t.Errorf("listed: %v", list.Items)
		}
	}
	for status, n := range map[string]int{"running": 1, "ended": 0} {
		if list := decodeAs[wire.SessionList](t, f.do(request{path: "/sandbox/sessions?status=" + status, token: mine}), 200); len(list.Items) != n {
			t.Errorf("%s: %v", status, list.Items)
		}
	}
	inIt := `{"session_id": "` + got.SessionID + `", ` + aCommand + `}`
	f.do(request{method: "POST", path: "/sandbox/execs", body: inIt, token: other}).wants(t, fault.UnknownExec, "session_id")
	f.do(request{method: "DELETE", path: path, token: other}).wants(t, fault.UnknownExec, "session_id")
	f.do(request{method: "POST", path: "/sandbox/execs", body: `{"project_id": "demo", "background": true, ` + aCommand + `}`, token: mine}).wants(t,
		fault.InvalidRequest, "background")
	both := `{"session_id": "` + got.SessionID + `", "background": true, "stream": true, ` + aCommand + `}`
	f.do(request{method: "POST", path: "/sandbox/execs", body: both, token: mine}).wants(t, fault.InvalidRequest, "stream")
	decodeAs[wire.ExecResult](t, f.do(request{method: "POST", path: "/sandbox/execs", body: inIt, token: mine}), 200)
	seen := f.runner.seen()
	if last := seen[len(seen)-1]; last.SessionID != got.SessionID || last.ProjectID != "demo" {
		t.Errorf("the runner was given %+v", last)
	}
	f.do(request{method: "POST", path: "/sandbox/sessions", body: `{"project_id": "demo", "idle_ms": -1, "ttl_ms": 0}`, token: mine}).wants(t,
		fault.InvalidRequest, "idle_ms", "ttl_ms")
	f.runner.inside = placestest.Here{}
	processes := decodeAs[wire.ProcessList](t, f.do(request{path: path + "/processes", token: auditor}), 200)
	if first := processes.Items[0]; first.PID != 1 || first.Command == "" || first.MemoryBytes <= 0 || first.State == "" || first.StartedAt == nil {
		t.Errorf("%+v", first)
	}
	if used := decodeAs[wire.SessionUsage](t, f.do(request{path: path + "/usage", token: mine}), 200); len(used.Samples) != 1 {
		t.Errorf("%+v", used)
	}
	for _, of := range []string{"/processes", "/usage"} {
		f.do(request{path: path + of, token: other}).wants(t, fault.UnknownExec, "session_id")
	}
	decodeAs[wire.CancelAccepted](t, f.do(request{method: "DELETE", path: path, token: mine}), 202)
}
