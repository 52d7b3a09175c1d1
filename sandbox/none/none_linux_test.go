package none_test

import (
	"context"
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

// places give every user one directory.
type places struct{ dir string }

func (p places) Open(context.Context, sandbox.User) (*sandbox.Place, error) {
	root, err := os.OpenRoot(p.dir)
	if err != nil {
		return nil, err
	}
	return &sandbox.Place{
		Dir: root, Path: p.dir, Mount: p.dir, UID: -1, GID: -1,
		Intact: func() bool { return true }, Close: func() { root.Close() },
	}, nil
}

func TestSandbox(t *testing.T) {
	t.Parallel()
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.Fixture {
		p := places{t.TempDir()}
		tools := sandbox.ReadOnlyRoot{Path: "/opt/tools", Dir: t.TempDir()}
		s := none.New(none.Config{
			Places: p, ReadOnly: []sandbox.ReadOnlyRoot{tools}, Environ: slices.Concat(os.Environ(), sandboxtest.Planted),
		})
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return sandboxtest.Fixture{
			Sandbox: s, User: sandbox.User{AgentID: "agent", ID: "user"}, Dir: p.dir, ReadOnly: tools, WorkspaceElsewhere: true,
		}
	})
}
