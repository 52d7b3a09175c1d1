package hosts

import (
	"path/filepath"
	"strings"
	"testing"
)

// environment returns a lookup of variables from pairs.
func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestPlacesOfConfigurations(t *testing.T) {
	t.Parallel()
	linux := environment("HOME", "/home/ann")
	for _, c := range []struct {
		host, goos string
		getenv     func(string) string
		want       string
	}{
		{"claude-desktop", "linux", linux, "/home/ann/.config/Claude/claude_desktop_config.json"},
		{"claude-desktop", "darwin", environment("HOME", "/Users/ann"), "/Users/ann/Library/Application Support/Claude/claude_desktop_config.json"},
		{"claude-desktop", "windows", environment("USERPROFILE", "U", "APPDATA", "A"), "A/Claude/claude_desktop_config.json"},
		{"claude-code", "linux", linux, "/home/ann/.claude.json"},
		{"claude-code", "windows", environment("USERPROFILE", "U", "APPDATA", "A"), "U/.claude.json"},
		{"claude-code", "linux", environment("HOME", "/home/ann", "CLAUDE_CONFIG_DIR", "/x"), "/x/.claude.json"},
		{"cursor", "darwin", environment("HOME", "/Users/ann"), "/Users/ann/.cursor/mcp.json"},
		{"vscode", "linux", linux, "/home/ann/.config/Code/User/mcp.json"},
		{"vscode", "linux", environment("HOME", "/home/ann", "XDG_CONFIG_HOME", "/cfg"), "/cfg/Code/User/mcp.json"},
		{"vscode", "darwin", environment("HOME", "/Users/ann"), "/Users/ann/Library/Application Support/Code/User/mcp.json"},
		{"vscode", "windows", environment("USERPROFILE", "U", "APPDATA", "A"), "A/Code/User/mcp.json"},
		{"codex", "linux", linux, "/home/ann/.codex/config.toml"},
		{"codex", "linux", environment("HOME", "/home/ann", "CODEX_HOME", "/c"), "/c/config.toml"},
		{"gemini", "linux", linux, "/home/ann/.gemini/settings.json"},
	} {
		h, ok := Named(c.host)
		if !ok {
			t.Fatal(c.host)
		}
		if file, err := h.File(c.goos, c.getenv); err != nil || filepath.ToSlash(file) != c.want {
			t.Errorf("%s on %s: %s %v, not %s", c.host, c.goos, file, err, c.want)
		}
		if _, err := h.File(c.goos, environment()); err == nil {
			t.Errorf("%s on %s needs no home directory", c.host, c.goos)
		}
	}
}

