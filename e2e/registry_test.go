package e2e

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/sandbox/remote/machine"
)

// TestRegistry: Ann publishes from her container; Bob installs on his own machine, and Carl, over
// MCP, into his container, where a command runs the skill.
func TestRegistry(t *testing.T) {
	t.Parallel()
	s := start(t, noPool)
	_, s.token = s.newToken(tokens.Spec{Role: tokens.Admin})
	const ann = "/v1/sandbox/ann/ag"
	s.send(http.MethodPut, ann+"/edit?path=skills/hello/SKILL.md", "---\nname: Hello\ndescription: Says hello.\n---\n").done(t)
	s.send(http.MethodPut, ann+"/edit?path=skills/hello/main.py", "print('hello from the registry')\n").done(t)
	s.runs(ann+"/execute?command=bash", "-c", "mkdir -p agents skills/hello/real; echo shared > skills/hello/real/x; ln -s real skills/hello/lib; printf -- "+
		"'---\\nrole: greeter\\n---\\n' > agents/greeter.md")
	published := s.send(http.MethodPost, "/v1/registry/ann/ag/skills/hello/publish", nil)
	published.json(t).wants(t, object{"data.version": 1, "data.files": 4, "data.author_user_id": "ann", "data.description": "Says hello."})
	s.send(http.MethodPost, "/v1/registry/ann/ag/agents/greeter/publish", nil).json(t).wants(t, object{"data.kind": "agent"})

	laptop := t.TempDir()
	s.worksIn("bob", object{"backend": "remote"})
	s.send(http.MethodPost, "/v1/registry/bob/ag/skills/hello/install", nil).refuses(t, 503, "runner_offline")
	away := s.get("/v1/catalog/bob/ag")
	if problems := away.list("data.problems"); len(problems) == 0 || problems[0].str("code") != "runner_offline" || len(away.list("data.entries")) == 0 {
		t.Errorf("while the machine is away: %v", away)
	}
	// 6 built in, skill-creator, hello, greeter
	if got := s.get("/v1/catalog/ann/ag"); len(got.list("data.problems")) != 0 || len(got.list("data.entries")) != 9 {
		t.Errorf("Ann's catalog: %v", got)
	}
	s.dialIn("bob", "laptop", laptop, machine.AllowExec, machine.AllowWrite)
	s.send(http.MethodPost, "/v1/registry/bob/ag/skills/hello/install", nil).json(t).wants(t, object{"data.version": 1})
	s.send(http.MethodPost, "/v1/registry/bob/ag/agents/greeter/install", nil).json(t).wants(t, object{"data.version": 1})
	for name, want := range map[string]string{"skills/hello/main.py": "print('hello from the registry')\n", "skills/hello/lib/x": "shared\n"} {
		if got, err := os.ReadFile(filepath.Join(laptop, name)); err != nil || string(got) != want {
			t.Errorf("%s on the laptop: %q %v", name, got, err)
		}
	}
	s.send(http.MethodPost, "/v1/registry/bob/ag/skills/hello/install", nil).refuses(t, 409, "already_installed")
	s.send(http.MethodPost, "/v1/registry/bob/ag/skills/hello/publish", nil).refuses(t, 409, "name_taken")

	session := s.mcpClient("?project_id=ag~carl", nil)
	if got := mcpText(tool(t, session, "registry.search", map[string]any{"query": "HELLO"})); !strings.Contains(got, "Says hello.") {
		t.Errorf("search: %s", got)
	}
	if got := tool(t, session, "files.write", map[string]any{"path": "/workspace/skills/bare/README.md", "content": "# Bare\n"}); got.IsError {
		t.Errorf("write: %s", mcpText(got))
	}
	if got := tool(t, session, "registry.install", map[string]any{"name": "hello"}); got.IsError {
		t.Errorf("install: %s", mcpText(got))
	}
	if got := mcpText(tool(t, session, "registry.list", nil)); !strings.Contains(got, "/workspace/skills/hello/SKILL.md") ||
		!strings.Contains(got, "/workspace/skills/bare/README.md: No description available. Warning: there is no description") ||
		!strings.Contains(got, "shell.run") {
		t.Errorf("list: %s", got)
	}
	for _, name := range []string{"hello", "skill-creator", "shell.run"} {
		if got := tool(t, session, "skills.read", map[string]any{"name": name}); got.IsError {
			t.Errorf("%s is in the list and cannot be read: %s", name, mcpText(got))
		}
	}
	s.runs("/v1/sandbox/carl/ag/execute?command=python3", "skills/hello/main.py").wants(t, object{"stdout": "hello from the registry\n"})
	if got := tool(t, session, "registry.uninstall", map[string]any{"name": "hello"}); got.IsError {
		t.Errorf("uninstall: %s", mcpText(got))
	}
	if got := tool(t, session, "registry.install", map[string]any{"name": "../hello"}); !got.IsError {
		t.Errorf("a path for a name: %s", mcpText(got))
	}
	var record []string
	for _, event := range s.get("/v1/registry/skills/hello/events").list("data.items") {
		record = append(record, event.str("user_id")+" "+event.str("action"))
	}
	if got, want := strings.Join(record, ", "),
		"carl uninstalled, carl uninstall_begun, carl installed, carl install_begun, bob installed, bob install_begun, ann published"; got != want {
		// Bob's first installation found his machine away before it began.
		t.Errorf("on record: %s", got)
	}
}

