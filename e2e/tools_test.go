package e2e

import (
	"net/http"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
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

// TestToolsInDocker: an agent reads a file of its user's workspace over MCP.
func TestToolsInDocker(t *testing.T) {
	t.Parallel()
	s := start(t, noPool)
	s.send(http.MethodPut, "/v1/sandbox/ann/agent001/edit?path=notes.txt", "one\ntwo\n").done(t)
	session := s.mcpClient("?project_id=agent001~ann", nil)
	got := tool(t, session, "files.read", map[string]any{"path": "notes.txt"})
	if text := mcpText(got); got.IsError || text != "     1\tone\n     2\ttwo\n" {
		t.Errorf("%q", text)
	}
}
