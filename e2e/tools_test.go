package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/sandbox/remote/machine"
	"secbox/tokens"
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

// TestToolsOverMCP: with the official client, an agent finds and fixes a bug in the workspace of a user, in a container and on the user's own machine.
func TestToolsOverMCP(t *testing.T) {
	t.Parallel()
	modules := mcpClients(t)
	s := start(t, noPool)
	_, s.token = s.newToken(tokens.Spec{Role: tokens.Admin})
	laptop := t.TempDir()
	s.dialIn("bob", "laptop", laptop, machine.AllowExec, machine.AllowWrite)
	s.worksIn("bob", object{"backend": "remote"})
	for user, backend := range map[string]string{"ann": "docker", "bob": "remote"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			s := s.with(t)
			id, secret := s.newToken(tokens.Spec{Role: tokens.Worker, Users: []string{user}})
			seen := whatNodeSaw(t, []string{"NODE_PATH=" + modules, "MCP_URL=" + s.url, "MCP_TOKEN=" + secret, "PROJECT=ag~" + user}, "testdata/mcpclient/tools.cjs")
			checkWhatTheAgentSaw(t, seen)

			rows := s.get("/sandbox/execs?kind=all&user_id=" + user).list("items")
			commands := map[string]int{}
			for _, row := range rows {
				commands[filepath.Base(row.str("cmd"))]++
				if row.str("cmd") == "files.write" {
					row.wants(t, object{"status": "succeeded", "kind": "change", "args": "[/workspace/calc/reports/today.md]", "sha256_before": "absent",
						"sha256_after": "0c3071418e6356e614898c84ed064ca95e88551bc0811b534bdf1952ecdae534"})
				}
				row.wants(t, object{"backend": backend, "agent_id": "ag", "requested_by": id})
			}
			if commands["bash"] != 3 || commands["secbox-search"] != 2 || commands["files.edit"] != 1 || commands["files.write"] != 1 {
				t.Errorf("on record are %v", commands)
			}
			for name, want := range map[string]string{"calc/src/add.sh": "add() {\n  echo $(($1 + $2))\n}\n", "calc/reports/today.md": "fixed\n"} {
				if got := s.content("/v1/sandbox/"+user+"/ag", name); got != want {
					t.Errorf("%s: %q", name, got)
				}
				if _, err := os.Stat(filepath.Join(laptop, name)); backend == "remote" && err != nil {
					t.Errorf("%s on the laptop: %v", name, err)
				}
			}
		})
	}
}

func checkWhatTheAgentSaw(t *testing.T, seen object) {
	for _, c := range []struct {
		key    string
		failed bool
		want   string // exactly, or a part if it begins with …
	}{
		{"checkout", false, "(no output)\n"},
		{"cd", false, "/workspace/calc/src\n  add.sh  30 B\n"},
		{"up", false, "…/workspace/calc\n  docs/\n    page1.md  9 B\n"},
		{"broken", true, "2 + 3 = -1\n(exit code 1)\n"},
		{"glob", false, "src/add.sh\n"},
		{"grep", false, "src/add.sh\n2:  echo $(($1 - $2))\n"},
		{"unread", true, "…read it first"},
		{"read", false, "     1\tadd() {\n     2\t  echo $(($1 - $2))\n     3\t}\n"},
		{"wrong", true, "…     2\t  echo $(($1 - $2))"},
		{"edit", false, "…edited /workspace/calc/src/add.sh; replacements: 1\nsha256: "},
		{"test", false, "ok\n"},
		{"report", false, "…made /workspace/calc/reports/today.md: 6 bytes"},
		{"skill", false, "…Files of the skill:\nSKILL.md\n"},
		{"outside", true, "…path_refused: /etc/passwd leads out of the workspace"},
	} {
		result := seen.at(c.key).(map[string]any)
		text := textsOf(result)
		if part, ok := strings.CutPrefix(c.want, "…"); ok && !strings.Contains(text, part) || !ok && text != c.want || (result["isError"] == true) != c.failed {
			t.Errorf("%s: %q, failed: %v", c.key, text, result["isError"])
		}
	}
	if read, edit := object(seen.at("read").(map[string]any)), object(seen.at("edit").(map[string]any)); read.at("_meta").(map[string]any)["secbox/sha256"] != edit.at("_meta").(map[string]any)["secbox/sha256_before"] {
		t.Errorf("the digest that was read: %v, and edited: %v", read.at("_meta"), edit.at("_meta"))
	}
	if progress := seen.at("progress").([]any); len(progress) == 0 || progress[0] != "ok\n" {
		t.Errorf("progress: %v", progress)
	}
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
		"shell": {"command": "true"}, "files.write": {"path": "x", "content": "x"}, "files.glob": {"pattern": "*"},
	} {
		if got := tool(t, session, name, arguments); !got.IsError || !strings.Contains(mcpText(got), "runner_refused") {
			t.Errorf("%s: %s", name, mcpText(got))
		}
	}
	s.worksIn("carl", object{"backend": "docker"}) // at once, in the same session
	s.send(http.MethodPut, "/v1/sandbox/carl/ag/edit?path=notes.txt", "one\ntwo\n").done(t)
	if got := tool(t, session, "files.read", map[string]any{"path": "notes.txt"}); mcpText(got) != "     1\tone\n     2\ttwo\n" {
		t.Errorf("%s", mcpText(got))
	}
}
