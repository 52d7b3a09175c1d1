package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/audit"
	"secbox/fault"
	"secbox/runner"
)

// stalled is a request whose body has begun and does not end. It speaks HTTP itself, since a client
// would wait for its body.
type stalled struct {
	net.Conn
	t *testing.T
}

// stall sends a request's head, with a body of unknown length, and the first part of that.
func (f *fixture) stall(token, method, path, part string, header ...string) stalled {
	f.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n", method, path)
	if token != "" {
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", token)
	}
	for _, line := range header {
		b.WriteString(line + "\r\n")
	}
	b.WriteString("\r\n")
	if part != "" {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(part), part)
	}
	if _, err := io.WriteString(conn, b.String()); err != nil {
		f.t.Fatal(err)
	}
	return stalled{conn, f.t}
}

// answer reads the answer while the body is still open.
func (s stalled) answer() reply {
	s.t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(s), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply{resp, body}
}

var memoryLine = regexp.MustCompile(`(?m)^secbox_http_memory_bytes (\S+)$`)

// memory waits until requests take between least and most bytes.
func (f *fixture) memory(admin string, least, most float64) {
	f.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		found := memoryLine.FindSubmatch(f.do(request{path: "/metrics", token: admin}).body)
		if found == nil {
			f.t.Fatal("no secbox_http_memory_bytes")
		}
		if n, err := strconv.ParseFloat(string(found[1]), 64); err != nil {
			f.t.Fatal(err)
		} else if n >= least && n <= most {
			return
		} else if time.Now().After(deadline) {
			f.t.Fatalf("%v bytes, not %v to %v", n, least, most)
		}
		time.Sleep(time.Millisecond)
	}
}

// small has room for two bodies of a token, and for three of all.
func small(c *api.Config) {
	c.MaxBodyBytes = 100 << 10
	c.Bounds.MemoryPerToken, c.Bounds.Memory = 1000<<10, 1400<<10
}

// TestManifestsAreLimited: what reading a manifest takes counts as memory of the token.
func TestManifestsAreLimited(t *testing.T) {
	t.Parallel()
	f := start(t, small)
	rec := f.record(nil)
	for _, c := range []struct {
		bytes  int64
		status int
	}{{100 << 10, 200}, {2 << 20, 503}} {
		f.runner.manifestBytes = c.bytes
		if r := f.get("/sandbox/execs/" + rec.ExecID + "/artifacts"); r.StatusCode != c.status {
			t.Errorf("a manifest that takes %d bytes: %d %s", c.bytes, r.StatusCode, r.body)
		}
	}
}

func TestMemoryOfBodiesIsLimited(t *testing.T) {
	t.Parallel()
	f := start(t, small, func(c *api.Config) {
		c.MCP = func(w http.ResponseWriter, r *http.Request, _ tokens.Token, _ func(int64) (func(), error)) {
			_, _ = io.Copy(io.Discard, r.Body)
		}
	})
	_, admin := f.token(tokens.Spec{Role: tokens.Admin})
	_, alice := f.token(tokens.Spec{Role: tokens.Worker})
	_, bob := f.token(tokens.Spec{Role: tokens.Worker})
	part := `{"project_id": "p", "exec": {"kind": "shell", "command": "bash", "stdin": "` + strings.Repeat("x", 90<<10)

	var held []stalled
	for n := 1; n <= 2; n++ {
		held = append(held, f.stall(alice, "POST", "/sandbox/execs", part))
		f.memory(admin, float64(n*4*len(part)), 1e9)
	}
	for path, method := range map[string]string{
		"/sandbox/execs": "POST", "/sandbox/policy/resolve": "POST", "/skills/shell.run/invoke": "POST", "/v1/skills/ann/a/s/execute?command=ls": "POST",
		"/v1/sandbox/ann/a/execute?command=ls": "POST", "/v1/sandbox/ann/backend": "PUT", "/v1/sandbox/ann/a/edit?path=f": "PUT",
		"/v1/skills/ann/a/s/edit?path=f": "PUT",
	} {
		r := f.stall(alice, method, path, strings.Repeat(" ", 90<<10)).answer()
		if r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(r.body), `"server_busy"`) || r.Header.Get("Retry-After") == "" ||
			!r.Close {
			t.Errorf("%s: %d %s, Retry-After %q, close %v", path, r.StatusCode, r.body, r.Header.Get("Retry-After"), r.Close)
		}
	}
	if r := f.stall(alice, "POST", "/sandbox/execs", part).answer(); !strings.Contains(string(r.body), "http.max_memory_bytes_per_token") {
		t.Errorf("the setting is not named: %s", r.body)
	}
	if r := f.do(request{method: "POST", path: "/sandbox/execs", body: minimal, token: alice}); r.StatusCode != http.StatusOK {
		t.Errorf("a small body beside the large ones: %d %s", r.StatusCode, r.body)
	}

	held = append(held, f.stall(bob, "POST", "/mcp", part)) // counts, too
	f.memory(admin, float64(3*4*len(part)), 1e9)
	if r := f.stall(bob, "POST", "/sandbox/execs", part).answer(); r.StatusCode != http.StatusServiceUnavailable ||
		strings.Contains(string(r.body), "_per_token") {
		t.Errorf("beyond the bound of all: %d %s", r.StatusCode, r.body)
	}
	for _, one := range held {
		one.Close()
	}
	f.memory(admin, 0, 0)
	if r := f.do(request{method: "POST", path: "/sandbox/execs", body: part + `"}}`, token: alice}); r.StatusCode != http.StatusOK {
		t.Errorf("after they have gone: %d %.200s", r.StatusCode, r.body)
	}
}

const minimal = `{"project_id": "p", "exec": {"kind": "shell", "command": "bash", "args": ["-lc", "true"]}}`

