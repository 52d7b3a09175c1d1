package mcpserver

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/access/tokens"
	"secbox/mcp/tools"
	"secbox/sandbox"
	"secbox/sandbox/none"
	"secbox/sandbox/sandboxtest"
	"secbox/skills"
)

// toolsFixture is an endpoint whose sessions for a workspace work in one directory, by sandbox
// none. The requests behind the commands are recorded.
func toolsFixture(t *testing.T, change ...func(*Config)) (f *fixture, dir string) {
	t.Helper()
	dir = t.TempDir()
	s := none.New(none.Config{Directories: sandboxtest.Directory(dir), Environ: os.Environ()})
	f = newFixture(t, func(c *Config) {
		c.Packages = &userPackages{catalog: func() *skills.Snapshot { return f.catalog.Now() }, looks: map[string]int{}}
		c.Tools = func(projectID string) *tools.Session {
			agent, user, ok := strings.Cut(projectID, "~")
			if !ok || user == "" {
				return nil
			}
			return tools.NewSession(s, sandbox.User{AgentID: agent, ID: user}, nil)
		}
		for _, one := range change {
			one(c)
		}
	})
	t.Cleanup(func() { _ = s.Close() })
	return f, dir
}

const workspace = "?project_id=a1~ann"

// TestFileToolsAreOfferedInWorkspaces: only in sessions for a workspace that the token may use,
// under names without dots too.
func TestFileToolsAreOfferedInWorkspaces(t *testing.T) {
	t.Parallel()
	f, _ := toolsFixture(t)
	f.tokens["elsewhere"] = tokens.Token{ID: "tok-elsewhere", Role: tokens.Worker, Agents: []string{"a2"}}
	all := []string{
		"files.cd", "files.download", "files.edit", "files.glob", "files.grep", "files.read", "files.upload", "files.write",
		"registry.install", "registry.list", "registry.publish", "registry.search", "registry.uninstall", "shell", "skills.read",
	}
	var plain []string
	for _, name := range all {
		plain = append(plain, strings.ReplaceAll(name, ".", "_"))
	}
	offered := func(token, query string) (names []string) {
		for name := range toolsOf(t, f.connect(token, query, nil)) {
			if !strings.HasPrefix(name, "skill.") && !strings.HasPrefix(name, "skill_") {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	for _, c := range []struct {
		token, query string
		want         []string
	}{
		{"worker", workspace, plain},
		{"agent", workspace, plain},
		{"elsewhere", workspace, nil},
		{"worker", "", nil},
		{"worker", "?project_id=demo", nil},
		{"worker", "?project_id=a1~", nil},
		{"worker", workspace + "&names=underscore", plain},
		{"worker", workspace + "&names=dotted", all},
	} {
		if got := offered(c.token, c.query); !slices.Equal(got, c.want) {
			t.Errorf("%s%s: %q", c.token, c.query, got)
		}
	}
	session := f.connect("agent", workspace, nil)
	if text := session.InitializeResult().Instructions; !strings.Contains(text, "files_read") {
		t.Errorf("%q", text)
	}
	f.mu.Lock() // the token loses its agent
	f.tokens["agent"] = tokens.Token{ID: "tok-agent", Role: tokens.Worker, Agents: []string{"a2"}}
	f.mu.Unlock()
	if r := f.call(session, "files.read", map[string]any{"path": "x"}); !r.IsError || r.Meta["secbox/code"] != "forbidden" {
		t.Errorf("%s", textOf(r))
	}
	for _, tool := range toolsOf(t, f.connect("worker", workspace, nil)) {
		if strings.HasPrefix(tool.Name, "files.") && (tool.Description == "" || tool.InputSchema == nil ||
			tool.Annotations.ReadOnlyHint == *tool.Annotations.DestructiveHint) {
			t.Errorf("%+v", tool)
		}
	}
}

// TestFileToolsKeepStatePerSession: the current directory and what was read belong to one session.
func TestFileToolsKeepStatePerSession(t *testing.T) {
	t.Parallel()
	f, dir := toolsFixture(t)
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	one, two := f.connect("worker", workspace, nil), f.connect("worker", workspace, nil)
	f.call(one, "files.cd", map[string]any{"path": "sub"})
	f.call(one, "files.write", map[string]any{"path": "a.txt", "content": "hi\n"})
	if got, err := os.ReadFile(filepath.Join(dir, "sub/a.txt")); err != nil || string(got) != "hi\n" {
		t.Errorf("%q %v", got, err)
	}
	if r := f.call(two, "files.read", map[string]any{"path": "sub/a.txt"}); r.IsError || textOf(r) != "     1\thi\n" || r.Meta["secbox/sha256"] == nil {
		t.Errorf("%s %v", textOf(r), r.Meta)
	}
	three := f.connect("worker", workspace, nil)
	if r := f.call(three, "files.write", map[string]any{"path": "sub/a.txt", "content": ""}); !r.IsError || !strings.Contains(textOf(r), "read it first") ||
		r.Meta["secbox/code"] != "file_changed" {
		t.Errorf("%s %v", textOf(r), r.Meta)
	}
}

func TestFileToolsRefuseWrongArguments(t *testing.T) {
	t.Parallel()
	f, _ := toolsFixture(t)
	session := f.connect("worker", workspace, nil)
	for _, c := range []struct {
		tool      string
		arguments any
		want      []string
	}{
		{"files.read", map[string]any{"file": "x"}, []string{"invalid_inputs", "path", "missing", "file"}},
		{"files.read", map[string]any{"path": 5}, []string{"invalid_inputs", "path: must be a string"}},
		{"files.read", map[string]any{"path": "x", "limit": "many"}, []string{"limit: must be"}},
		{"files.read", nil, []string{"path"}},
		{"files.edit", map[string]any{"path": "x", "edits": []any{map[string]any{"old": "a"}}}, []string{"edits[0]", "new"}},
		{"shell", map[string]any{"command": "x", "timeout_ms": -1}, []string{"timeout_ms: must be at least 1"}},
	} {
		r := f.call(session, c.tool, c.arguments)
		for _, word := range c.want {
			if !r.IsError || !strings.Contains(textOf(r), word) {
				t.Errorf("%s %v: %q does not say %q", c.tool, c.arguments, textOf(r), word)
			}
		}
	}
}

func TestFileToolsShowImages(t *testing.T) {
	t.Parallel()
	f, dir := toolsFixture(t)
	const gif = "GIF89a..."
	if err := os.WriteFile(filepath.Join(dir, "a.gif"), []byte(gif), 0o644); err != nil {
		t.Fatal(err)
	}
	r := f.call(f.connect("worker", workspace, nil), "files.read", map[string]any{"path": "a.gif"})
	if len(r.Content) != 2 {
		t.Fatalf("%v", r.Content)
	}
	if image, ok := r.Content[1].(*mcp.ImageContent); !ok || string(image.Data) != gif || image.MIMEType != "image/gif" {
		t.Errorf("%+v", r.Content[1])
	}
}

// TestCanceledCallIsNoFault: the client's own cancellation is neither an internal error nor in the
// log.
func TestCanceledCallIsNoFault(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	s := &Server{cfg: Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := s.failure(ctx, fmt.Errorf("read: %w", context.Canceled))
	if text, ok := r.Content[0].(*mcp.TextContent); !ok || !r.IsError || text.Text != "the call was canceled" || log.Len() > 0 {
		t.Errorf("%+v, log %q", r, log.String())
	}
}

// TestStateOfFileToolsEndsWithTheSession: a server keeps nothing of sessions that have ended.
func TestStateOfFileToolsEndsWithTheSession(t *testing.T) {
	t.Parallel()
	f, _ := toolsFixture(t)
	session := f.connect("worker", workspace, nil)
	f.call(session, "files.cd", map[string]any{"path": "."})
	kept := func() (n int) {
		f.server.sessions.mu.Lock()
		defer f.server.sessions.mu.Unlock()
		for _, one := range f.server.sessions.byID {
			if one.tools != nil {
				n++
			}
		}
		return n
	}
	if kept() != 1 {
		t.Errorf("the state of %d sessions is kept", kept())
	}
	if err := session.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the state is gone", func() bool { return kept() == 0 })
}

// TestDownloadIsAResource: a small file is in the answer, as text or bytes, and never as a page or
// script.
func TestDownloadIsAResource(t *testing.T) {
	t.Parallel()
	f, dir := toolsFixture(t)
	session := f.connect("admin", workspace, nil)
	for name, c := range map[string]struct{ content, mime string }{
		"a b.html": {"<script>", "text/plain"}, "c.bin": {"\x00\xff", "application/octet-stream"}, "d.png": {"\x89PNG\r\n\x1a\n\x00", "image/png"},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		r := f.call(session, "files.download", map[string]any{"path": name})
		if len(r.Content) != 2 {
			t.Fatalf("%s: %+v", name, r)
		}
		got, ok := r.Content[1].(*mcp.EmbeddedResource)
		if !ok || got.Resource.MIMEType != c.mime || got.Resource.Text+string(got.Resource.Blob) != c.content ||
			got.Resource.URI != "file:///workspace/"+strings.ReplaceAll(name, " ", "%20") {
			t.Errorf("%s: %+v", name, r.Content[1])
		}
		if r.Meta["secbox/http_path"] != "/v1/sandbox/ann/a1/file?path="+strings.ReplaceAll(name, " ", "+") {
			t.Errorf("%s: %v", name, r.Meta)
		}
	}
}
