package mcpserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/offload"
	"secbox/sandbox"
	"secbox/sandbox/none"
	"secbox/sandbox/sandboxtest"
	"secbox/skills"
	"secbox/tools"
)

// TestLongResultsEndWithTheirSession: another session does not know the id, and the end of the session removes the file.
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
	if part := f.call(one, "offload.read", map[string]any{"id": id, "offset": 0, "limit": 4}); !strings.HasPrefix(textOf(part), "1\n2\n(bytes 0 to 4 of ") || !strings.HasSuffix(textOf(part), "; go on with offset 4)\n") {
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
