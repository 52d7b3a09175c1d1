package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/settings"
)

// mcpClients is where scripts/setup.sh has put the clients that were not written here: node_modules
// by the digest of the lock file.
func mcpClients(t testing.TB) (modules string) {
	t.Helper()
	remedy := "; run scripts/setup.sh test, which installs Node.js and the official MCP clients"
	if _, err := exec.LookPath("node"); err != nil {
		t.Fatal("node is missing" + remedy)
	}
	lock, err := os.ReadFile("testdata/mcpclient/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	installed, err := os.ReadFile("../.cache/mcpclient/installed.json")
	if err != nil || !bytes.Equal(lock, installed) {
		t.Fatal("the MCP clients of testdata/mcpclient are not installed" + remedy)
	}
	if modules, err = filepath.Abs("../.cache/mcpclient/node_modules"); err != nil {
		t.Fatal(err)
	}
	return modules
}

// putSkill writes a skill that does nothing into a folder of skills.
func putSkill(t testing.TB, dir, id, inputs string) {
	t.Helper()
	folder := filepath.Join(dir, id)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"run.sh":   "echo '{}' >$SKILL_OUTPUT",
		"SKILL.md": "# A skill\n",
		"manifest.json": `{"schema_version": "1", "id": "` + id + `", "name": "A skill", "description": "Does nothing.",
			"interface": {"inputs": ` + inputs + `, "outputs": {"type": "object"}},
			"runtime": {"kind": "docker", "entrypoint": ["bash", "./run.sh"]},
			"permissions": {"fs": {"read": ["inputs/**"], "write": ["artifacts/**"]}, "net": {"mode": "none"}},
			"limits": {"timeout_ms": 30000}}`,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOfficialMCPClient drives the official TypeScript SDK, over HTTP and through `secbox mcp`:
// everything that a host does.
func TestOfficialMCPClient(t *testing.T) {
	t.Parallel()
	modules := mcpClients(t)
	for _, transport := range []string{"http", "stdio"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "skills")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			s := start(t, noPool, func(s *settings.Settings) { s.Sandbox.SkillsDir = dir })
			id, secret := s.newToken(tokens.Spec{Role: tokens.Worker})
			later := map[string]string{"http": "added.later1", "stdio": "added.later2"}[transport]
			putSkill(t, filepath.Dir(dir), later, `{"type": "object"}`)

			env := []string{"NODE_PATH=" + modules, "MCP_URL=" + s.url, "MCP_TOKEN=" + secret, "SKILLS_DIR=" + dir}
			if transport == "stdio" {
				env = append(env, "SECBOX="+secboxBinary(t))
			}
			seen := whatNodeSaw(t, env, "testdata/mcpclient/client.cjs", transport)
			checkWhatTheClientSaw(t, s.with(t).as(secret), id, later, seen)
		})
	}
}

func checkWhatTheClientSaw(t *testing.T, s *testServer, tokenID, later string, seen object) {
	if seen.str("server.name") != "secbox" || seen.str("instructions") == "" || seen.at("capabilities.tools.listChanged") != true {
		t.Errorf("initialize: %v %v %q", seen.at("server"), seen.at("capabilities"), seen.str("instructions"))
	}
	checkShellTool(t, seen)

	call := seen.at("call").(map[string]any)
	execID, _ := call["_meta"].(map[string]any)["secbox/exec_id"].(string)
	record := s.get("/sandbox/execs/" + execID)
	if record.str("skill_id") != "shell.run" || record.str("project_id") != "mcp-"+tokenID || record.str("requested_by") != tokenID ||
		record.str("status") != "succeeded" {
		t.Errorf("the record of the call: %v", record)
	}
	if call["isError"] == true || object(call).num("structuredContent.exit_code") != 0 || object(call).str("structuredContent.stdout") != "hi\n" {
		t.Errorf("the call: %v", call)
	}
	if text := textsOf(call); !strings.Contains(text, "stdout:\nhi") || !strings.Contains(text, "stderr:\noops") {
		t.Errorf("the call's texts: %q", text)
	}
	if read := object(seen.at("artifact").(map[string]any)).list("value.contents"); len(read) != 1 || read[0].str("text") != "left here" ||
		read[0].str("uri") != "exec://"+execID+"/d/a%20b.txt" {
		t.Errorf("the artifact: %v", seen.at("artifact"))
	}
	if read := object(seen.at("stdout").(map[string]any)).list("value.contents"); len(read) != 1 || read[0].str("text") != "hi\n" {
		t.Errorf("stdout.txt: %v", seen.at("stdout"))
	}
	if seen.num("missing.error.code") != -32002 {
		t.Errorf("a missing artifact: %v", seen.at("missing"))
	}

	failed := object(seen.at("failed").(map[string]any))
	if failed.at("isError") != true || !strings.Contains(textsOf(failed), "exit code 3") || !strings.Contains(textsOf(failed), "so far") {
		t.Errorf("a failed exec: %v", failed)
	}
	invalid := object(seen.at("invalid").(map[string]any))
	if text := textsOf(invalid); invalid.at("isError") != true || !strings.Contains(text, "invalid_inputs") || !strings.Contains(text, "script") ||
		!strings.Contains(text, "more") {
		t.Errorf("wrong arguments: %v", invalid)
	}
	if seen.num("unknown.error.code") != -32602 {
		t.Errorf("an unknown tool: %v", seen.at("unknown"))
	}
	checkProgress(t, seen)

	message := seen.str("cancel.message")
	fields := strings.Fields(message)
	if len(fields) < 2 || !strings.Contains(seen.str("cancel.outcome.error.message"), "changed their mind") {
		t.Fatalf("the canceled call: %v", seen.at("cancel"))
	}
	var canceled object
	eventually(t, "the canceled exec has ended", func() bool {
		canceled = s.get("/sandbox/execs/" + fields[1])
		return canceled.str("ended_at") != ""
	})
	if canceled.str("status") != "canceled" || canceled.num("duration_ms") > 60_000 {
		t.Errorf("the canceled exec: %v", canceled)
	}
	eventually(t, "its container is gone", func() bool {
		return strings.TrimSpace(s.docker("ps", "-aq", "--filter", "label=secbox.exec="+fields[1])) == ""
	})

	if seen.at("listChanged.value") != true || !slices.Contains(seen.at("toolsLater").([]any), any("skill_"+strings.ReplaceAll(later, ".", "_"))) {
		t.Errorf("a skill that came later: %v, %v", seen.at("listChanged"), seen.at("toolsLater"))
	}
	if !slices.Contains(seen.at("dotted").([]any), any("skill.shell.run")) {
		t.Errorf("names with dots: %v", seen.at("dotted"))
	}
	other, _ := seen.at("dottedCall").(map[string]any)["_meta"].(map[string]any)["secbox/exec_id"].(string)
	if record := s.get("/sandbox/execs/" + other); record.str("project_id") != "other" {
		t.Errorf("a call for another project: %v", record)
	}
	if items := s.get("/sandbox/execs?skill_id=shell.run").list("items"); len(items) < 5 {
		t.Errorf("%d execs of shell.run are on record", len(items))
	}
}