// TestPriceOfJSONBodies: a short JSON text may have many values.
func TestPriceOfJSONBodies(t *testing.T) {
	t.Parallel()
	f := start(t, small)
	fits := strings.Repeat("x,{", 30<<10)
	f.post("/sandbox/execs", `{"project_id": "p", "exec": {"kind": "shell", "command": "sh", "stdin": "`+fits+`"}}`).wants(t, fault.InvalidRequest,
		"exec.command")
	for _, values := range []string{"{},", `"",`, "[],", "0,"} {
		body := `{"project_id": "p", "inputs": {"list": [` + strings.Repeat(values, 16<<10)
		f.post("/skills/shell.run/invoke", body).wants(t, fault.BodyTooLarge)
	}
	f.post("/sandbox/execs", `{"project_id": "p", "exec": {}, "files": [`+strings.Repeat("{},", 1000)+`{}]}`).wants(t, fault.InvalidRequest, "files")
}

// TestMemoryCountsUntilTheExecEnds: even if the client has hung up.
func TestMemoryCountsUntilTheExecEnds(t *testing.T) {
	t.Parallel()
	f := start(t, small)
	_, admin := f.token(tokens.Spec{Role: tokens.Admin})
	running, end := make(chan struct{}), make(chan struct{})
	f.runner.run = func(ctx context.Context, req runner.Request) (runner.Result, error) {
		close(running)
		<-end
		return f.runner.succeed(ctx, req)
	}
	content := strings.Repeat("x", 80<<10)
	body, _ := json.Marshal(map[string]any{
		"project_id": "p", "exec": map[string]any{"kind": "shell", "command": "bash", "args": []string{"-lc", "true"}},
		"inputs": []any{map[string]any{"path": "f", "content": content}},
	})
	client := f.stall(admin, "POST", "/sandbox/execs", string(body))
	if _, err := io.WriteString(client, "0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-running
	f.memory(admin, float64(len(content)), float64(2*len(content))) // the decoder's part is given back
	client.Close()
	f.memory(admin, float64(len(content)), float64(2*len(content)))
	close(end)
	f.memory(admin, 0, 0)
}

func TestSlowBodyIsCutOff(t *testing.T) {
	t.Parallel()
	f := start(t, func(c *api.Config) { c.Bounds.Rest = time.Second })
	_, secret := f.token(tokens.Spec{Role: tokens.Admin})
	if r := f.stall(secret, "POST", "/sandbox/execs", `[`).answer(); r.StatusCode != http.StatusBadRequest { // and the rest is not waited for
		t.Errorf("wrong from the start: %d %s", r.StatusCode, r.body)
	}
	for path, method := range map[string]string{"/sandbox/execs": "POST", "/v1/sandbox/ann/a/edit?path=f": "PUT"} {
		r := f.stall(secret, method, path, `{"project_id": `).answer()
		if r.StatusCode != http.StatusRequestTimeout || !r.Close || !strings.Contains(string(r.body), string(fault.BodyTooSlow)) {
			t.Errorf("%s: %d %s", path, r.StatusCode, r.body)
		}
	}
	upload := f.stall(secret, "POST", "/v1/skills/ann/a/upload", "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.zip\"\r\n\r\nPK",
		"Content-Type: multipart/form-data; boundary=b")
	if r := upload.answer(); r.StatusCode != http.StatusUnsupportedMediaType && r.StatusCode != http.StatusRequestTimeout {
		t.Errorf("an upload: %d %s", r.StatusCode, r.body)
	}
}

// TestBodyIsReadAfterAuthentication: a client with Expect: 100-continue is refused first.
func TestBodyIsReadAfterAuthentication(t *testing.T) {
	t.Parallel()
	f := start(t)
	_, auditor := f.token(tokens.Spec{Role: tokens.Auditor})
	for token, status := range map[string]int{"": http.StatusUnauthorized, "wrong": http.StatusUnauthorized, auditor: http.StatusForbidden} {
		for _, path := range []string{"/sandbox/execs", "/skills/shell.run/invoke", "/mcp", "/v1/skills/ann/a/upload"} {
			if r := f.stall(token, "POST", path, "", "Expect: 100-continue").answer(); r.StatusCode != status {
				t.Errorf("%s with %q: %d %s", path, token, r.StatusCode, r.body)
			}
		}
	}
}

func TestSlowReaderIsCutOff(t *testing.T) {
	t.Parallel()
	f := start(t, func(c *api.Config) { c.Bounds.Rest = time.Second })
	_, admin := f.token(tokens.Spec{Role: tokens.Admin})
	for _, path := range []string{"/v1/sandbox/ann/a/edit?path=big"} {
		r := f.do(request{method: "PUT", path: path, body: strings.Repeat("x", 9<<20), token: admin, header: map[string]string{"Content-Type": "text/plain"}})
		if r.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", r.StatusCode, r.body)
		}
	}
	f.memory(admin, 0, 0)
	lazy := f.stall(admin, "GET", "/v1/sandbox/ann/a/content?path=big", "")
	f.memory(admin, 9<<20, 1e9) // read, and now in the way
	f.memory(admin, 0, 0)       // given up, while the client is still there
	lazy.Close()
}

func TestMemoryOfListsIsCounted(t *testing.T) {
	t.Parallel()
	f := start(t, small)
	for range 5 {
		f.record(func(r *audit.Record) { r.Args = []string{strings.Repeat("x", 120<<10)} })
	}
	f.get("/sandbox/execs").wants(t, fault.ServerBusy)
	for _, query := range []string{"?limit=2", "?view=summary"} {
		if r := f.get("/sandbox/execs" + query); r.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %.200s", query, r.StatusCode, r.body)
		}
	}
}