// TestEntries adds an entry to configurations as users have them.
func TestEntries(t *testing.T) {
	t.Parallel()
	plain := Entry{Name: "secbox", TokenVariable: "SECBOX_TOKEN", Command: "/bin/secbox", Args: []string{"mcp"}}
	secret := Entry{Name: "secbox", TokenVariable: "SECBOX_TOKEN", Command: `C:\secbox.exe`, Args: []string{"mcp", "--project", "demo"}, Token: "sbx_x"}
	for name, c := range map[string]struct {
		host    string
		entry   Entry
		old     string
		want    string
		refused string
	}{
		"none": {host: "claude-desktop", entry: plain, want: `{
  "mcpServers": {
    "secbox": {
      "command": "/bin/secbox",
      "args": ["mcp"]
    }
  }
}
`},
		"none, with a token": {host: "vscode", entry: secret, want: `{
  "servers": {
    "secbox": {
      "type": "stdio",
      "command": "C:\\secbox.exe",
      "args": ["mcp", "--project", "demo"],
      "env": {
        "SECBOX_TOKEN": "sbx_x"
      }
    }
  }
}
`},
		"others, comments, tabs, and commas at the end": {
			host: "vscode", entry: plain, old: "\ufeff{\n\t// mine\n\t\"servers\": {\n\t\t\"a\": {\"command\": \"x\"}, // runs x\n\t},\n\t\"inputs\": [],\n}\n",
			want: "{\n\t// mine\n\t\"servers\": {\n\t\t\"a\": {\"command\": \"x\"}, // runs x\n\t\t\"secbox\": {\n\t\t\t\"type\": \"stdio\",\n\t\t\t\"command\": \"/bin/secbox\",\n" +
				"\t\t\t\"args\": [\"mcp\"]\n\t\t},\n\t},\n\t\"inputs\": [],\n}\n",
		},
		"a comment behind the last": {
			host: "gemini", entry: plain, old: "{\n    \"theme\": \"dark\" // at night\n}",
			want: "{\n    \"theme\": \"dark\", // at night\n    \"mcpServers\": {\n        \"secbox\": {\n            \"command\": \"/bin/secbox\",\n            \"args\": [\"mcp\"]\n        }\n    }\n}",
		},
		"on one line": {
			host: "cursor", entry: plain, old: `{"a": 1e999, "mcpServers": {"b": {}}}`,
			want: "{\"a\": 1e999, \"mcpServers\": {\"b\": {}, \"secbox\": {\n      \"command\": \"/bin/secbox\",\n      \"args\": [\"mcp\"]\n    }}}",
		},
		"an older entry": {
			host: "claude-code", entry: plain,
			old: `{"mcpServers": {"secbox": {"timeout": 5, "args": ["old"], "env": {"A": "b", "SECBOX_TOKEN": "old"}}}}`,
			want: `{"mcpServers": {"secbox": {"timeout": 5, "args": ["mcp"], "env": {"A": "b"}, "type": "stdio", ` +
				`"command": "/bin/secbox"}}}`,
		},
		"broken":            {host: "cursor", entry: plain, old: `{"mcpServers": {`, refused: "it is not JSON"},
		"a list":            {host: "cursor", entry: plain, old: `[]`, refused: "the file is not a JSON object"},
		"entries are text":  {host: "cursor", entry: plain, old: `{"mcpServers": "x"}`, refused: "mcpServers is not a JSON object"},
		"the entry is null": {host: "cursor", entry: plain, old: `{"mcpServers": {"secbox": null}}`, refused: "secbox is not a JSON object"},

		"TOML, none": {host: "codex", entry: plain, want: "[mcp_servers.secbox]\nargs = ['mcp']\ncommand = '/bin/secbox'\n"},
		"TOML, others": {
			host: "codex", entry: secret, old: "# mine\nmodel = \"o\"\n\n[mcp_servers.a]\ncommand = 'x' # runs x",
			want: "# mine\nmodel = \"o\"\n\n[mcp_servers.a]\ncommand = 'x' # runs x\n\n[mcp_servers.secbox]\nargs = ['mcp', '--project', 'demo']\ncommand = 'C:\\secbox.exe'\n\n" +
				"[mcp_servers.secbox.env]\nSECBOX_TOKEN = 'sbx_x'\n",
		},
		"TOML, an older entry": {
			host: "codex", entry: plain,
			old:  "a = 1\n\n[mcp_servers.secbox] # old\ncommand = \"old\"\nstartup_timeout_sec = 20\n[mcp_servers.secbox.env]\nSECBOX_TOKEN = \"old\"\nB = \"c\"\n\n# of b\n[mcp_servers.b]\nurl = \"u\"\n",
			want: "a = 1\n\n[mcp_servers.secbox]\nargs = ['mcp']\ncommand = '/bin/secbox'\nstartup_timeout_sec = 20\n\n[mcp_servers.secbox.env]\nB = 'c'\n\n# of b\n[mcp_servers.b]\nurl = \"u\"\n",
		},
		"TOML, the last entry":       {host: "codex", entry: plain, old: "[mcp_servers.secbox]\ncommand = \"old\"\n# end\n", want: "[mcp_servers.secbox]\nargs = ['mcp']\ncommand = '/bin/secbox'\n# end\n"},
		"TOML, broken":               {host: "codex", entry: plain, old: "a = \n", refused: "it is not TOML"},
		"TOML, an inline table":      {host: "codex", entry: plain, old: "mcp_servers = {a = {command = \"x\"}}\n", refused: "does not change"},
		"TOML, a header in a text":   {host: "codex", entry: plain, old: "a = '''\n[mcp_servers.secbox]\n'''\n", refused: "does not change"},
		"TOML, entries are a number": {host: "codex", entry: plain, old: "mcp_servers = 3\n", refused: "does not change"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, ok := Named(c.host)
			if !ok {
				t.Fatal(c.host)
			}
			got, err := h.Add([]byte(c.old), c.entry)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("%v, %s", err, got)
				}
				return
			}
			if err != nil || string(got) != c.want {
				t.Errorf("%v\n%s\nnot\n%s", err, got, c.want)
			}
			if again, err := h.Add(got, c.entry); err != nil || string(again) != string(got) {
				t.Errorf("once more: %v\n%s", err, again)
			}
		})
	}
}
