package api_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/api"
	"secbox/api/sse/ssetest"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/engine"
	"secbox/engine/memengine"
	"secbox/pathadapter"
	"secbox/policy"
	"secbox/runner"
	"secbox/runner/diskwatch"
	"secbox/runner/follow"
	"secbox/skills"
	"secbox/skills/invoke"
	"secbox/workspace"
	"secbox/workspace/diskspace"
)

// liveFixture is a fixture whose execs run, in an engine without containers. The command listen
// prints what it is told by print.
type liveFixture struct {
	*fixture
	runs     *runner.Runner
	execRoot string // the workspace root of the execs
	prints   chan printed
}

// printed is what listen prints; an empty one ends it.
type printed struct{ stdout, stderr string }

// startLive starts one with room for a number of execs at once.
func startLive(t *testing.T, slots int, change ...func(*api.Config)) *liveFixture {
	t.Helper()
	f := &liveFixture{prints: make(chan printed)}
	f.fixture = start(t, append([]func(*api.Config){func(cfg *api.Config) { f.execs(t, slots, cfg) }}, change...)...)
	t.Cleanup(func() { // before the HTTP server, which waits for answers
		f.server.Close()
		now, cancel := context.WithCancel(context.Background())
		cancel()
		f.runs.Drain(now)
	})
	return f
}

// execs replaces the fake runner by one that runs execs.
func (f *liveFixture) execs(t *testing.T, slots int, cfg *api.Config) {
	f.execRoot = filepath.Join(t.TempDir(), "workspace")
	quiet, dir, owner := slog.New(slog.DiscardHandler), t.TempDir(), -1
	if os.Geteuid() == 0 {
		owner = 1000
	}
	adapter, err := pathadapter.New(pathadapter.Config{Root: f.execRoot})
	must(t, err)
	files, err := workspace.Open(workspace.Options{Adapter: adapter, UID: owner, GID: owner})
	must(t, err)
	t.Cleanup(func() { must(t, files.Close()) })
	resolver, err := policy.New(policy.Config{SettingsDigest: "sha256:s"})
	must(t, err)
	jobs := memengine.New(memengine.Options{Run: memengine.Shell(map[string]memengine.Command{"listen": f.listen})})
	history := cfg.History.(*audit.Log)
	f.runs, err = runner.New(runner.Config{
		Log: history, Engine: jobs, Images: &memengine.Images{}, Policy: resolver, Workspace: files, Host: func() policy.Host { return policy.Host{} },
		StateDir: filepath.Join(dir, "state"), NodeID: "n", User: "1000:1000", Disk: diskwatch.New(roomyDisk{}, diskwatch.Limits{}, quiet),
		Slots: slots, Queue: 8, Now: time.Now, NewID: func() string { return uuid.Must(uuid.NewV7()).String() }, Logger: quiet,
	})
	must(t, err)
	t.Cleanup(func() { must(t, jobs.Close()) })
	cfg.Runner, cfg.Live, cfg.Invoker = f.runs, follow.New(f.runs, history), invoke.New(cfg.Skills.(*skills.Catalog), f.runs)
}

// roomyDisk always has room.
type roomyDisk struct{}

