package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/access/tokens"
	"secbox/settings"
)

// asToken adds a token to each request.
type asToken struct {
	secret string
	base   *http.Transport
}

func (a asToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if a.secret != "" {
		r.Header.Set("Authorization", "Bearer "+a.secret)
	}
	return a.base.RoundTrip(r)
}

// mcpClient opens a session as the Go SDK's client, with the server's token.
func (s *testServer) mcpClient(query string, opts *mcp.ClientOptions) *mcp.ClientSession {
	s.t.Helper()
	base := &http.Transport{}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts).Connect(s.t.Context(), &mcp.StreamableClientTransport{
		Endpoint: s.url + "/mcp" + query, HTTPClient: &http.Client{Transport: asToken{s.token, base}}, MaxRetries: -1,
	}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = session.Close()
		base.CloseIdleConnections()
	})
	return session
}

// shellTool calls skill.shell.run; more are further arguments.
func shellTool(t testing.TB, session *mcp.ClientSession, script string, more ...string) *mcp.CallToolResult {
	t.Helper()
	arguments := map[string]any{"script": script}
	for i := 0; i+1 < len(more); i += 2 {
		arguments[more[i]] = more[i+1]
	}
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "skill.shell.run", Arguments: arguments})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func mcpText(result *mcp.CallToolResult) string {
	var texts []string
	for _, c := range result.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			texts = append(texts, text.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// raw sends one message of the protocol without an SDK.
func (s *testServer) raw(session, body string) (int, http.Header, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/mcp", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}
	base := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: asToken{s.token, base}}).Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var content strings.Builder
	buffer := make([]byte, 64<<10)
	for {
		n, err := resp.Body.Read(buffer)
		content.Write(buffer[:n])
		if err != nil {
			return resp.StatusCode, resp.Header, content.String()
		}
	}
}

