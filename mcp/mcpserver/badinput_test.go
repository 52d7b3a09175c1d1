package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/access/tokens"
	"secbox/skills"
)

func codeOf(t *testing.T, resp *http.Response, body string) string {
	t.Helper()
	if resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %s is no problem document: %s", resp.StatusCode, resp.Header.Get("Content-Type"), body)
		return ""
	}
	var problem struct {
		Status       int
		Code, Detail string
	}
	if err := json.Unmarshal([]byte(body), &problem); err != nil || problem.Status != resp.StatusCode || problem.Detail == "" {
		t.Errorf("%v: %s", err, body)
	}
	return problem.Code
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := f.open("worker")
	const ping = `{"jsonrpc":"2.0","id":7,"method":"ping"}`
	for name, c := range map[string]struct {
		method, token, session, body string
		header                       []string
		status                       int
		code                         string
	}{
		"no JSON":                 {body: `{"jsonrpc":`, session: session, status: 400, code: "invalid_request"},
		"no message":              {body: `{"hello":1}`, session: session, status: 400, code: "invalid_request"},
		"a version by number":     {body: `{"jsonrpc":2,"id":7,"method":"ping"}`, session: session, status: 400, code: "invalid_request"},
		"an id that is an object": {body: `{"jsonrpc":"2.0","id":{},"method":"ping"}`, session: session, status: 400, code: "invalid_request"},
		"a number in a batch": {
			body: `[` + ping + `,5]`, session: session, header: []string{"Mcp-Protocol-Version", "2025-03-26"}, status: 400,
			code: "invalid_request",
		},
		"nothing":           {body: ``, session: session, status: 400, code: "invalid_request"},
		"NULs":              {body: "\x00\x00\x00", session: session, status: 400, code: "invalid_request"},
		"no UTF-8":          {body: "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"\xff\xfe\"}", session: session, status: 400, code: "invalid_request"},
		"an unknown method": {body: `{"jsonrpc":"2.0","id":7,"method":"tools/destroy"}`, session: session, status: 400, code: "invalid_request"},
		"a batch": {
			body: `[` + ping + `]`, session: session, header: []string{"Mcp-Protocol-Version", "2025-06-18"}, status: 400,
			code: "invalid_request",
		},
		"a batch of 51": {
			body: `[` + ping + strings.Repeat(`,`+ping, 50) + `]`, session: session,
			header: []string{"Mcp-Protocol-Version", "2025-03-26"}, status: 400, code: "invalid_request",
		},
		"a version of the future": {
			body: ping, session: session, header: []string{"Mcp-Protocol-Version", "2025-99-99"}, status: 400,
			code: "invalid_request",
		},
		"an unknown session":      {body: ping, session: "made-up", status: 404, code: "unknown_session"},
		"a stream of none":        {method: "GET", session: "made-up", status: 404, code: "unknown_session"},
		"another token's session": {body: ping, session: session, token: "other", status: 403, code: "forbidden"},
		"an admin in it":          {body: ping, session: session, token: "admin", status: 403, code: "forbidden"},
		"another token's stream":  {method: "GET", session: session, token: "other", status: 403, code: "forbidden"},
		"another token ends it":   {method: "DELETE", session: session, token: "other", status: 403, code: "forbidden"},
		"a text":                  {body: ping, session: session, header: []string{"Content-Type", "text/plain"}, status: 415, code: "unsupported_media"},
		"no stream accepted":      {body: ping, session: session, header: []string{"Accept", "application/json"}, status: 400, code: "invalid_request"},
		"a body over the limit": {
			body: `{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":"` + strings.Repeat("x", 1<<20) + `"}}`, session: session,
			status: 413, code: "body_too_large",
		},
		"the same without a session":  {body: strings.Repeat("x", 2<<20), status: 413, code: "body_too_large"},
		"another method of HTTP":      {method: "PUT", body: ping, session: session, status: 405, code: "method_not_allowed"},
		"a stream without a session":  {method: "GET", status: 400, code: "invalid_request"},
		"an end without a session":    {method: "DELETE", status: 400, code: "invalid_request"},
		"a call before the greeting":  {body: `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`, status: 200},
		"a greeting without a client": {body: `{"jsonrpc":"2.0","id":7,"method":"initialize"}`, status: 400, code: "invalid_request"},
	} {
		t.Run(name, func(t *testing.T) {
			method, token := cmp.Or(c.method, http.MethodPost), cmp.Or(c.token, "worker")
			resp, body := f.send(method, token, c.session, c.body, c.header...)
			if resp.StatusCode != c.status {
				t.Fatalf("%d %s, want %d", resp.StatusCode, body, c.status)
			}
			if c.code != "" {
				if code := codeOf(t, resp, body); code != c.code {
					t.Errorf("code %s, want %s: %s", code, c.code, body)
				}
				for _, internal := range []string{"Go ", "wireDecode", "interface", "unmarshal"} {
					if strings.Contains(body, internal) {
						t.Errorf("names a Go type: %s", body)
					}
				}
			} else if !strings.Contains(body, `"error"`) {
				t.Errorf("no error: %s", body)
			}
		})
	}
	// The session has taken no harm.
	if resp, body := f.post("worker", session, ping); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"result":{}`) {
		t.Errorf("ping: %d %s", resp.StatusCode, body)
	}
	if seen := f.execs.requests(); len(seen) != 0 {
		t.Errorf("invoked: %+v", seen)
	}
}

// TestSessionOfOneProject: a session does not serve the files of its project under the address of
// another.
func TestSessionOfOneProject(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	address := f.url
	const ping = `{"jsonrpc":"2.0","id":7,"method":"ping"}`
	f.url = address + "?project_id=ag1~erin"
	session := f.open("worker")
	for query, want := range map[string]int{"?project_id=ag1~erin": 200, "?project_id=ag1~zed": 400, "": 400} {
		f.url = address + query
		resp, body := f.post("worker", session, ping)
		if resp.StatusCode != want || want == 400 && (codeOf(t, resp, body) != "invalid_request" || !strings.Contains(body, "ag1~erin")) {
			t.Errorf("%q: %d %s, want %d", query, resp.StatusCode, body, want)
		}
	}
	f.url = address + "?project_id=ag1~zed"
	if resp, body := f.send(http.MethodDelete, "worker", session, ""); resp.StatusCode != 400 {
		t.Errorf("its end: %d %s", resp.StatusCode, body)
	}
}

func TestUnknownSpelling(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	address := f.url
	for _, query := range []string{"?names=dashes", "?names=underscore&names=underscore"} {
		f.url = address + query
		resp, body := f.post("worker", "", initialize)
		if code := codeOf(t, resp, body); resp.StatusCode != http.StatusBadRequest || code != "invalid_request" || !strings.Contains(body, "dotted") {
			t.Errorf("%s: %d %s", query, resp.StatusCode, body)
		}
	}
}

// TestRefusedVersionsAreNotNamed: an error that lists versions has none that the server refuses.
func TestRefusedVersionsAreNotNamed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := f.open("worker")
	const meta = `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}`
	for name, c := range map[string]struct{ session, method, params, version string }{
		"an old version":            {session, "tools/list", `{}`, "1999-01-01"},
		"a version of no day":       {session, "tools/list", `{}`, "2025-99-99"},
		"a version without session": {session, "tools/list", meta, "2026-07-28"},
		"a client that discovers":   {"", "server/discover", meta, "2026-07-28"},
		"discovery in a session":    {session, "server/discover", `{}`, "2025-11-25"},
	} {
		_, body := f.post("worker", c.session, `{"jsonrpc":"2.0","id":5,"method":"`+c.method+`","params":`+c.params+`}`, "Mcp-Protocol-Version", c.version)
		if strings.Contains(body, `"result"`) {
			t.Errorf("%s: no error: %s", name, body)
		}
		for _, asked := range []string{`"requested":"2026-07-28"`, `version \"2026-07-28\"`} {
			body = strings.ReplaceAll(body, asked, "")
		}
		if strings.Contains(body, "2026-07-28") {
			t.Errorf("%s: %s", name, body)
		}
	}
}

