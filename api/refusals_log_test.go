package api_test

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"secbox/api/wire"
)

// TestRefusalsAreLoggedAsInfo: clients must not be able to fill the log with errors.
func TestRefusalsAreLoggedAsInfo(t *testing.T) {
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

// TestAbandonedDownloadIsNoError: a client that closes its connection in the middle of a download
// leaves no error in the log.
func TestAbandonedDownloadIsNoError(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.runner.files = map[string]string{"large.bin": strings.Repeat("x", 32<<20)}
	id := decodeAs[wire.ExecResult](t, f.post("/sandbox/execs", `{"project_id": "p", `+aCommand+`}`), 200).ExecID
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /sandbox/execs/%s/artifacts/large.bin HTTP/1.1\r\nHost: %s\r\n\r\n", id, strings.TrimPrefix(f.url, "http://"))
	if _, err := io.ReadFull(conn, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	for !strings.Contains(f.log.String(), "cut_off=true") {
		runtime.Gosched()
	}
	if log := f.log.String(); strings.Contains(log, "level=ERROR") {
		t.Error(log)
	}
}

// TestRefusalIsShort: the answer to a request with thousands of wrong fields is short.
func TestRefusalIsShort(t *testing.T) {
	t.Parallel()
	f := start(t)
	body := `{"project_id": "p", ` + aCommand + `, "inputs": [` + strings.TrimSuffix(strings.Repeat(`{},`, 9900), ",") + `]}`
	wrong := strings.Repeat("&"+strings.Repeat("x", 90)+"=1", 1)
	for i := range 900 {
		wrong += fmt.Sprintf("&x%d=1", i)
	}
	for name, r := range map[string]reply{
		"inputs": f.post("/sandbox/execs", body), "parameters": f.get("/sandbox/execs?" + wrong[1:]), "in the envelope": f.get("/v1/runners?" + wrong[1:]),
	} {
		if len(r.body) > 100<<10 || r.StatusCode != 400 && r.StatusCode != 404 {
			t.Errorf("%s: %d, %d bytes", name, r.StatusCode, len(r.body))
		}
	}
	if p := f.post("/sandbox/execs", body).problem(t); len(p.Errors) != 100 || !strings.HasSuffix(p.Detail, "(and 19799 more)") {
		t.Errorf("%d errors: %s", len(p.Errors), p.Detail)
	}
}
