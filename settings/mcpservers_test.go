package settings

import (
	"strings"
	"testing"
	"time"

	"secbox/fault"
)

// TestMCPServers: the servers of agents come from the file or from a variable, as YAML or JSON, and
// have defaults.
func TestMCPServers(t *testing.T) { // 004 l337–339, 645
	t.Parallel()
	const yaml = `
mcp_servers:
  "*":
    time: {command: mcp-server-time, args: [--utc]}
  agent001:
    github:
      command: github-mcp
      env: [GITHUB_TOKEN]
      tools: [search_issues]
      call_timeout_seconds: 10
`
	for what, s := range map[string]func() (Settings, error){
		"file": func() (Settings, error) { return Load(write(t, yaml), here(), Overrides{}) },
		"variable": func() (Settings, error) {
			const json = `{"*": {"time": {"command": "mcp-server-time", "args": ["--utc"]}},
  "agent001": {"github": {"command": "github-mcp", "env": ["GITHUB_TOKEN"], "tools": ["search_issues"], "call_timeout_seconds": 10}}}`
			return Load("", here("CORE_API_MCP_SERVERS="+json), Overrides{})
		},
	} {
		s, err := s()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		clock, hub := s.MCPServers[AllAgents]["time"], s.MCPServers["agent001"]["github"]
		if clock.Command != "mcp-server-time" || clock.Args[0] != "--utc" || clock.Tools != nil || hub.Env[0] != "GITHUB_TOKEN" ||
			hub.Tools[0] != "search_issues" {
			t.Errorf("%s: %+v", what, s.MCPServers)
		}
		if clock.StartTimeout() != 30*time.Second || clock.CallTimeout() != 2*time.Minute || clock.Idle() != 5*time.Minute ||
			hub.CallTimeout() != 10*time.Second {
			t.Errorf("%s: %+v", what, s.MCPServers)
		}
	}
}

// TestWrongMCPServers: each mistake is reported with its key, its line and a remedy, and the text
// of env is never shown.
func TestWrongMCPServers(t *testing.T) {
	t.Parallel()
	for yaml, want := range map[string]string{
		`{x: {a: {}}}`:                                      "mcp_servers.x.a.command: is missing",
		`{x: {Shell!: {command: a}}}`:                       "mcp_servers.x.Shell!: is no name of a server",
		`{x: {files: {command: a}}}`:                        "mcp_servers.x.files: begins the names of tools of this service",
		`{x: {skill_a: {command: a}}}`:                      "choose another name",
		`{"a b": {a: {command: a}}}`:                        `use an id, or "*"`,
		`{"*": {a: {command: a}}, x: {a: {command: b}}}`:    "mcp_servers.x.a: is also under",
		`{x: {a: {command: a}, a: {command: b}}}`:           "must be a name that is there once",
		`{x: {a: {comand: a}}}`:                             "mcp_servers.x.a.comand: line 1 of secbox.yaml: there is no such setting; did you mean command?",
		`{x: {a: {command: [a]}}}`:                          "mcp_servers.x.a.command: line 1 of secbox.yaml: must be text, not a list",
		`{x: {a: {command: a, args: b}}}`:                   "must be a list",
		`{x: {a: {command: a, idle_seconds: b}}}`:           "must be a whole number",
		`{x: {a: {command: a, idle_seconds: -1}}}`:          "mcp_servers.x.a.idle_seconds",
		`{x: {a: {command: a, env: ["PASSWORD=hunter2"]}}}`: "mcp_servers.x.a.env[0]: must be the name of a variable",
		`{x: {a: {command: a, tools: []}}}`:                 "mcp_servers.x.a.tools: is empty; leave it out to offer all tools",
		`{x: {a: {command: a, tools: ["a b"]}}}`:            "mcp_servers.x.a.tools[0]",
		`{x: {a: b}}`:                                       "mcp_servers.x.a: line 1 of secbox.yaml: must be a section",
		`[a]`:                                               "mcp_servers: line 1 of secbox.yaml: must be a section, not a list",
		`{<<: {a: {command: a}}}`:                           "mcp_servers.<<",
	} {
		_, err := Load(write(t, "mcp_servers: "+yaml), here(), Overrides{})
		if !fault.Is(err, fault.InvalidSettings) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %q", yaml, err, want)
		}
	}
	if _, err := Load("", here("CORE_API_MCP_SERVERS={{"), Overrides{}); err == nil || !strings.Contains(err.Error(), "CORE_API_MCP_SERVERS: must be JSON") {
		t.Error(err)
	}
}
