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
	for _, c := range []struct {
		tool      string
		arguments map[string]any
	}{
		{"files.write", map[string]any{"path": "src/a.go", "content": "package a\n\nfunc A() {}\n"}},
		{"files.edit", map[string]any{"path": "src/a.go", "edits": []any{map[string]any{"old": "func A", "new": "func B"}}}},
		{"files.cd", map[string]any{"path": "src"}},
		{"files.glob", map[string]any{"pattern": "*"}},
		{"files.grep", map[string]any{"pattern": "func \\w", "output_mode": "content"}},
		{"shell", map[string]any{"command": "cat a.go; pwd"}},
		{"skills.read", map[string]any{"name": "shell.run"}},
	} {
		if got := tool(t, session, c.tool, c.arguments); got.IsError {
			t.Errorf("%s: %s", c.tool, mcpText(got))
		}
	}
}
