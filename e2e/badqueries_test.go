package e2e

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// TestBadQueries sends read requests with unknown ids, invalid paths and invalid parameters.
func TestBadQueries(t *testing.T) {
	t.Parallel()
	s := shared(t)
	good := s.exec(shell("bad-queries", "echo hi > /workspace/artifacts/hi.txt")).str("exec_id")
	const absent = "019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d"
	artifact := func(id, path string) string { return "/sandbox/execs/" + id + "/artifacts/" + path }
	for _, c := range []struct {
		method, path string
		status       int
		code         string
		field        string
	}{
		{"GET", "/sandbox/execs/" + absent, 404, "unknown_exec", ""},
		{"GET", "/sandbox/execs/" + absent + "/artifacts", 404, "unknown_exec", ""},
		{"GET", "/sandbox/execs/" + absent + "/artifacts?format=zip", 404, "unknown_exec", ""},
		{"GET", artifact(absent, "hi.txt"), 404, "unknown_exec", ""},
		{"GET", "/sandbox/execs/" + absent + "/stdout", 404, "unknown_exec", ""},
		{"GET", "/sandbox/execs/" + absent + "/stderr", 404, "unknown_exec", ""},
		{"POST", "/sandbox/execs/" + absent + "/cancel", 404, "unknown_exec", ""},
		{"GET", "/sandbox/execs/x", 404, "unknown_exec", ""},
		{"GET", "/sandbox/execs/..%2f..%2fetc", 404, "unknown_exec", ""},
		{"GET", "/sandbox/execs/" + url.PathEscape("{"+good+"}"), 404, "unknown_exec", ""},
		{"GET", "/sandbox/execs/%00", 404, "unknown_exec", ""},
		{"GET", "/sandbox/execs/%27%20OR%201=1--", 404, "unknown_exec", ""},
		{"GET", "/sandbox/execs/" + strings.Repeat("9", 5000), 404, "unknown_exec", ""},
		{"GET", artifact(good, "no.txt"), 404, "unknown_artifact", ""},
		{"GET", artifact(good, "stdout.txt"), 404, "unknown_artifact", ""},
		{"GET", artifact(good, "manifest.json"), 404, "unknown_artifact", ""},
		{"GET", artifact(good, "meta.json"), 404, "unknown_artifact", ""},
		{"GET", artifact(good, "..%2f..%2f..%2f..%2f..%2fetc%2fpasswd"), 404, "unknown_artifact", ""},
		{"GET", artifact(good, "%2fetc%2fpasswd"), 404, "unknown_artifact", ""},
		{"GET", artifact(good, ".%2fhi.txt"), 404, "unknown_artifact", ""},
		{"GET", artifact(good, "hi.txt%00"), 404, "unknown_artifact", ""},
		{"GET", artifact(good, "HI.TXT"), 404, "unknown_artifact", ""},
		{"GET", artifact(good, strings.Repeat("a%2f", 4000)), 404, "unknown_artifact", ""},
		{"GET", "/sandbox/execs/" + good + "/artifacts?format=tar", 400, "invalid_request", "format"},
		{"GET", "/sandbox/execs?cursor=garbage", 400, "invalid_cursor", "cursor"},
		{"GET", "/sandbox/execs?cursor=" + strings.Repeat("A", 5000), 400, "invalid_cursor", "cursor"},
		{"GET", "/sandbox/execs?cursor=e30", 400, "invalid_cursor", "cursor"},
		{"GET", "/sandbox/execs?cursor=%00", 400, "invalid_cursor", "cursor"},
		{"GET", "/sandbox/execs?limit=0", 400, "invalid_request", "limit"},
		{"GET", "/sandbox/execs?limit=501", 400, "invalid_request", "limit"},
		{"GET", "/sandbox/execs?limit=-1", 400, "invalid_request", "limit"},
		{"GET", "/sandbox/execs?limit=9223372036854775808", 400, "invalid_request", "limit"},
		{"GET", "/sandbox/execs?status=done", 400, "invalid_request", "status"},
		{"GET", "/sandbox/execs?since=yesterday", 400, "invalid_request", "since"},
		{"GET", "/sandbox/execs?offset=10", 400, "invalid_request", "offset"},
		{"GET", "/sandbox/execs?project_id=a&project_id=b", 400, "invalid_request", "project_id"},
		{"GET", "/sandbox/execs?task_id=%00", 400, "invalid_request", "task_id"},
		{"GET", "/sandbox/execs?task_id=%ff", 400, "invalid_request", "task_id"},
		{"GET", "/sandbox/nothing", 404, "not_found", ""},
		{"DELETE", "/sandbox/execs/" + good, 405, "method_not_allowed", ""},
		{"PUT", "/sandbox/execs", 405, "method_not_allowed", ""},
	} {
		t.Run(c.method+" "+fmt.Sprintf("%.60s", c.path), func(t *testing.T) {
			a := s.under(t).send(c.method, c.path, nil)
			problem := a.json(t)
			if a.Code != c.status || problem.str("code") != c.code {
				t.Errorf("got %d %s, want %d %s", a.Code, a.Body, c.status, c.code)
			}
			if c.field != "" && (len(problem.list("errors")) != 1 || problem.list("errors")[0].str("field") != c.field) {
				t.Errorf("field %v, want %s", problem.at("errors"), c.field)
			}
		})
	}
}
