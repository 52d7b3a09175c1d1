package api_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/report"
	"secbox/fault"
)

// TestReportOfASpan: the answer and the bundle say the same, and each bundle is an export.
func TestReportOfASpan(t *testing.T) {
	t.Parallel()
	f := start(t)
	for range 3 {
		f.record(nil)
	}
	f.record(func(r *audit.Record) {
		r.Status, r.ErrorReason, r.Detail = audit.Rejected, audit.PolicyDenied, "image: evil is not allowed"
	})
	f.get("/audit/report/bundle").wants(t, fault.NotLogged)
	key := f.logEvents()
	_, secret := f.token(tokens.Spec{Role: tokens.Auditor})
	var answer report.Answer
	r := f.do(request{path: "/audit/report?since=9999d", token: secret})
	if err := json.Unmarshal(r.body, &answer); err != nil || answer.Report.Execs != 4 || !answer.Complete || len(answer.Report.Refused) != 1 ||
		answer.Denied["image"] != 1 {
		t.Errorf("%s, %v", r.body, err)
	}
	file := f.do(request{path: "/audit/report/bundle?since=9999d", token: secret})
	got, err := report.CheckBundle(bytes.NewReader(file.body), key)
	if err != nil || got.Report.Execs != 4 || got.By.Type != admin.ByToken || !strings.Contains(file.Header.Get("Content-Disposition"), "audit-report.jsonl") {
		t.Errorf("%+v, %v", got, err)
	}
	told := f.told(secret, admin.Export)
	if len(told) != 2 || !strings.Contains(told[0], `"state":"begins"`) || !strings.Contains(told[1], `"sha256":"`) || !strings.Contains(told[1], "report") {
		t.Errorf("%q", told)
	}
	if head := f.do(request{method: "HEAD", path: "/audit/report/bundle", token: secret}); head.StatusCode != 200 || len(f.told(secret, admin.Export)) != 2 {
		t.Errorf("HEAD: %d", head.StatusCode)
	}
	if r := f.do(request{path: "/audit/report", token: secret}); !strings.Contains(string(r.body), `"exports":1`) {
		t.Errorf("%s", r.body)
	}
	for _, route := range []string{"/audit/report", "/audit/report/bundle"} {
		f.do(request{path: route + "?since=x&until=y", token: secret}).wants(t, fault.InvalidRequest, "since", "until")
		f.do(request{path: route + "?since=1h&until=2h", token: secret}).wants(t, fault.InvalidRequest, "since")
		f.do(request{path: route + "?until=0001-01-01T00:00:00Z", token: secret}).wants(t, fault.InvalidRequest, "until")
		f.do(request{path: route + "?project_id=p", token: secret}).wants(t, fault.InvalidRequest, "project_id")
		for _, role := range []tokens.Role{tokens.Worker, tokens.Admin} {
			_, other := f.token(tokens.Spec{Role: role})
			if r := f.do(request{path: route + "?since=9999d", token: other}); (r.StatusCode == 403) != (role == tokens.Worker) {
				t.Errorf("%s as %s: %d", route, role, r.StatusCode)
			}
		}
	}
}
