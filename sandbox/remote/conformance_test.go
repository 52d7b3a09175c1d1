//go:build linux

package remote_test

import (
	"context"
	"log/slog"
	"testing"

	"secbox/sandbox/remote/machine"
	"secbox/sandbox/sandboxtest"
)

// run starts a real runner that dials an address, and waits until it is connected.
func run(t testing.TB, s *server, address, dir string) {
	t.Helper()
	m, err := machine.New(machine.Config{
		Server: address, Token: "token/u", Workspace: dir, Name: "laptop", Allow: []string{machine.AllowExec, machine.AllowWrite},
		Version: "test", Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := doing(func() error { return m.Run(ctx) })
	t.Cleanup(func() {
		stop()
		if got := <-ended; got.err != nil {
			t.Error(got.err)
		}
	})
	await(t, "the runner to connect", func() bool { return len(s.Runners()) == 1 })
}

func TestSandbox(t *testing.T) {
	t.Parallel()
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.Fixture {
		s := serve(t)
		dir := t.TempDir()
		run(t, s, s.url, dir)
		return sandboxtest.Fixture{Sandbox: s.Hub, User: user, Dir: dir, WorkspaceElsewhere: true}
	})
}