// The limit of inputs is below the limit of a body.
func TestArgumentsTooLarge(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *Config) { c.MaxBodyBytes = 2*skills.MaxInputBytes + 1024 })
	session := f.open("worker")
	call := func(size int) (int, string) {
		resp, body := f.post("worker", session, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"skill.test.echo","arguments":{"text":"`+
			strings.Repeat("x", size)+`"}}}`)
		return resp.StatusCode, body
	}
	if status, body := call(skills.MaxInputBytes + 1); status != http.StatusOK || !strings.Contains(body, `"isError":true`) ||
		!strings.Contains(body, "invalid_inputs") {
		t.Errorf("%d %.300s", status, body)
	}
	if status, body := call(2*skills.MaxInputBytes + 1024); status != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %.300s", status, body)
	}
	if seen := f.execs.requests(); len(seen) != 0 {
		t.Errorf("%d invokes", len(seen))
	}
}

// A call uses the token of its request with its current scope. The HTTP server refuses revoked
// tokens.
func TestTokenRevokedDuringSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := f.open("worker")
	const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"skill.test.echo","arguments":{"text":"x","project_id":"p"}}}`
	if resp, body := f.post("worker", session, call); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"project":"p"`) {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	f.mu.Lock()
	f.tokens["worker"] = tokens.Token{ID: "tok-worker", Role: tokens.Worker, Projects: []string{"another"}}
	f.mu.Unlock()
	if resp, body := f.post("worker", session, call); resp.StatusCode != http.StatusOK || !strings.Contains(body, "forbidden") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	f.mu.Lock()
	delete(f.tokens, "worker")
	f.mu.Unlock()
	if resp, body := f.post("worker", session, call); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if n := len(f.execs.requests()); n != 1 {
		t.Errorf("%d invokes", n)
	}
}

func TestManifestChangesBetweenListAndCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := f.connect("worker", "", nil)
	toolsOf(t, session)
	f.addSkill(workerSkill, `{"type":"object","properties":{"other":{"type":"string"}},"required":["other"],"additionalProperties":false}`)
	f.catalog.Reload() // before the sessions are notified
	if result := f.call(session, "skill.test.echo", map[string]any{"text": "hi"}); !result.IsError || !strings.Contains(textOf(result), "other") {
		t.Errorf("by the old manifest: %s", textOf(result))
	}
	if result := f.call(session, "skill.test.echo", map[string]any{"other": "hi"}); result.IsError {
		t.Errorf("by the new one: %s", textOf(result))
	}
}

// The HTTP server's read timeout must not end long calls or notification streams.
func TestCallsOutliveTheReadTimeout(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.server.ServeHTTP(w, r.WithContext(WithCaller(r.Context(), f.tokens["worker"])))
	}))
	web.Config.ReadTimeout = 500 * time.Millisecond
	web.Config.IdleTimeout = time.Minute // the default is ReadTimeout, and a request could meet the end of its connection
	web.Start()
	defer web.Close()
	f.url = web.URL
	session := f.open("worker")
	answer := make(chan string, 1)
	go func() {
		_, body := f.post("worker", session, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"skill.test.echo","arguments":{"text":"wait"}}}`)
		answer <- body
	}()
	eventually(t, "it runs", func() bool { return len(f.execs.running()) == 1 })
	select {
	case body := <-answer:
		t.Errorf("it was answered early: %q", body)
	case <-time.After(2 * web.Config.ReadTimeout):
		_ = f.execs.Cancel(t.Context(), f.execs.running()[0])
		if body := <-answer; !strings.Contains(body, "canceled") {
			t.Errorf("%q", body)
		}
	}
}

// Clients that stop reading in the middle of a large answer delay neither other calls of their
// session nor notifications of changed tools. In the end their connection is closed.
func TestSlowClientsDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *Config) { c.MaxBodyBytes = 2 * skills.MaxInputBytes })
	session := f.open("worker")
	call := func(id int, text string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"skill.test.echo","arguments":{"text":"%s"}}}`, id, text)
	}
	large := strings.Repeat("x", skills.MaxInputBytes-100) // the answer has it three times: more than a connection buffers
	for id := range 3 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(f.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).SetReadBuffer(4096)
		body := call(100+id, large)
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer worker\r\nContent-Type: application/json\r\n"+
			"Accept: application/json, text/event-stream\r\nMcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s", session, len(body), body)
	}
	eventually(t, "the large answers are on their way", func() bool { return len(f.execs.requests()) == 3 && len(f.execs.running()) == 0 })

	told := make(chan struct{}, 10)
	quick := f.connect("other", "", &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { told <- struct{}{} }})
	if result := f.call(quick, "skill.test.echo", map[string]any{"text": "x"}); result.IsError {
		t.Errorf("another session: %s", textOf(result))
	}
	if resp, body := f.post("worker", session, call(2, "x")); resp.StatusCode != http.StatusOK ||
		!strings.Contains(body, `"isError"`) && !strings.Contains(body, `"structuredContent"`) {
		t.Errorf("the same session: %d %s", resp.StatusCode, body)
	}
	f.addSkill("test.news", `{"type":"object"}`)
	f.catalog.Reload()
	f.server.syncTools()
	<-told
	eventually(t, "the slow clients are given up", func() bool {
		f.server.sessions.mu.Lock()
		defer f.server.sessions.mu.Unlock()
		return f.server.sessions.byID[session].busy == 0
	})
}

