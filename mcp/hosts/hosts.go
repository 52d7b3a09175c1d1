// Package hosts adds an MCP server to the configuration of the programs that start such servers:
// desktop programs, editors, and agents in a terminal. Each has a file of its own place and form;
// everything else in the file stays as its user wrote it. The package must not know which server it
// adds, and makes no requests.
package hosts

import (
	"path/filepath"
	"slices"

	"secbox/fault"
)

// Host is a program that starts MCP servers.
type Host struct {
	Name string
	Next string // what the user does after a change

	place func(d dirs) string // of the configuration
	key   string              // of the entries in a JSON file; empty: the file is TOML
	typed bool                // an entry says that it is a program
}

// dirs are the directories of a user. The environment may name others for some hosts.
type dirs struct {
	home, config string
	getenv       func(string) string
}

var hosts = []Host{
	{
		Name: "claude-desktop", key: "mcpServers", Next: "Restart Claude Desktop.",
		place: func(d dirs) string { return filepath.Join(d.config, "Claude", "claude_desktop_config.json") },
	},
	{
		Name: "claude-code", key: "mcpServers", typed: true, Next: "Start claude again; /mcp shows it.",
		place: func(d dirs) string { return filepath.Join(d.or("CLAUDE_CONFIG_DIR", d.home), ".claude.json") },
	},
	{
		Name: "cursor", key: "mcpServers", Next: "Switch it on in Cursor's settings, under MCP.",
		place: func(d dirs) string { return filepath.Join(d.home, ".cursor", "mcp.json") },
	},
	{
		Name: "vscode", key: "servers", typed: true, Next: "Start it with the command MCP: List Servers.",
		place: func(d dirs) string { return filepath.Join(d.config, "Code", "User", "mcp.json") },
	},
	{
		Name: "codex", Next: "Start codex again; /mcp shows it.",
		place: func(d dirs) string {
			return filepath.Join(d.or("CODEX_HOME", filepath.Join(d.home, ".codex")), "config.toml")
		},
	},
	{
		Name: "gemini", key: "mcpServers", Next: "Start gemini again; /mcp shows it.",
		place: func(d dirs) string { return filepath.Join(d.home, ".gemini", "settings.json") },
	},
}

func (d dirs) or(variable, dir string) string {
	if named := d.getenv(variable); named != "" {
		return named
	}
	return dir
}

// Names returns the names of all hosts.
func Names() (names []string) {
	for _, h := range hosts {
		names = append(names, h.Name)
	}
	return names
}

// Named returns the host with a name.
func Named(name string) (Host, bool) {
	i := slices.IndexFunc(hosts, func(h Host) bool { return h.Name == name })
	if i < 0 {
		return Host{}, false
	}
	return hosts[i], true
}

// File returns the path of the host's configuration for the user of this process.
func (h Host) File(goos string, getenv func(string) string) (string, error) {
	d := dirs{home: getenv("HOME"), getenv: getenv}
	switch goos {
	case "windows":
		d.home, d.config = getenv("USERPROFILE"), getenv("APPDATA")
	case "darwin":
		d.config = filepath.Join(d.home, "Library", "Application Support")
	default:
		d.config = d.or("XDG_CONFIG_HOME", filepath.Join(d.home, ".config"))
	}
	if d.home == "" || d.config == "" {
		return "", fault.New(fault.InvalidRequest, "the environment does not name your home directory; name the configuration with --file")
	}
	return h.place(d), nil
}

// Entry is what a host needs to know about a server.
type Entry struct {
	Name, Command string
	Args          []string
	TokenVariable string // of the server's environment
	Token         string // empty: the variable is removed
}

// Add returns a configuration with an entry. An entry with the same name keeps its other settings,
// such as a timeout.
func (h Host) Add(config []byte, e Entry) ([]byte, error) {
	if h.key == "" {
		return addTOML(config, e)
	}
	return h.addJSON(config, e)
}
