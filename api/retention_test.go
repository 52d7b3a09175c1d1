package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/audit"
	"secbox/audit/retention"
	"secbox/fault"
)

// removePart removes a part of an exec as a run of retention does.
func (f *fixture) removePart(part retention.Part, execID string) {
	f.t.Helper()
	s, now := f.db.Retention(), time.Now().Add(time.Hour)
	if begun, err := s.Begin(f.t.Context(), "run", time.Minute, 0); err != nil || !begun {
		f.t.Fatal(begun, err)
	}
	q := retention.Query{Part: part, Rule: "audit.retention_days", Days: 7, Before: now, LostBefore: now}
	if gone, err := s.Remove(f.t.Context(), q, []string{execID}, "run", time.Minute); err != nil || len(gone.Due) != 1 {
		f.t.Fatalf("%+v, %v", gone, err)
	}
}

// TestRemovedExecsAnswerGone: with the tombstone, and only to those who might have seen the exec.
func TestRemovedExecsAnswerGone(t *testing.T) {
	t.Parallel()
	f := start(t)
	worker, secret := f.token(tokens.Spec{Role: tokens.Worker})
	_, foreign := f.token(tokens.Spec{Role: tokens.Worker})
	_, auditor := f.token(tokens.Spec{Role: tokens.Auditor})
	r := f.record(func(r *audit.Record) {
		r.RequestedBy, r.ArtifactsPath, r.StdoutBytes, r.StderrBytes = worker, "projects/demo/artifacts/x", 3, 3
	})
	f.logEvents()
	path := "/sandbox/execs/" + r.ExecID
	get := func(token, path string) reply { return f.do(request{path: path, token: token}) }

	f.removePart(retention.Artifacts, r.ExecID)
	if got := get(secret, path); got.StatusCode != 200 || !strings.Contains(string(got.body), `"artifacts_removed_at":"`) {
		t.Errorf("the record: %d %s", got.StatusCode, got.body)
	}
	if got := get(auditor, "/sandbox/execs"); !strings.Contains(string(got.body), `"artifacts_removed_at":"`) {
		t.Errorf("the list: %d %s", got.StatusCode, got.body)
	}
	if got := get(auditor, path+"/proof"); got.StatusCode != 200 {
		t.Errorf("the proof: %d %s", got.StatusCode, got.body)
	}

	for _, below := range []string{"/artifacts/x", "/manifest", "/meta"} {
		get(secret, path+below).wants(t, fault.RemovedByRetention)
	}

	f.removePart(retention.Records, r.ExecID)
	for _, below := range []string{"", "/proof", "/attestation", "/comparison", "/artifacts", "/artifacts/x", "/stdout", "/stderr", "/manifest", "/meta"} {
		got := get(secret, path+below)
		got.wants(t, fault.RemovedByRetention)
		var problem struct{ Removed fault.Removal }
		if err := json.Unmarshal(got.body, &problem); err != nil || problem.Removed.Part != "record" || problem.Removed.Days != 7 ||
			problem.Removed.Events < 2 {
			t.Errorf("%s: %s", below, got.body)
		}
		get(auditor, path+below).wants(t, fault.RemovedByRetention)
		get(foreign, path+below).wants(t, fault.UnknownExec)
	}
	f.do(request{method: "POST", path: path + "/replay", body: "{}", token: secret}).wants(t, fault.RemovedByRetention)
}

func TestHolds(t *testing.T) {
	t.Parallel()
	f := start(t)
	adminID, admin := f.token(tokens.Spec{Role: tokens.Admin})
	_, auditor := f.token(tokens.Spec{Role: tokens.Auditor})
	add := func(token, body string) reply {
		return f.do(request{method: "POST", path: "/audit/holds", token: token, body: body})
	}
	body := `{"kind":"project","value":"demo","reason":"case 17"}`
	added := add(admin, body)
	var hold struct{ ID, AddedBy string }
	if err := json.Unmarshal(added.body, &hold); err != nil || added.StatusCode != 201 || hold.ID == "" {
		t.Fatalf("%d %s", added.StatusCode, added.body)
	}
	add(auditor, body).wants(t, fault.Forbidden)
	for bad, field := range map[string]string{
		`{"kind":"agent","value":"x","reason":"y"}`: "kind", `{"kind":"task","value":"","reason":"y"}`: "value",
		`{"kind":"task","value":"x","reason":" "}`: "reason", `{"kind":"task","value":"x\ny","reason":"y"}`: "value",
		`{"kind":"exec","value":"019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d","reason":"y"}`: "value", `{"kind":"user","value":"x ","reason":"y"}`: "value",
	} {
		add(admin, bad).wants(t, fault.InvalidRequest, field)
	}
	if list := f.do(request{path: "/audit/holds", token: auditor}); list.StatusCode != 200 || !strings.Contains(string(list.body), `"added_by":"`+adminID+`"`) {
		t.Errorf("%d %s", list.StatusCode, list.body)
	}
	remove := request{method: "DELETE", path: "/audit/holds/" + hold.ID, token: admin}
	if got := f.do(remove); got.StatusCode != 204 {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
	f.do(remove).wants(t, fault.UnknownHold)
	if list := f.do(request{path: "/audit/holds", token: admin}); strings.Contains(string(list.body), hold.ID) {
		t.Errorf("%s", list.body)
	}

	var want, got []string
	for i := range 5 {
		added := add(admin, fmt.Sprintf(`{"kind":"task","value":"t%d","reason":"y"}`, i))
		if err := json.Unmarshal(added.body, &hold); err != nil {
			t.Fatal(err)
		}
		want = append(want, hold.ID)
	}
	next := new(string)
	for pages := 0; next != nil && pages < 4; pages++ {
		list := f.do(request{path: "/audit/holds?limit=2&cursor=" + *next, token: auditor})
		var page struct {
			Items      []struct{ ID string }
			NextCursor *string `json:"next_cursor"`
		}
		if err := json.Unmarshal(list.body, &page); err != nil || len(page.Items) > 2 {
			t.Fatalf("%s, %v", list.body, err)
		}
		for _, h := range page.Items {
			got = append(got, h.ID)
		}
		next = page.NextCursor
	}
	if !slices.Equal(got, want) {
		t.Errorf("in pages: %v, want %v", got, want)
	}
	f.do(request{path: "/audit/holds?cursor=x", token: auditor}).wants(t, fault.InvalidCursor, "cursor")
	f.do(request{path: "/audit/holds?limit=501", token: auditor}).wants(t, fault.InvalidRequest, "limit")
}
