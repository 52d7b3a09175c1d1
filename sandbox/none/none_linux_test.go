package none_test

import (
	"os"
	"slices"
	"testing"

	"secbox/sandbox"
	"secbox/sandbox/none"
	"secbox/sandbox/process"
	"secbox/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	process.Main()
	os.Exit(m.Run())
}

func TestSandbox(t *testing.T) {
	t.Parallel()
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.Fixture {
		p := sandboxtest.Directory(t.TempDir())
		tools := sandbox.ReadOnlyRoot{Path: "/opt/tools", Link: "/workspace/tools", Dir: t.TempDir()}
		s := none.New(none.Config{
			Directories: p, ReadOnly: []sandbox.ReadOnlyRoot{tools}, Environ: slices.Concat(os.Environ(), sandboxtest.Planted),
		})
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return sandboxtest.Fixture{
			Sandbox: s, User: sandbox.User{AgentID: "agent", ID: "user"}, Dir: string(p), ReadOnly: tools, WorkspaceElsewhere: true,
		}
	})
}
