package contracttest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"secbox/api/contracttest"
)

// recorder is a test that may fail without failing this one.
type recorder struct {
	testing.TB
	failed []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failed = append(r.failed, fmt.Sprintf(format, args...))
}

func TestMismatchesAreReported(t *testing.T) {
	t.Parallel()
	const jsonType, problemType = "application/json", "application/problem+json"
	const problem = `{"type":"/docs","title":"t","status":404,"detail":"d","code":"unknown_exec"}`
	const id = "/sandbox/execs/019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d"
	for name, tc := range map[string]struct {
		method, path, sent string
		status             int
		contentType, body  string
		drift              bool
	}{
		"good":         {"GET", "/healthz", "", 200, jsonType, `{"status":"ok"}`, false},
		"good HEAD":    {"HEAD", "/healthz", "", 200, jsonType, `{"status":"ok"}`, false},
		"good problem": {"GET", id, "", 404, problemType, problem, false},
		"good bytes":   {"GET", id + "/artifacts/a/b/c", "", 200, "application/octet-stream", "\xff", false},
		"good refusal": {
			"POST", "/sandbox/execs", `{"x":1}`, 400, problemType,
			strings.ReplaceAll(strings.ReplaceAll(problem, "404", "400"), "unknown_exec", "invalid_request"), false,
		},
		"unknown path, refused":   {"GET", "/x", "", 404, problemType, problem, false},
		"unknown path, served":    {"GET", "/x", "", 200, jsonType, `{}`, true},
		"unknown path, plain":     {"GET", "/x", "", 404, "text/plain", `404 page not found`, true},
		"unknown field":           {"GET", "/healthz", "", 200, jsonType, `{"status":"ok","x":1}`, true},
		"missing field":           {"GET", "/healthz", "", 200, jsonType, `{}`, true},
		"wrong value":             {"GET", "/healthz", "", 200, jsonType, `{"status":"well"}`, true},
		"wrong type":              {"GET", "/sandbox/execs", "", 200, jsonType, `{"items":{},"next_cursor":null}`, true},
		"undeclared status":       {"GET", "/healthz", "", 418, problemType, problem, true},
		"undeclared content type": {"GET", "/healthz", "", 200, "text/html", `<p>ok</p>`, true},
		"HTML instead of bytes":   {"GET", id + "/artifacts/a", "", 200, "text/html", `<p>ok</p>`, true},
		"unknown code":            {"GET", id, "", 404, problemType, strings.Replace(problem, "unknown_exec", "nope", 1), true},
		"bad request taken":       {"POST", "/sandbox/policy/resolve", `{"x":1}`, 200, jsonType, `{"fields":{},"settings_digest":""}`, true},
		"bad parameter taken":     {"GET", "/sandbox/execs?limit=0", "", 200, jsonType, `{"items":[],"next_cursor":null}`, true},
		"null that may not be":    {"GET", id + "/artifacts", "", 200, jsonType, `{"exec_id":"a","items":null,"total_bytes":0,"truncated":false}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.contentType)
				w.WriteHeader(tc.status)
				fmt.Fprint(w, tc.body)
			}))
			defer server.Close()
			rec := &recorder{TB: t}
			req, err := http.NewRequestWithContext(t.Context(), tc.method, server.URL+tc.path, strings.NewReader(tc.sent))
			if err != nil {
				t.Fatal(err)
			}
			if tc.sent != "" {
				req.Header.Set("Content-Type", jsonType)
			}
			resp, err := contracttest.New(rec).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if (len(rec.failed) > 0) != tc.drift {
				t.Errorf("noticed %q", rec.failed)
			}
		})
	}
}