// TestCatalogIsFresh: what the API and an agent's tools change is in the catalog at once, for every
// reader.
func TestCatalogIsFresh(t *testing.T) {
	t.Parallel()
	s := start(t, noPool)
	_, s.token = s.newToken(tokens.Spec{Role: tokens.Admin})
	has := func(user, when string, want ...string) {
		t.Helper()
		var own []string
		for _, e := range s.get("/v1/catalog/" + user + "/ag").list("data.entries") {
			if e.at("global") != true {
				own = append(own, e.str("name")+": "+e.str("description"))
			}
		}
		same(t, when, own, want)
	}
	about := func(text string) string { return "---\ndescription: " + text + "\n---\n" }
	has("ann", "at first")
	has("ben", "at first")
	s.upload("ann/ag", "baseline", "x.zip", archiveOf(t, "base", "SKILL.md", about("One."))).done(t)
	has("ann", "after an upload", "base: One.")
	has("ben", "after an upload", "base: One.")
	s.send(http.MethodPut, "/v1/skills/ann/ag/base/edit?path=SKILL.md", about("Two.")).done(t)
	has("ann", "after an edit", "base: Two.")
	has("ben", "after an edit", "base: One.")
	s.send(http.MethodPost, "/v1/skills/ann/ag/base/baseline", nil).done(t)
	s.send(http.MethodPost, "/v1/skills/ben/ag/base/sync", nil).json(t)
	has("ben", "after a sync", "base: Two.")
	s.send(http.MethodPut, "/v1/sandbox/ann/ag/edit?path=skills/base/SKILL.md", about("Three.")).done(t)
	has("ann", "after an edit in the sandbox", "base: Three.")
	session := s.mcpClient("?project_id=ag~ann", nil)
	if got := tool(t, session, "files.write", map[string]any{"path": "skills/mine/SKILL.md", "content": about("Mine.")}); got.IsError {
		t.Fatal(mcpText(got))
	}
	has("ann", "after a tool", "base: Three.", "mine: Mine.")
	if got := tool(t, session, "files.edit", map[string]any{
		"path":  "skills/mine/SKILL.md",
		"edits": []any{map[string]any{"old": "Mine.", "new": "My own."}},
	}); got.IsError {
		t.Fatal(mcpText(got))
	}
	has("ann", "after a tool's edit", "base: Three.", "mine: My own.")
	s.send(http.MethodDelete, "/v1/skills/ann/ag/mine?scope=overlay", nil).done(t)
	has("ann", "after a deletion", "base: Three.")
}

// TestSkillsOfTheAgentOnAMachine: a user whose sandbox is their own machine has the agent's skills
// like any other user, after those on the machine. The runner may only be read.
func TestSkillsOfTheAgentOnAMachine(t *testing.T) {
	t.Parallel()
	s := start(t, noPool)
	_, s.token = s.newToken(tokens.Spec{Role: tokens.Admin})
	for _, name := range []string{"base", "both"} {
		s.upload("ann/ag", "baseline", "x.zip", archiveOf(t, name, "SKILL.md", "---\ndescription: The agent's.\n---\n", "main.py", "print(1)\n")).done(t)
	}
	laptop := t.TempDir()
	if err := errors.Join(os.MkdirAll(laptop+"/skills/both", 0o755),
		os.WriteFile(laptop+"/skills/both/SKILL.md", []byte("---\ndescription: Bob's.\n---\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	s.dialIn("bob", "laptop", laptop)
	s.worksIn("bob", object{"backend": "remote"})
	var own []string
	for _, e := range s.get("/v1/catalog/bob/ag").list("data.entries") {
		if e.at("global") != true {
			own = append(own, e.str("name")+": "+e.str("description"))
		}
	}
	same(t, "catalog", own, []string{"both: Bob's.", "base: The agent's."})
	session := s.mcpClient("?project_id=ag~bob", nil)
	read := func(arguments map[string]any) string { return mcpText(tool(t, session, "skills.read", arguments)) }
	if got := read(map[string]any{"name": "base"}); !strings.Contains(got, "The agent's.") || !strings.Contains(got, "main.py") ||
		!strings.Contains(got, "do not find") {
		t.Errorf("base: %s", got)
	}
	if got := read(map[string]any{"name": "base", "file": "main.py"}); got != "print(1)\n" {
		t.Errorf("a file: %s", got)
	}
	if got := read(map[string]any{"name": "both"}); !strings.Contains(got, "Bob's.") || strings.Contains(got, "main.py") {
		t.Errorf("both: %s", got)
	}
	for _, arguments := range []map[string]any{{"name": "base", "file": "no.py"}, {"name": "both", "file": "main.py"}, {"name": "nothing"}} {
		if got := tool(t, session, "skills.read", arguments); !got.IsError {
			t.Errorf("%v: %s", arguments, mcpText(got))
		}
	}
	if got := mcpText(tool(t, session, "registry.list", nil)); !strings.Contains(got, "skill base, kept by core-api: The agent's.") {
		t.Errorf("list: %s", got)
	}
	if got := mcpText(tool(t, session, "files.grep", map[string]any{"pattern": "Bob"})); got != "skills/both/SKILL.md\n" {
		t.Errorf("grep: %s", got)
	}
}
