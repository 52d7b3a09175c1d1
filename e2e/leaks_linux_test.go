package e2e

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"secbox/fault"
	"secbox/internal/statedir"
	"secbox/server"
	"secbox/settings"
)

// TestCloseLeavesNothing starts and closes servers, also servers that cannot start, and counts
// goroutines and open files before and after. It is not parallel: the goroutines of other tests
// would be counted too.
func TestCloseLeavesNothing(t *testing.T) { //nolint:paralleltest // see above
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	boot := func(ctx context.Context, dir string, more ...func(*settings.Settings)) (*server.Server, error) {
		return server.Start(ctx, settingsIn(t, dir, more...), os.Environ(), quiet)
	}
	// The first server also sets up what the process keeps for good, like the resolver's and the
	// driver's own.
	app, err := boot(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	files := openFiles(t)
	settled := func(t *testing.T) {
		t.Helper()
		var leak error
		eventually(t, "all goroutines have ended", func() bool { leak = goleak.Find(before); return leak == nil || t.Failed() })
		eventually(t, "all files are closed", func() bool { return openFiles(t) <= files })
	}

	t.Run("start and exec and close twice", func(t *testing.T) {
		dir := t.TempDir()
		for range 3 {
			app, err := boot(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			s := &testServer{t: t, app: app, client: &http.Client{Transport: &http.Transport{}}, url: "http://" + app.Addr(), dir: dir, environ: os.Environ()}
			s.works("demo")
			s.exec(shell("demo", "exit 3"))
			s.get("/sandbox/health")
			for range 2 {
				if err := app.Close(); err != nil {
					t.Error(err)
				}
			}
			if left := s.containers(); len(left) > 0 {
				t.Errorf("containers: %v", left)
			}
			s.client.CloseIdleConnections()
		}
		settled(t)
	})

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	files++ // that one
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*settings.Settings)
		code   fault.Code
	}{
		"the port is in use": {func(s *settings.Settings) { s.Addr = taken.Addr().String() }, fault.InvalidSettings},
		"no such address": {
			func(s *settings.Settings) { s.Addr = "192.0.2.1:0"; s.AdminToken = "a-secret-of-some-length" },
			fault.InvalidSettings,
		},
		"open to others without a token": {func(s *settings.Settings) { s.Addr = "0.0.0.0:0" }, fault.InvalidSettings},
		"no docker":                      {func(s *settings.Settings) { s.Sandbox.DockerPath = "/no/such/docker" }, fault.EngineUnavailable},
		"the workspace root is a file":   {func(s *settings.Settings) { s.Sandbox.WorkspaceRoot = file }, fault.InvalidSettings},
		"the state dir is a file":        {func(s *settings.Settings) { s.StateDir = file }, fault.InvalidSettings},
		"the state dir in the workspace": {func(s *settings.Settings) { s.StateDir = filepath.Join(s.Sandbox.WorkspaceRoot, "state") }, fault.InvalidSettings},
		"the skills dir is not there":    {func(s *settings.Settings) { s.Sandbox.SkillsDir = "/no/such/skills" }, fault.InvalidSettings},
		"the skills dir is a file":       {func(s *settings.Settings) { s.Sandbox.SkillsDir = file }, fault.InvalidSettings},
		"the skills dir in the workspace": {func(s *settings.Settings) {
			makeDir(t, s.Sandbox.WorkspaceRoot, "skills")
			s.Sandbox.SkillsDir = filepath.Join(s.Sandbox.WorkspaceRoot, "skills")
		}, fault.InvalidSettings},
		"a database that is none":        {func(s *settings.Settings) { s.DatabaseURL = "mysql://x" }, fault.InvalidSettings},
		"a policy above its own ceiling": {func(s *settings.Settings) { s.Sandbox.Policy.MemoryMB = new(int64(1 << 40)) }, fault.InvalidSettings},
		"the database file is a folder":  {func(s *settings.Settings) { makeDir(t, s.StateDir, "secbox.db") }, fault.DatabaseUnavailable},
		"the node's id is damaged":       {func(s *settings.Settings) { makeDir(t, s.StateDir, "node_id") }, fault.InvalidSettings},
		"the spool is no folder":         {func(s *settings.Settings) { makeFile(t, s.StateDir, "spool") }, fault.Internal},
		"a database URL without a server": {
			func(s *settings.Settings) { s.DatabaseURL = "postgres://nobody@127.0.0.1:1/x?connect_timeout=1" },
			fault.DatabaseUnavailable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ctx := t.Context()
			if c.code == fault.DatabaseUnavailable { // the server waits for a database that is starting
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
			}
			app, err := boot(ctx, dir, c.change)
			if app != nil || !fault.Is(err, c.code) {
				t.Errorf("got %v, want %s", err, c.code)
			}
			settled(t)
			if state, err := statedir.Open(filepath.Join(dir, "state")); err == nil {
				_ = state.Close()
			} else if fault.Is(err, fault.StateDirInUse) {
				t.Errorf("its claim on the state dir stays: %v", err)
			}
		})
	}
}

// openFiles is how many descriptors this process has.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func makeDir(t *testing.T, parent, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(parent, name), 0o700); err != nil {
		t.Fatal(err)
	}
}

func makeFile(t *testing.T, parent, name string) {
	t.Helper()
	makeDir(t, parent, "")
	if err := os.WriteFile(filepath.Join(parent, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