func TestNumberOfSessionsIsLimited(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *Config) { c.MaxSessions = 3 })
	first := f.open("worker")
	second := f.open("worker")
	other := f.open("other")
	ping := func(token, session string) int {
		resp, _ := f.post(token, session, `{"jsonrpc":"2.0","id":7,"method":"ping"}`)
		return resp.StatusCode
	}
	ping("worker", first) // now the second was idle for longest
	f.open("other")
	if ping("worker", first) != 200 || ping("worker", second) != 404 || ping("other", other) != 200 {
		t.Errorf("first %d, second %d, other %d", ping("worker", first), ping("worker", second), ping("other", other))
	}
}

func TestBusySessionsAreNotEnded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *Config) { c.MaxSessions = 1 })
	session := f.open("worker")
	var call sync.WaitGroup
	call.Go(func() {
		f.post("worker", session, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"skill.test.echo","arguments":{"text":"wait"}}}`)
	})
	eventually(t, "it runs", func() bool { return len(f.execs.running()) == 1 })
	resp, body := f.post("other", "", initialize)
	if code := codeOf(t, resp, body); code != "queue_full" || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	_ = f.execs.Cancel(context.Background(), f.execs.running()[0])
	call.Wait()
	eventually(t, "there is room again", func() bool {
		resp, _ := f.post("other", "", initialize)
		return resp.StatusCode == http.StatusOK
	})
}

// TestSessionsOfOneTokenAreLimited: even if all of its sessions are busy.
func TestSessionsOfOneTokenAreLimited(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *Config) { c.MaxSessions = 4 }) // three of one token
	var calls sync.WaitGroup
	for range 3 {
		session := f.open("worker")
		calls.Go(func() {
			f.post("worker", session, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"skill.test.echo","arguments":{"text":"wait"}}}`)
		})
	}
	eventually(t, "they run", func() bool { return len(f.execs.running()) == 3 })
	resp, body := f.post("worker", "", initialize)
	if code := codeOf(t, resp, body); code != "queue_full" || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(body), "token limit") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	f.open("other")
	for _, id := range f.execs.running() {
		_ = f.execs.Cancel(context.Background(), id)
	}
	calls.Wait()
}

func TestIdleSessionsEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *Config) { c.SessionIdle = time.Millisecond })
	session := f.open("worker")
	eventually(t, "the session has ended", func() bool {
		f.server.sessions.mu.Lock()
		defer f.server.sessions.mu.Unlock()
		return f.server.sessions.byID[session] == nil
	})
	eventually(t, "it is unknown", func() bool {
		resp, _ := f.post("worker", session, `{"jsonrpc":"2.0","id":7,"method":"ping"}`)
		return resp.StatusCode == http.StatusNotFound
	})
}

func TestCloseAnswersCallsAndRefusesNewOnes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := f.open("worker")
	answer := make(chan string, 1)
	go func() {
		_, body := f.post("worker", session, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"skill.test.echo","arguments":{"text":"wait"}}}`)
		answer <- body
	}()
	eventually(t, "it runs", func() bool { return len(f.execs.running()) == 1 })
	closed := make(chan error, 1)
	go func() { closed <- f.server.Close() }()
	eventually(t, "new requests are refused", func() bool {
		resp, _ := f.post("worker", "", initialize)
		return resp.StatusCode == http.StatusServiceUnavailable
	})
	_ = f.execs.Cancel(t.Context(), f.execs.running()[0])
	if body := <-answer; !strings.Contains(body, "canceled") {
		t.Errorf("the call in flight: %q", body)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := f.server.Close(); err != nil {
		t.Error(err)
	}
}

func TestMissingCaller(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	w := httptest.NewRecorder()
	f.server.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(initialize)))
	if w.Code != http.StatusUnauthorized {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
