package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestInlineTruncation checks that an answer tells output cut from the answer from output cut by
// policy.
func TestInlineTruncation(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for n, c := range []struct {
		bytes, kept    int
		inline, policy bool
	}{
		{200_000, 1 << 20, true, false}, {64 << 10, 1 << 20, false, false}, {200_000, 100_000, true, true}, {200_000, 1000, false, true},
	} {
		t.Run(fmt.Sprintf("%d of %d", c.bytes, c.kept), func(t *testing.T) {
			t.Parallel()
			s := s.with(t)
			request := shell(fmt.Sprintf("inline-%d", n), fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; echo warn >&2", c.bytes), "policy_overrides",
				object{"max_stdout_bytes": c.kept})
			first := s.exec(request, "Idempotency-Key", request["project_id"].(string))
			first.wants(t, object{
				"stdout_inline_truncated": c.inline, "stdout_truncated": c.policy, "stdout_bytes": c.bytes, "stderr_inline_truncated": false,
				"stderr_truncated": false,
			})
			if got, want := len(first.str("stdout")), min(c.bytes, c.kept, 64<<10); got != want {
				t.Errorf("%d bytes inline, want %d", got, want)
			}
			s.again(request, request["project_id"].(string), first)
		})
	}
}

// TestMCPLongResult calls shell.run with more output than an MCP result holds, and with timeout_ms.
func TestMCPLongResult(t *testing.T) {
	t.Parallel()
	s := shared(t)
	session := s.mcpClient("", nil)
	call := func(arguments map[string]any) *mcp.CallToolResult {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "skill.shell.run", Arguments: arguments})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	result := call(map[string]any{"script": "echo BEGIN; head -c 229000 /dev/zero | tr '\\0' x; echo; echo END"})
	all, err := json.Marshal(result)
	if err != nil || result.IsError || len(all) > 33<<10 || !strings.Contains(string(all), "BEGIN") || !strings.Contains(string(all), "END") {
		t.Errorf("%v: %d bytes: %.500s", err, len(all), all)
	}
	if result := call(map[string]any{"script": "sleep 100", "timeout_ms": 300}); !result.IsError || !strings.Contains(mcpText(result), "timeout_ms=300") {
		t.Errorf("%s", mcpText(result))
	}
	if result := call(map[string]any{"script": "true", "timeout_ms": 1 << 40}); !result.IsError || !strings.Contains(mcpText(result), "policy_denied") {
		t.Errorf("%s", mcpText(result))
	}
}
