//go:build unix

// Package clients has only tests: they run the tests of the clients in other languages, and the
// programs of examples/, against a core-api on SQLite and one on PostgreSQL.
package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/server"
	"secbox/settings"
	"secbox/store"
	"secbox/store/storetest/pgtest"
)

const adminToken = "token-of-the-clients-tests"

//go:generate node ../.cache/tsclient/node_modules/openapi-typescript/bin/cli.js ../api/openapi.yaml -o typescript/src/contract.ts

// TestMain removes what compiled has made.
func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(build.dir)
	if path, err := secbox(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// TestGeneratedTypesAreFresh generates the types of the TypeScript client again.
func TestGeneratedTypesAreFresh(t *testing.T) {
	t.Parallel()
	fresh := filepath.Join(t.TempDir(), "contract.ts")
	run(t, ".", os.Environ(), "node", filepath.Join(modules(t), "openapi-typescript/bin/cli.js"), "../api/openapi.yaml", "-o", fresh)
	want, err := os.ReadFile(fresh)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile("typescript/src/contract.ts"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("typescript/src/contract.ts is older than openapi.yaml: run go generate ./clients (%v)", err)
	}
}

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
			python, typescript, ofGo := freePort(t), freePort(t), freePort(t)
			coreAPI, newToken := start(t, url, python, typescript, ofGo)
			// A token each: a third secret for webhooks ends the first one of its token.
			environFor := func(client string) []string {
				return slices.Clip(append(os.Environ(), "SECBOX_SERVER="+coreAPI, "SECBOX_TOKEN="+newToken(client)))
			}
			t.Run("go", func(t *testing.T) {
				t.Parallel()
				goClient(t, coreAPI, ofGo)
			})
			t.Run("secbox", func(t *testing.T) {
				t.Parallel()
				command(t, slices.Clip(append(os.Environ(), "SECBOX_SERVER="+coreAPI, "SECBOX_TOKEN="+adminToken)))
			})
			t.Run("python", func(t *testing.T) {
				t.Parallel()
				run(t, ".", append(environFor("python"), "SECBOX_WEBHOOK_PORT="+python), "python3", "python/test_secbox.py")
			})
			t.Run("typescript", func(t *testing.T) {
				t.Parallel()
				dir, dist := t.TempDir(), compiled(t)
				if err := os.WriteFile(filepath.Join(dir, "data.csv"), []byte("a,b\n1,2\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				run(t, dir, append(environFor("typescript"), "SECBOX_WEBHOOK_PORT="+typescript), "node", "--no-warnings", "--test",
					filepath.Join(dist, "test/secbox.test.js"), filepath.Join(dist, "test/readme.js"))
			})
			t.Run("examples", func(t *testing.T) {
				t.Parallel()
				runExamples(t, environFor("examples"))
			})
			if database == "sqlite" {
				t.Run("browser", func(t *testing.T) {
					t.Parallel()
					runInBrowser(t, coreAPI)
				})
			}
		})
	}
}

// start starts a core-api whose webhooks may go to the ports, and returns its address and a
// function that makes tokens of workers.
func start(t *testing.T, database string, ports ...string) (address string, newToken func(name string) string) {
	t.Helper()
	dir := t.TempDir()
	s, err := settings.Load("", os.Environ(), settings.Overrides{
		Addr: "127.0.0.1:0", StateDir: filepath.Join(dir, "state"), WorkspaceRoot: filepath.Join(dir, "workspace"),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.AdminToken, s.DatabaseURL, s.Pool.Ready = adminToken, settings.Secret(database), 0
	s.Sandbox.PreviewDomain = "preview.localhost"
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
	db, err := store.Open(t.Context(), database, s.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return "http://" + app.Addr(), func(name string) string {
		_, secret, err := tokens.NewService(db.Tokens(), time.Now).Create(context.Background(), tokens.Spec{Name: name, Role: tokens.Worker})
		if err != nil {
			t.Error(err)
		}
		return secret
	}
}

// modules is where scripts/setup.sh has put the packages that the TypeScript client needs.
func modules(t *testing.T) string {
	t.Helper()
	lock, err := os.ReadFile("typescript/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	installed, err := os.ReadFile("../.cache/tsclient/installed.json")
	if err != nil || !bytes.Equal(lock, installed) {
		t.Fatal("the packages of the TypeScript client are not installed; run scripts/setup.sh test")
	}
	dir, err := filepath.Abs("../.cache/tsclient/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// build is the TypeScript client, its tests and its README's examples as JavaScript: made once.
var build struct {
	once sync.Once
	dir  string
	err  error
}

var tsBlock = regexp.MustCompile("(?s)```ts\n(.*?)```")

// compiled returns the directory of the JavaScript.
func compiled(t *testing.T) string {
	t.Helper()
	modules := modules(t)
	build.once.Do(func() {
		if build.dir, build.err = os.MkdirTemp("", "secbox-typescript"); build.err != nil {
			return
		}
		page, err := os.ReadFile("typescript/README.md")
		if err != nil {
			build.err = err
			return
		}
		var readme strings.Builder
		for _, block := range tsBlock.FindAllStringSubmatch(string(page), -1) {
			readme.WriteString(block[1])
		}
		copyTo := func(name, from string) error {
			content, err := os.ReadFile(from)
			return errors.Join(err, os.WriteFile(filepath.Join(build.dir, name), content, 0o600))
		}
		if build.err = errors.Join(
			os.CopyFS(filepath.Join(build.dir, "src"), os.DirFS("typescript/src")), os.CopyFS(filepath.Join(build.dir, "test"), os.DirFS("typescript/test")),
			copyTo("package.json", "typescript/package.json"), copyTo("tsconfig.json", "typescript/tsconfig.json"),
			copyTo("test/worker.ts", "../examples/worker.ts"), os.Symlink(modules, filepath.Join(build.dir, "node_modules")),
			os.WriteFile(filepath.Join(build.dir, "test/readme.ts"),
				[]byte(strings.ReplaceAll(readme.String(), `"http://127.0.0.1:8003"`, "process.env.SECBOX_SERVER!")), 0o600),
		); build.err != nil {
			return
		}
		cmd := exec.Command("node", filepath.Join(modules, "typescript/bin/tsc"))
		cmd.Dir = build.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			build.err = fmt.Errorf("tsc: %w\n%s", err, out)
		}
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
	return filepath.Join(build.dir, "dist")
}

// freePort returns a port on which nothing listens.
func freePort(t *testing.T) string {
	t.Helper()
	for {
		port := fmt.Sprint(20_000 + rand.IntN(10_000)) // below the ports that systems give to others meanwhile
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			continue
		}
		l.Close()
		return port
	}
}

// run runs a program and returns what it has written to standard output.
func run(t *testing.T, dir string, environ []string, program string, args ...string) string {
	t.Helper()
	var out, complaints bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, environ, &out, &complaints
	if err := cmd.Run(); err != nil {
		t.Errorf("%s %v: %v\n%s%s", program, args, err, &out, &complaints)
	}
	return out.String()
}

// TestBrowsersCanLoadTheCore looks for what only Node.js has in the entry for browsers.
func TestBrowsersCanLoadTheCore(t *testing.T) {
	t.Parallel()
	core, err := os.ReadFile("typescript/src/index.ts")
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`"node:|\b(process|Buffer|require|global)\b[.(]`).Find(core); found != nil {
		t.Errorf("typescript/src/index.ts uses %s, which browsers do not have; put it into node.ts", found)
	}
}
