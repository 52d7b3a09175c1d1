//go:build unix

package mcpserver

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/mcp/offload"
	"secbox/mcp/tools"
	"secbox/sandbox"
	"secbox/sandbox/none"
	"secbox/sandbox/sandboxtest"
	"secbox/skills"
)

// TestShellReportsProgressAndIsCanceled: the output comes while the command runs, and a canceled
// call ends the command.
func TestShellReportsProgressAndIsCanceled(t *testing.T) {
	t.Parallel()
	f, dir := toolsFixture(t)
	reports := make(chan string, 10)
	session := f.connect("worker", workspace, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) { reports <- req.Params.Message },
	})
	ctx, cancel := context.WithCancel(t.Context())
	params := &mcp.CallToolParams{Name: "shell", Arguments: map[string]any{"command": "echo $$ >pid; echo begun; sleep 100000"}}
	params.SetProgressToken("token")
	ended := make(chan error, 1)
	go func() {
		_, err := session.CallTool(ctx, params)
		ended <- err
	}()
	if got := <-reports; got != "begun\n" {
		t.Errorf("%q", got)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("the canceled call has a result")
	}
	pid, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command is dead", func() bool {
		_, err := os.Stat("/proc/" + strings.TrimSpace(string(pid)))
		return os.IsNotExist(err)
	})
}

// TestLongResultsEndWithTheirSession: another session does not know the id, and the end of the
// session removes the file.
func TestLongResultsEndWithTheirSession(t *testing.T) {
	t.Parallel()
	kept := filepath.Join(t.TempDir(), "offload")
	store, err := offload.Open(offload.Config{Dir: kept})
	if err != nil {
		t.Fatal(err)
	}
	box := none.New(none.Config{Directories: sandboxtest.Directory(t.TempDir()), Environ: os.Environ()})
	t.Cleanup(func() { _, _ = box.Close(), store.Close() })
	var f *fixture
	f = newFixture(t, func(c *Config) {
		c.Packages = &userPackages{catalog: func() *skills.Snapshot { return f.catalog.Now() }, looks: map[string]int{}}
		c.Tools = func(projectID string) *tools.Session {
			agent, user, _ := strings.Cut(projectID, "~")
			of := sandbox.User{AgentID: agent, ID: user}
			return tools.NewSession(box, of, nil).WithResults(store.Begin(of))
		}
	})
	const project = "?project_id=a1~ann"
	one, two := f.connect("worker", project, nil), f.connect("worker", project, nil)
	r := f.call(one, "shell", map[string]any{"command": "seq 100000"})
	id, _ := r.Meta["secbox/offload_id"].(string)
	if id == "" || len(textOf(r)) > offload.MaxInline {
		t.Fatalf("%v, %d bytes", r.Meta, len(textOf(r)))
	}
	if part := f.call(one, "offload.read", map[string]any{"id": id, "offset": 0, "limit": 4}); !strings.HasPrefix(textOf(part), "1\n2\n(bytes 0 to 4 of ") ||
		!strings.HasSuffix(textOf(part), "; go on with offset 4)\n") {
		t.Errorf("%q", textOf(part))
	}
	if part := f.call(two, "offload.read", map[string]any{"id": id}); !part.IsError || !strings.Contains(textOf(part), "another session") {
		t.Errorf("%q", textOf(part))
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the file is gone", func() bool {
		entries, err := os.ReadDir(kept)
		return err == nil && len(entries) == 0
	})
}

func TestShellRunsInTheCurrentDirectory(t *testing.T) {
	t.Parallel()
	f, dir := toolsFixture(t)
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	session := f.connect("worker", workspace, nil)
	f.call(session, "files.cd", map[string]any{"path": "sub"})
	if r := f.call(session, "shell", map[string]any{"command": `basename "$PWD"; exit 4`}); !r.IsError || textOf(r) != "sub\n(exit code 4)\n" ||
		r.Meta["secbox/exit_code"] != 4.0 {
		t.Errorf("%s %v", textOf(r), r.Meta)
	}
}
