package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"secbox/api/contracttest"
	"secbox/server"
	"secbox/settings"
)

// testServer is a running core-api of a test's own, on a real Docker engine, with its own
// workspace, state dir and database. Every exchange with it is held against openapi.yaml.
type testServer struct {
	t       testing.TB
	app     application // nil for a process that a test kills
	db      *lazyDatabase
	client  *http.Client
	url     string
	token   string   // sent with every request when it is set
	dir     string   // has workspace/ and state/
	environ []string // the server's own
	how     serving  // how its execs must be served; empty: as it happens
	turn    *turn    // of the requests for which a container must wait
}

// application is a running core-api.
type application interface {
	Addr() string
	Close() error // after it has drained
}

// separate says that each server is a process of its own, started from the folder in
// SECBOX_E2E_PROGRAMS: scripts/reach runs the tests so.
var separate = os.Getenv("SECBOX_E2E_SEPARATE") != ""

// startApplication boots a server, whose log goes to w.
func startApplication(ctx context.Context, s settings.Settings, environ []string, w io.Writer) (application, error) {
	if separate {
		return startProcess(s, environ, w)
	}
	return server.Start(ctx, s, environ, slog.New(slog.NewTextHandler(w, nil)))
}

// inside is the server, where it is in this process.
func (s *testServer) inside() *server.Server {
	s.t.Helper()
	app, ok := s.app.(*server.Server)
	if !ok {
		s.t.Fatal("this test needs its server inside the same process: leave it out where SECBOX_E2E_SEPARATE is set")
	}
	return app
}

// start boots a server; more changes its settings.
func start(t testing.TB, more ...func(*settings.Settings)) *testServer {
	t.Helper()
	return startIn(t, t.TempDir(), more...)
}

// startIn boots a server on directories that may have been used before.
func startIn(t testing.TB, dir string, more ...func(*settings.Settings)) *testServer {
	t.Helper()
	return startWith(t, dir, os.Environ(), more...)
}