const mcpHello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`

// TestMCPTokens: the same tokens, roles and scopes as anywhere else, checked for each request.
func TestMCPTokens(t *testing.T) {
	t.Parallel()
	s := start(t, noPool)
	_, admin := s.newToken(tokens.Spec{Role: tokens.Admin})
	_, auditor := s.newToken(tokens.Spec{Role: tokens.Auditor})
	_, other := s.newToken(tokens.Spec{Role: tokens.Worker})
	mineID, mine := s.newToken(tokens.Spec{Role: tokens.Worker, Projects: []string{"mine"}})

	session := s.as(mine).mcpClient("", nil)
	result := shellTool(t, session, "echo hi > /workspace/artifacts/a.txt")
	if result.IsError {
		t.Fatalf("%s", mcpText(result))
	}
	execID, _ := result.Meta["secbox/exec_id"].(string)
	if record := s.as(admin).get("/sandbox/execs/" + execID); record.str("project_id") != "mine" || record.str("requested_by") != mineID {
		t.Errorf("on record: %v", record)
	}
	if result := shellTool(t, session, "true", "project_id", "theirs"); !result.IsError || !strings.Contains(mcpText(result), "forbidden: project_id") {
		t.Errorf("another's project: %s", mcpText(result))
	}
	if result := shellTool(t, session, "true", "project_id", "../x"); !result.IsError || !strings.Contains(mcpText(result), "project_id") {
		t.Errorf("a project that is none: %s", mcpText(result))
	}
	if result := shellTool(t, s.as(other).mcpClient("", nil), "true", "project_id", "con"); !result.IsError ||
		!strings.Contains(mcpText(result), "project_id") {
		t.Errorf("a name that Windows keeps for itself: %s", mcpText(result))
	}

	read := func(secret string) error {
		_, err := s.as(secret).mcpClient("", nil).ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "exec://" + execID + "/a.txt"})
		return err
	}
	if err := read(mine); err != nil {
		t.Errorf("the caller reads: %v", err)
	}
	if err := read(admin); err != nil {
		t.Errorf("an admin reads: %v", err)
	}
	var wire *jsonrpc.Error
	if err := read(other); !errors.As(err, &wire) || wire.Code != -32002 {
		t.Errorf("another token reads: %v", err)
	}

	for name, c := range map[string]struct {
		secret, session string
		status          int
	}{
		"no token":                      {"", "", http.StatusUnauthorized},
		"an unknown one":                {"sbx_unknown", "", http.StatusUnauthorized},
		"an auditor's":                  {auditor, "", http.StatusForbidden},
		"another's session":             {other, session.ID(), http.StatusForbidden},
		"an admin in another's session": {admin, session.ID(), http.StatusForbidden},
	} {
		if status, _, body := s.as(c.secret).raw(c.session, mcpHello); status != c.status {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	s.revoke(mineID)
	if status, _,
		body := s.as(mine).raw(session.ID(),
		`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"skill.shell.run","arguments":{"script":"true"}}}`); status != http.StatusUnauthorized {
		t.Errorf("a revoked token: %d %s", status, body)
	}
	if items := s.as(admin).get("/sandbox/execs?status=succeeded").list("items"); len(items) != 1 {
		t.Errorf("%d execs are on record: %v", len(items), items)
	}
}

// TestMCPCancel checks that a canceled call and an ended session remove the container.
func TestMCPCancel(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		give   func(s *testServer, session *mcp.ClientSession, cancel context.CancelFunc)
		status string
	}{
		"the call is canceled": {func(_ *testServer, _ *mcp.ClientSession, cancel context.CancelFunc) { cancel() }, "canceled"},
		"the session ends": {func(s *testServer, session *mcp.ClientSession, _ context.CancelFunc) {
			req, _ := http.NewRequestWithContext(s.t.Context(), http.MethodDelete, s.url+"/mcp", nil)
			req.Header.Set("Mcp-Session-Id", session.ID())
			if resp, err := s.client.Transport.RoundTrip(req); err != nil || resp.StatusCode != http.StatusNoContent {
				s.t.Errorf("%v, %v", resp, err)
			} else {
				resp.Body.Close()
			}
		}, "canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, noPool)
			session := s.mcpClient("", nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = session.CallTool(ctx, &mcp.CallToolParams{Name: "skill.shell.run", Arguments: map[string]any{"script": "sleep 600"}})
			}()
			eventually(t, "the container runs", func() bool { return len(s.containers()) == 1 })
			c.give(s, session, cancel)
			<-ended
			eventually(t, "the container is gone", func() bool { return len(s.containers()) == 0 })
			eventually(t, "the row is closed", func() bool {
				items := s.get("/sandbox/execs").list("items")
				return len(items) == 1 && items[0].str("status") == c.status
			})
		})
	}
}

// TestMCPLostConnection checks that an exec goes on when the connection of its call breaks.
func TestMCPLostConnection(t *testing.T) {
	t.Parallel()
	s := shared(t)
	status, header, body := s.raw("", mcpHello)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	ctx, vanish := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":2,"method":"tools/call",
		"params":{"name":"skill.shell.run","arguments":{"script":"until [ -e go ]; do sleep 0.05; done","project_id":"vanish"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Mcp-Session-Id", header.Get("Mcp-Session-Id"))
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req); err == nil {
			_, _ = resp.Body.Read(make([]byte, 1))
			resp.Body.Close()
		}
	}()
	eventually(t, "it runs", func() bool { return len(s.get("/sandbox/execs?project_id=vanish&status=running").list("items")) == 1 })
	vanish()
	<-gone
	if status, _, body := s.raw(header.Get("Mcp-Session-Id"), `{"jsonrpc":"2.0","id":3,"method":"ping"}`); status != http.StatusOK {
		t.Errorf("the session: %d %s", status, body)
	}
	if err := os.WriteFile(filepath.Join(s.project("vanish"), "work/go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has ended well", func() bool { return len(s.get("/sandbox/execs?project_id=vanish&status=succeeded").list("items")) == 1 })
}

// TestMCPCallsAtOnce makes many calls in one session: each gets the result of its exec.
func TestMCPCallsAtOnce(t *testing.T) {
	t.Parallel()
	s := shared(t)
	session := s.mcpClient("", nil)
	var calls sync.WaitGroup
	for n := range scaled(12, 50) {
		calls.Go(func() {
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{
				Name: "skill.shell.run", Arguments: map[string]any{"script": fmt.Sprintf("echo %d", n)},
			})
			if err != nil {
				t.Error(err)
				return
			}
			structured, _ := result.StructuredContent.(map[string]any)
			if want := fmt.Sprintf("%d\n", n); result.IsError || structured["stdout"] != want {
				t.Errorf("want %q, got %s", want, mcpText(result))
			}
		})
	}
	calls.Wait()
}

// TestMCPManifestChanges changes a manifest on disk between list and call.
func TestMCPManifestChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	putSkill(t, dir, "trial.one", `{"type": "object", "properties": {"before": {"type": "string"}}, "additionalProperties": false}`)
	s := start(t, func(s *settings.Settings) { s.Sandbox.SkillsDir = dir }, noPool)
	session := s.mcpClient("", nil)
	if _, err := session.ListTools(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	putSkill(t, dir, "trial.one", `{"type": "object", "properties": {"after": {"type": "string"}}, "additionalProperties": false}`)
	call := func(argument string) *mcp.CallToolResult {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "skill.trial.one", Arguments: map[string]any{argument: "x"}})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	// By the old manifest or the new one, as the catalog has it, but never by half of each.
	if result := call("before"); result.IsError && !strings.Contains(mcpText(result), "before") {
		t.Errorf("%s", mcpText(result))
	}
	eventually(t, "the new manifest holds", func() bool { return !call("after").IsError })
	if result := call("before"); !result.IsError || !strings.Contains(mcpText(result), "invalid_inputs") {
		t.Errorf("%s", mcpText(result))
	}
}

// TestSecboxOutlivesARestart: a desktop host keeps its child, and its child keeps the session.
func TestSecboxOutlivesARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	boot := func(addr string) *testServer {
		return startIn(t, dir, noPool, func(s *settings.Settings) { s.Addr = addr })
	}
	first := boot("127.0.0.1:0")
	_, secret := first.newToken(tokens.Spec{Role: tokens.Worker})
	cmd := exec.Command(secboxBinary(t), "mcp", "--server", first.url)
	cmd.Env = append(os.Environ(), "SECBOX_TOKEN="+secret)
	var said bytes.Buffer // whole when the process has ended
	cmd.Stderr = &said
	changed := make(chan struct{}, 100)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
	}).Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if result := shellTool(t, session, "echo before"); result.IsError {
		t.Errorf("%s", mcpText(result))
	}
	if err := first.app.Close(); err != nil {
		t.Fatal(err)
	}
	boot(first.app.Addr())
	<-changed
	if result := shellTool(t, session, "echo after"); result.IsError || !strings.Contains(mcpText(result), "after") {
		t.Errorf("%s", mcpText(result))
	}
	if err := session.Close(); err != nil {
		t.Errorf("its end: %v\n%s", err, said.String())
	}
	if strings.Contains(said.String(), secret) {
		t.Errorf("the token is in the log:\n%s", said.String())
	}
}
