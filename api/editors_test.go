package api_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"secbox/api/wire"
	"secbox/pathadapter"
	"secbox/sandbox"
	"secbox/workspace"
)

// TestToolsWaitForOtherEditors: a tool replaces no file while an upload or an edit, here of another
// node, changes files of the workspace. Otherwise both could succeed on the same condition, and one
// change would be lost.
func TestToolsWaitForOtherEditors(t *testing.T) {
	t.Parallel()
	f := start(t)
	present := data[wire.V1Written](t, f.put("present", "old", nil)).Sha256
	adapter, err := pathadapter.New(pathadapter.Config{Root: f.root})
	if err != nil {
		t.Fatal(err)
	}
	node, err := workspace.Open(workspace.Options{Adapter: adapter, UID: -1, GID: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	project, err := node.Project("ag~u")
	if err != nil {
		t.Fatal(err)
	}
	work, err := project.Work()
	if err != nil {
		t.Fatal(err)
	}
	defer work.Close()
	release, err := work.LockEdits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, was := range map[string]string{"present": present, "new": sandbox.Absent} {
		ctx, cancel := context.WithCancel(t.Context())
		content := io.MultiReader(strings.NewReader("of a tool"), &onFirstRead{strings.NewReader(""), cancel}) // ends ctx when all of it was read
		if _, err := f.sandboxes.ReplaceFile(ctx, sandbox.Root+"/"+name, content, was, sandbox.User{AgentID: "ag", ID: "u"}); !errors.Is(err,
			context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	release()
	if _, err := f.sandboxes.ReplaceFile(t.Context(), sandbox.Root+"/present", strings.NewReader("of a tool"), present,
		sandbox.User{AgentID: "ag", ID: "u"}); err != nil {
		t.Error(err)
	}
}
