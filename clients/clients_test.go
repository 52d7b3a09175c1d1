//go:build unix

// Package clients has only tests: they run the tests of the clients in other languages, and the
// programs of examples/, against a core-api on SQLite and one on PostgreSQL.
package clients

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"secbox/server"
	"secbox/settings"
	"secbox/store/storetest/pgtest"
)

const adminToken = "token-of-the-clients-tests"

// TestClients runs each client's tests against one core-api per database.
func TestClients(t *testing.T) {
	t.Parallel()
	_ = os.Getenv("SECBOX_SOURCE") // so that go test repeats this when any file has changed
	for _, database := range []string{"sqlite", "postgres"} {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			url := ""
			if database == "postgres" {
				url = pgtest.New(t).Database(t)
			}
			python, typescript := freePort(t), freePort(t)
			environ := start(t, url, python, typescript)
			t.Run("python", func(t *testing.T) {
				t.Parallel()
				run(t, append(environ, "SECBOX_WEBHOOK_PORT="+python), "python3", "python/test_secbox.py")
			})
		})
	}
}

// start starts a core-api whose webhooks may go to the ports, and returns the environment of its
// clients.
func start(t *testing.T, database string, ports ...string) []string {
	t.Helper()
	dir := t.TempDir()
	s, err := settings.Load("", os.Environ(), settings.Overrides{
		Addr: "127.0.0.1:0", StateDir: filepath.Join(dir, "state"), WorkspaceRoot: filepath.Join(dir, "workspace"),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.AdminToken, s.DatabaseURL, s.Pool.Ready = adminToken, settings.Secret(database), 0
	s.Webhooks = settings.Webhooks{AllowNetworks: []string{"127.0.0.1"}, AllowHTTP: true}
	for _, port := range ports {
		s.Webhooks.Allow = append(s.Webhooks.Allow, "127.0.0.1:"+port)
	}
	app, err := server.Start(t.Context(), s, os.Environ(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := app.Close(); err != nil {
			t.Error(err)
		}
	})
	return append(os.Environ(), "SECBOX_URL=http://"+app.Addr(), "SECBOX_TOKEN="+adminToken)
}

// freePort returns a port on which nothing listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}

func run(t *testing.T, environ []string, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = environ
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s %v: %v\n%s", program, args, err, out)
	}
}