func (roomyDisk) Free() (diskspace.Space, error) {
	return diskspace.Space{Bytes: 1 << 40, Inodes: 1 << 30}, nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (f *liveFixture) listen(ctx context.Context, p *memengine.Process) (int, *engine.Exit, error) {
	for {
		select {
		case <-ctx.Done():
			died := memengine.Died()
			return 0, &died, nil
		case text := <-f.prints:
			if text == (printed{}) {
				return 0, nil, nil
			}
			_, _ = io.WriteString(p.Stdout, text.stdout)
			_, _ = io.WriteString(p.Stderr, text.stderr)
		}
	}
}

// print prints a text to standard output.
func (f *liveFixture) print(texts ...string) {
	for _, text := range texts {
		f.prints <- printed{stdout: text}
	}
}

// begin runs a script, with more members of the request, and returns the exec's id once its row is
// open. ended gets the answer.
func (f *liveFixture) begin(secret, script, more string) (execID string, ended <-chan reply) {
	f.t.Helper()
	seen := map[string]bool{}
	list := func() []audit.Record {
		rows, _, err := f.db.Audit().List(f.t.Context(), audit.Filter{Statuses: []audit.Status{audit.Running, audit.Queued}}, nil, 10)
		must(f.t, err)
		return rows
	}
	for _, row := range list() {
		seen[row.ExecID] = true
	}
	done := make(chan reply, 1)
	go func() {
		done <- f.do(request{
			method: "POST", path: "/sandbox/execs", token: secret,
			body: `{"project_id": "demo", "exec": {"script": "` + script + `"}` + more + `}`,
		})
	}()
	for {
		for _, row := range list() {
			if !seen[row.ExecID] {
				return row.ExecID, done
			}
		}
		if len(done) > 0 {
			f.t.Fatal("the exec has ended already")
		}
	}
}

// events is an open stream of an exec.
type events struct {
	*ssetest.Reader
	t    *testing.T
	got  [2]string
	last wire.ExecState
	body io.ReadCloser
}

// open opens a stream, which is closed at the end of the test.
func (f *fixture) open(r request) *events {
	f.t.Helper()
	if r.method == "" {
		r.method = "GET"
	}
	body := io.Reader(nil)
	if text, ok := r.body.(string); ok {
		body = strings.NewReader(text)
	}
	req, err := http.NewRequestWithContext(f.t.Context(), r.method, f.url+r.path, body)
	must(f.t, err)
	req.Header.Set("Content-Type", "application/json")
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	resp, err := f.client.Do(req)
	must(f.t, err)
	f.t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		text, _ := io.ReadAll(resp.Body)
		f.t.Fatalf("%s %s: %d %s", r.method, r.path, resp.StatusCode, text)
	}
	return &events{Reader: ssetest.NewReader(resp.Body), t: f.t, body: resp.Body}
}

// follow opens the stream of an exec, from an event on.
func (f *fixture) follow(execID, secret, lastID string) *events {
	f.t.Helper()
	header := map[string]string{}
	if lastID != "" {
		header["Last-Event-ID"] = lastID
	}
	e := f.open(request{path: "/sandbox/execs/" + execID + "/events", token: secret, header: header})
	if at, ok := follow.ParseOffsets(strings.TrimSuffix(lastID, "-end")); ok {
		e.got = [2]string{strings.Repeat("?", int(at[0])), strings.Repeat("?", int(at[1]))}
	}
	return e
}

// next reads one event and checks its form. It returns its name; "" when the stream has ended
// between two events, and "cut off" when it broke off.
func (e *events) next() string {
	e.t.Helper()
	event, err := e.Next()
	if errors.Is(err, io.EOF) {
		return ""
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "cut off"
	}
	must(e.t, err)
	strict := json.NewDecoder(strings.NewReader(event.Data))
	strict.DisallowUnknownFields()
	switch stream := map[string]int{"stdout": 1, "stderr": 2}[event.Name]; {
	case stream > 0:
		var piece wire.ExecOutput
		must(e.t, strict.Decode(&piece))
		text := piece.Data
		if piece.Encoding == "base64" {
			raw, err := base64.StdEncoding.DecodeString(text)
			must(e.t, err)
			text = string(raw)
		}
		got := &e.got[stream-1]
		if piece.Offset != int64(len(*got)) || text == "" || len(text) > 16<<10 {
			e.t.Fatalf("a piece of %d bytes at %d comes after %d bytes", len(text), piece.Offset, len(*got))
		}
		*got += text
	case event.Name == "status" || event.Name == "end":
		e.last = wire.ExecState{}
		must(e.t, strict.Decode(&e.last))
	default:
		e.t.Fatalf("an unknown event: %+v", event)
	}
	want := follow.Offsets{int64(len(e.got[0])), int64(len(e.got[1]))}.String()
	if event.Name == "end" {
		want += "-end"
	}
	if event.ID != want {
		e.t.Fatalf("the id of %s is %q, want %q", event.Name, event.ID, want)
	}
	return event.Name
}

// until reads until the streams have so many bytes.
func (e *events) until(stdout, stderr int) {
	e.t.Helper()
	for len(e.got[0]) < stdout || len(e.got[1]) < stderr {
		if name := e.next(); name == "" || name == "end" || name == "cut off" {
			e.t.Fatalf("it ends after %d and %d bytes, want %d and %d", len(e.got[0]), len(e.got[1]), stdout, stderr)
		}
	}
}

// end reads to the end, after which nothing may come.
func (e *events) end() wire.ExecState {
	e.t.Helper()
	for {
		switch e.next() {
		case "end":
			if name := e.next(); name != "" {
				e.t.Fatalf("%s follows the end", name)
			}
			return e.last
		case "", "cut off":
			e.t.Fatal("the stream has no end event")
		}
	}
}
