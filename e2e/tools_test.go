package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/access/tokens"
)

// tool calls a tool of a session.
func tool(t testing.TB, session *mcp.ClientSession, name string, arguments map[string]any) *mcp.CallToolResult {
	t.Helper()
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return result
}

// TestToolsFollowTheSandbox: the same policy, limits and scope as /v1/sandbox.
func TestToolsFollowTheSandbox(t *testing.T) {
	t.Parallel()
	s := start(t, noPool)
	_, s.token = s.newToken(tokens.Spec{Role: tokens.Admin})
	s.dialIn("carl", "desk", t.TempDir()) // may only read
	s.worksIn("carl", object{"backend": "remote"})
	session := s.mcpClient("?project_id=ag~carl", nil)
	for name, arguments := range map[string]map[string]any{
		"shell": {"command": "true"}, "files.write": {"path": "x", "content": "x"},
	} {
		if got := tool(t, session, name, arguments); !got.IsError || !strings.Contains(mcpText(got), "runner_refused") {
			t.Errorf("%s: %s", name, mcpText(got))
		}
	}
	if got := tool(t, session, "files.glob", map[string]any{"pattern": "*"}); got.IsError { // a search reads
		t.Errorf("files.glob: %s", mcpText(got))
	}
	s.worksIn("carl", object{"backend": "docker"}) // at once, in the same session
	s.send(http.MethodPut, "/v1/sandbox/carl/ag/edit?path=notes.txt", "one\ntwo\n").done(t)
	if got := tool(t, session, "files.read", map[string]any{"path": "notes.txt"}); mcpText(got) != "     1\tone\n     2\ttwo\n" {
		t.Errorf("%s", mcpText(got))
	}
}
