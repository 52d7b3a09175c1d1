package tools_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/fault"
	"secbox/mcp/offload"
	"secbox/mcp/tools"
	"secbox/sandbox"
	"secbox/sandbox/none"
	"secbox/sandbox/sandboxtest"
)

// keeping begins a session that keeps long results, in a directory of this machine.
func keeping(t *testing.T) (session *tools.Session, dir string) {
	t.Helper()
	dir = t.TempDir()
	return keepingIn(t, none.New(none.Config{Directories: sandboxtest.Directory(dir), Environ: os.Environ()})), dir
}

func keepingIn(t *testing.T, box sandbox.Backend) *tools.Session {
	t.Helper()
	store, err := offload.Open(offload.Config{Dir: filepath.Join(t.TempDir(), "offload")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = store.Close(), box.Close() })
	return tools.NewSession(box, alice, nil).WithResults(store.Begin(alice))
}

func callTool(t *testing.T, s *tools.Session, name string, arguments map[string]any) (*tools.Result, error) {
	t.Helper()
	content, err := json.Marshal(arguments)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range s.Tools() {
		if tool.Name == name {
			return tool.Call(t.Context(), s, content)
		}
	}
	t.Fatalf("there is no tool %s", name)
	return nil, nil
}

func mustCall(t *testing.T, s *tools.Session, name string, arguments map[string]any) *tools.Result {
	t.Helper()
	r, err := callTool(t, s, name, arguments)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestLongResultsAreReadInParts (004 l30, l223): the beginning, the end and an id, by which every
// byte of the result can be read.
func TestLongResultsAreReadInParts(t *testing.T) {
	t.Parallel()
	session, dir := keeping(t)
	if err := os.WriteFile(filepath.Join(dir, "long.txt"), []byte(strings.Repeat("a line of some length, the same again and again\n", 1900)),
		0o644); err != nil {
		t.Fatal(err)
	}
	for name, arguments := range map[string]map[string]any{
		"files.read": {"path": "long.txt"},
		"shell":      {"command": "cat -n long.txt; exit 3"},
	} {
		r := mustCall(t, session, name, arguments)
		id, _ := r.Meta["offload_id"].(string)
		if id == "" || !strings.Contains(r.Text, id) || len(r.Text) > offload.MaxInline || r.Failed != (name == "shell") {
			t.Fatalf("%s: id %q, %d bytes, %v", name, id, len(r.Text), r.Meta)
		}
		var whole strings.Builder
		for offset := int64(0); offset < r.Meta["offload_bytes"].(int64); {
			part := mustCall(t, session, "offload.read", map[string]any{"id": id, "offset": offset, "limit": 20000})
			to := part.Meta["to"].(int64)
			whole.WriteString(part.Text[:to-offset])
			if part.Meta["tool"] != name || part.Meta["from"] != offset || to <= offset {
				t.Fatalf("%v", part.Meta)
			}
			offset = to
		}
		text := whole.String()
		if n := strings.Count(text, "again and again\n"); n != 1900 || !strings.HasPrefix(text, "     1\ta line") ||
			strings.HasSuffix(text, "(exit code 3)\n") != r.Failed {
			t.Errorf("%s: %d lines", name, n)
		}
	}
	if r := mustCall(t, session, "shell", map[string]any{"command": "echo short"}); r.Meta["offload_id"] != nil || r.Text != "short\n" {
		t.Errorf("%q %v", r.Text, r.Meta)
	}
	if _, err := callTool(t, session, "offload.read", map[string]any{"id": "guess"}); !fault.Is(err, fault.UnknownFile) {
		t.Errorf("%v", err)
	}
	id := mustCall(t, session, "files.read", map[string]any{"path": "long.txt"}).Meta["offload_id"]
	session.Close()
	if _, err := callTool(t, session, "offload.read", map[string]any{"id": id}); !fault.Is(err, fault.UnknownFile) {
		t.Errorf("after the session's end: %v", err)
	}
}

// TestStaleReadsAreNamed (004 l222): what others have changed since it was read, and not what this
// session has written.
func TestStaleReadsAreNamed(t *testing.T) {
	t.Parallel()
	session, dir := keeping(t)
	stale := func() string { return mustCall(t, session, "offload.stale", nil).Text }
	const long = "a line of some length, the same again and again\n"
	for _, name := range []string{"changed", "removed", "same", "gone bad\n", "mine"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Repeat(long, 1000)), 0o644); err != nil {
			t.Fatal(err)
		}
		mustCall(t, session, "files.read", map[string]any{"path": name})
	}
	id := mustCall(t, session, "files.read", map[string]any{"path": "changed"}).Meta["offload_id"]
	mustCall(t, session, "files.write", map[string]any{"path": "mine", "content": "another"})
	if got := stale(); got != "none of the files that were read has changed\n" {
		t.Errorf("%q", got)
	}
	mustCall(t, session, "shell", map[string]any{"command": `echo more >>changed; rm removed; rm gone*; mkfifo 'gone bad
'`})
	want := "changed since they were read:\n  /workspace/changed\nremoved:\n  /workspace/removed\n" +
		"cannot be read now, perhaps changed, perhaps not:\n  \"/workspace/gone bad\\n\"\n"
	if got := stale(); got != want {
		t.Errorf("%q", got)
	}
	if r := mustCall(t, session, "offload.read", map[string]any{"id": id}); !strings.Contains(r.Text, "(/workspace/changed has changed since it was read)") {
		t.Errorf("%q", r.Text[len(r.Text)-200:])
	}
	mustCall(t, session, "files.read", map[string]any{"path": "changed"})
	if got := stale(); strings.Contains(got, "/workspace/changed") {
		t.Errorf("read again, and still: %q", got)
	}
}
