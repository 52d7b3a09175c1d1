package api_test

import (
	"strings"
	"testing"
)

// TestRefusalsAreNoErrorsInTheLog: clients cannot fill the log with errors.
func TestRefusalsAreNoErrorsInTheLog(t *testing.T) {
	t.Parallel()
	f := start(t)
	if r := f.do(request{method: "PUT", path: "/v1/sandbox/ann/ag1/edit?path=a.txt", body: `{"content": "x"}`}); r.StatusCode != 200 {
		t.Fatalf("%d %s", r.StatusCode, r.body)
	}
	for path, status := range map[string]int{
		"/v1/sandbox/ann/ag1/content?path=none.txt": 404, "/v1/sandbox/ann/ag1/content?path=..%2Fx": 400, "/v1/skills/ann/ag1/none/files": 404,
	} {
		if r := f.get(path); r.StatusCode != status {
			t.Errorf("%s: %d %s", path, r.StatusCode, r.body)
		}
	}
	if log := f.log.String(); strings.Contains(log, "level=ERROR") || !strings.Contains(log, "level=INFO") {
		t.Error(log)
	}
}