func checkShellTool(t *testing.T, seen object) {
	for _, tool := range seen.list("tools") {
		if tool.str("name") != "skill_shell_run" {
			continue
		}
		if tool.str("inputSchema.properties.script.type") != "string" || tool.str("inputSchema.properties.project_id.type") != "string" ||
			tool.str("outputSchema.type") != "object" || tool.at("annotations.destructiveHint") != true || tool.at("annotations.openWorldHint") != false {
			t.Errorf("the tool: %v", tool)
		}
		return
	}
	t.Errorf("no skill_shell_run among %v", seen.at("tools"))
}

func checkProgress(t *testing.T, seen object) {
	reports := seen.list("progress")
	if len(reports) < 2 {
		t.Errorf("progress: %v", reports)
		return
	}
	last, lines := 0.0, false
	for _, r := range reports {
		if r.num("progress") <= last {
			t.Errorf("progress does not grow: %v", reports)
		}
		last = r.num("progress")
		lines = lines || strings.Contains(r.str("message"), "last line: line ")
	}
	// The tool may hold its output back until the end; then there is none to tell of.
	if final := reports[len(reports)-1]; final.num("total") != 60 && !lines {
		t.Errorf("the last report: %v", final)
	}
}

// textsOf are all texts of a result.
func textsOf(result map[string]any) string {
	var texts []string
	for _, c := range object(result).list("content") {
		texts = append(texts, c.str("text"))
	}
	return strings.Join(texts, "\n")
}

// TestMCPInspector lists and calls tools with the official MCP inspector.
func TestMCPInspector(t *testing.T) {
	t.Parallel()
	cli := filepath.Join(mcpClients(t), "@modelcontextprotocol/inspector-cli/build/index.js")
	s := start(t, noPool)
	_, secret := s.newToken(tokens.Spec{Role: tokens.Admin})
	inspect := func(args ...string) object {
		t.Helper()
		args = append([]string{cli, s.url + "/mcp", "--transport", "http", "--header", "Authorization: Bearer " + secret}, args...)
		cmd := exec.CommandContext(t.Context(), "node", args...)
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("the inspector: %v\n%s%s", err, out, said.String())
		}
		seen := object{}
		if err := json.Unmarshal(out, &seen); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		return seen
	}
	checkShellTool(t, inspect("--method", "tools/list"))
	result := inspect("--method", "tools/call", "--tool-name", "skill_shell_run", "--tool-arg", "script=echo inspected")
	if result.at("isError") == true || result.str("structuredContent.stdout") != "inspected\n" {
		t.Errorf("the call: %v", result)
	}
	if items := s.as(secret).get("/sandbox/execs?skill_id=shell.run").list("items"); len(items) != 1 {
		t.Errorf("%d execs of shell.run are on record", len(items))
	}
}

// whatNodeSaw runs a program of ours around a client that is not, and reads what it prints.
func whatNodeSaw(t *testing.T, env []string, args ...string) object {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Env = append(os.Environ(), env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, said.String())
	}
	seen := object{}
	if err := json.Unmarshal(out, &seen); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return seen
}