// startWith boots a server with the given environment; DOCKER_HOST in it chooses the engine.
func startWith(t testing.TB, dir string, environ []string, more ...func(*settings.Settings)) *testServer {
	t.Helper()
	s := settingsIn(t, dir, more...)
	app, err := startApplication(t.Context(), s, environ, testLog{t})
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() {
		if err := app.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return &testServer{
		t: t, app: app, db: newLazyDatabase(t, s), client: contracttest.New(t), url: "http://" + app.Addr(), dir: dir, environ: environ, turn: &turn{},
	}
}

// settingsIn returns the settings of a server on these directories. No container waits before the
// first request.
func settingsIn(t testing.TB, dir string, more ...func(*settings.Settings)) settings.Settings {
	t.Helper()
	s, err := settings.Load("", os.Environ(), settings.Overrides{
		Addr: "127.0.0.1:0", StateDir: filepath.Join(dir, "state"), WorkspaceRoot: filepath.Join(dir, "workspace"),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Pool.Ready = 0
	for _, change := range more {
		change(&s)
	}
	return s
}

// with is the same server for a subtest, which may run after the parent's own function has
// returned.
func (s *testServer) with(t testing.TB) *testServer {
	mine := *s
	mine.t, mine.client = t, contracttest.New(t)
	return &mine
}

// testLog passes the server's log to the test's.
type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) { return l.t.Output().Write(p) }

// object is a JSON object as a client sees it.
type object map[string]any

func (o object) at(path string) any {
	var v any = map[string]any(o)
	for key := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

func (o object) str(path string) string { s, _ := o.at(path).(string); return s }

func (o object) num(path string) float64 { n, _ := o.at(path).(float64); return n }

func (o object) list(path string) []object {
	items, _ := o.at(path).([]any)
	out := make([]object, 0, len(items))
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// answer is one HTTP response, read whole.
type answer struct {
	Code   int
	Header http.Header
	Body   []byte
}

func (a answer) json(t testing.TB) object {
	t.Helper()
	var o object
	if err := json.Unmarshal(a.Body, &o); err != nil {
		t.Fatalf("%d: %v in %q", a.Code, err, a.Body)
	}
	return o
}

// send makes one request. A body that is a string goes as it is, anything else as JSON.
func (s *testServer) send(method, path string, body any, header ...string) answer {
	s.t.Helper()
	isExec := method == http.MethodPost && path == "/sandbox/execs"
	prepared := isExec && s.prepare(body)
	if prepared {
		defer s.turn.end()
	}
	a, err := s.try(method, path, body, header...)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	if isExec {
		s.served(prepared, a)
	}
	return a
}

// try is send to a server that may end meanwhile.
func (s *testServer) try(method, path string, body any, header ...string) (answer, error) {
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		encoded, err := json.Marshal(b)
		if err != nil {
			return answer{}, err
		}
		reader = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, reader)
	if err != nil {
		return answer{}, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	return answer{resp.StatusCode, resp.Header, content}, nil
}

func (s *testServer) get(path string) object {
	s.t.Helper()
	a := s.send(http.MethodGet, path, nil)
	if a.Code != http.StatusOK {
		s.t.Fatalf("GET %s: %d %s", path, a.Code, a.Body)
	}
	return a.json(s.t)
}

// shell is a request that runs a script; more sets or replaces top-level fields.
func shell(project, script string, more ...any) object {
	o := object{
		"project_id": project,
		"exec":       object{"kind": "shell", "command": "bash", "args": []string{"-lc", script}},
	}
	for i := 0; i+1 < len(more); i += 2 {
		o[more[i].(string)] = more[i+1]
	}
	return o
}

// exec posts a request and wants a result.
func (s *testServer) exec(request object, header ...string) object {
	s.t.Helper()
	a := s.send(http.MethodPost, "/sandbox/execs", request, header...)
	if a.Code != http.StatusOK {
		s.t.Fatalf("exec: %d %s", a.Code, a.Body)
	}
	return a.json(s.t)
}

// refused posts a request and wants a problem with this status and code.
func (s *testServer) refused(status int, code string, request any, header ...string) object {
	s.t.Helper()
	a := s.send(http.MethodPost, "/sandbox/execs", request, header...)
	problem := object{}
	if strings.HasPrefix(a.Header.Get("Content-Type"), "application/problem+json") {
		problem = a.json(s.t)
	}
	if a.Code != status || problem.str("code") != code {
		s.t.Errorf("got %d %s, want %d %s", a.Code, a.Body, status, code)
	}
	return problem
}

// artifact downloads one.
func (s *testServer) artifact(execID, path string) answer {
	s.t.Helper()
	return s.send(http.MethodGet, "/sandbox/execs/"+execID+"/artifacts/"+path, nil)
}

// project is a project's directory on disk.
func (s *testServer) project(id string) string { return filepath.Join(s.dir, "workspace/projects", id) }

// projectFor makes a project id of a case's name.
func projectFor(name string) string { return strings.NewReplacer(" ", "-", ",", "").Replace(name) }

// manifest reads an exec's manifest.json from disk.
func (s *testServer) manifest(result object) object {
	s.t.Helper()
	content, err := os.ReadFile(filepath.Join(s.dir, "workspace", result.str("artifacts_dir"), "manifest.json"))
	if err != nil {
		s.t.Fatal(err)
	}
	var o object
	if err := json.Unmarshal(content, &o); err != nil {
		s.t.Fatal(err)
	}
	return o
}

// containers lists the names of the containers of this server's node, as dockercli.Containers does.
func (s *testServer) containers() []string {
	s.t.Helper()
	return strings.Fields(s.docker("ps", "-a", "--filter", "label=secbox.node="+s.node(), "--format", "{{.Names}}"))
}

// docker asks the server's engine.
func (s *testServer) docker(args ...string) string {
	s.t.Helper()
	cmd := exec.Command("docker", args...)
	cmd.Env = s.environ
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// node is the server's id, by which its containers are labelled.
func (s *testServer) node() string {
	s.t.Helper()
	id, err := os.ReadFile(filepath.Join(s.dir, "state", "node_id"))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(id))
}

// eventually polls until a condition holds; it fails the test after two minutes.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	pause := 10 * time.Millisecond
	for deadline := time.Now().Add(2 * time.Minute); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
		time.Sleep(pause)
		pause = min(pause*3/2, 150*time.Millisecond) // most looks cost more than the wait
	}
}
