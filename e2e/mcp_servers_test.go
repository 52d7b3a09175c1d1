package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/access/tokens"
	"secbox/audit"
	"secbox/sandbox/remote/machine"
	"secbox/settings"
)

// whereServer is an MCP server in the user's workspace: a shell script, which runs wherever there
// is a shell. Its tool tells where it runs.
const whereServer = `while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"method":"initialize"'*) r='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"where","version":"1"}}';;
    *'"method":"tools/list"'*) r='{"tools":[{"name":"am_i","description":"Tells where it runs.","inputSchema":{"type":"object"}}]}';;
    *'"method":"tools/call"'*) sleep MARK & r='{"content":[{"type":"text","text":"'$(cat here)' '$PET' '$HOME'"}]}';;
    *) continue;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$r"
done
`

// TestMCPServersRunInTheUsersSandbox: in the container, and after the user has moved, on the user's
// machine over a real link. Each process is on record, and ends with the sandbox and with core-api.
func TestMCPServersRunInTheUsersSandbox(t *testing.T) { // 004 l11, 23, 337–339, 645
	t.Parallel()
	mark := fmt.Sprintf("1%09d", rand.IntN(1e9))
	script := strings.Replace(whereServer, "MARK", mark, 1)
	s := startWith(t, t.TempDir(), append(os.Environ(), "PET=a-secret-cat"), noPool, func(s *settings.Settings) {
		s.MCPServers = settings.MCPServers{"ag": {"where": {Command: "sh", Args: []string{"where.sh"}, Env: []string{"PET"}}}}
	})
	_, s.token = s.newToken(tokens.Spec{Role: tokens.Admin})
	s.send(http.MethodPut, "/v1/sandbox/mia/ag/edit?path=where.sh", script).done(t)
	s.send(http.MethodPut, "/v1/sandbox/mia/ag/edit?path=here", "container").done(t)

	changes := make(chan struct{}, 100)
	session := s.mcpClient("?project_id=ag~mia", &mcp.ClientOptions{ToolListChangedHandler: func(context.Context,
		*mcp.ToolListChangedRequest,
	) {
		changes <- struct{}{}
	}})
	offered := func() (found bool) {
		for one, err := range session.Tools(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			found = found || one.Name == "where_am_i"
		}
		return found
	}
	for !offered() { // a cold container may take longer than the listing waits
		<-changes
	}
	if got := mcpText(tool(t, session, "where.am_i", nil)); !strings.HasPrefix(got, "container a-secret-cat ") {
		t.Errorf("in the container: %s", got)
	}
	rows := s.get("/sandbox/execs?user_id=mia&status=running").list("items")
	if len(rows) != 1 {
		t.Fatalf("%v", rows)
	}
	row := s.get("/sandbox/execs/" + rows[0].str("exec_id"))
	row.wants(t, object{"backend": "docker", "cmd": "sh", "args": "[where.sh]", "env_keys": "[PET]", "task_id": "mcp_server.where"})

	laptop := t.TempDir()
	for name, content := range map[string]string{"where.sh": script, "here": "laptop"} {
		if err := os.WriteFile(filepath.Join(laptop, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s.dialIn("mia", "laptop", laptop, machine.AllowExec)
	s.worksIn("mia", object{"backend": "remote"}) // ends the commands in the container
	if got := mcpText(tool(t, session, "where.am_i", nil)); !strings.HasPrefix(got, "laptop a-secret-cat ") {
		t.Errorf("on the laptop: %s", got)
	}
	if got := s.get("/sandbox/execs/" + row.str("exec_id")); got.str("status") != "canceled" || got.num("stdout_bytes") == 0 {
		t.Errorf("%v", got)
	}
	s.get("/sandbox/execs?user_id=mia&status=running").list("items")[0].wants(t, object{"backend": "remote", "runner": "laptop"})

	if err := s.app.Close(); err != nil {
		t.Error(err)
	}
	if out, err := exec.Command("pgrep", "-af", "sleep "+mark).CombinedOutput(); err == nil {
		t.Errorf("processes are left: %s", out)
	}
	rowsOf, _, err := s.database().Audit().List(t.Context(), audit.Filter{}, nil, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range rowsOf {
		if !one.Status.Final() || one.Cmd == "sh" && strings.Contains(strings.Join(one.Args, " ")+one.Detail, "secret-cat") {
			t.Errorf("%+v", one)
		}
	}
}
