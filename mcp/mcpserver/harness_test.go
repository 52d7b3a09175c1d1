package mcpserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/access/tokens"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/fault"
	"secbox/policy"
	"secbox/runner"
	"secbox/skills"
	"secbox/skills/invoke"
)

// These tests check the protocol with fake execs. The tests of package e2e run real ones.

// fixture is an endpoint behind a gate that knows tokens by their names.
type fixture struct {
	t       *testing.T
	server  *Server
	execs   *fakeRunner
	catalog *skills.Catalog
	dir     string // the operator's skills
	url     string
	hold    Hold // set before the first request

	mu     sync.Mutex
	tokens map[string]tokens.Token

	downloads downloads
}

const workerSkill = "test.echo"

func newFixture(t *testing.T, change ...func(*Config)) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: t.TempDir(), tokens: map[string]tokens.Token{
		"worker":  {ID: "tok-worker", Role: tokens.Worker},
		"other":   {ID: "tok-other", Role: tokens.Worker},
		"admin":   {ID: "tok-admin", Role: tokens.Admin},
		"project": {ID: "tok-project", Role: tokens.Worker, Projects: []string{"only"}},
		"two":     {ID: "tok-two", Role: tokens.Worker, Projects: []string{"one", "two"}},
		"agent":   {ID: "tok-agent", Role: tokens.Worker, Agents: []string{"a1"}},
	}}
	f.addSkill(workerSkill, `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"],"additionalProperties":false}`, "work/**")
	var err error
	if f.catalog, err = skills.Open(skills.Config{Dir: f.dir, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	f.execs = &fakeRunner{catalog: f.catalog, records: map[string]audit.Record{}, canceled: map[string]chan struct{}{}, files: map[string][]byte{}}
	cfg := Config{
		Invoker: f.execs, Catalog: f.catalog, History: f.execs, Runner: f.execs, Downloads: &f.downloads, Version: "test",
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), MaxBodyBytes: 1 << 20,
	}
	for _, c := range change {
		c(&cfg)
	}
	if f.server, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		token, ok := f.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
		f.mu.Unlock()
		if !ok {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		ctx := WithCaller(r.Context(), token)
		if f.hold != nil {
			ctx = WithHold(ctx, f.hold)
		}
		f.server.ServeHTTP(w, r.WithContext(ctx))
	}))
	f.url = web.URL
	t.Cleanup(func() {
		if err := f.server.Close(); err != nil {
			t.Error(err)
		}
		web.Close()
	})
	return f
}

// addSkill writes a skill into the operator's folder.
func (f *fixture) addSkill(id, inputs string, write ...string) {
	f.t.Helper()
	dir := filepath.Join(f.dir, id)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		f.t.Fatal(err)
	}
	manifest, err := json.Marshal(map[string]any{
		"schema_version": "1", "id": id, "name": "Name of " + id, "description": "Says what " + id + " does.",
		"interface": map[string]any{"inputs": json.RawMessage(inputs), "outputs": map[string]any{"type": "object"}},
		"runtime":   map[string]any{"kind": "docker", "entrypoint": []string{"bash", "./run.sh"}},
		"permissions": map[string]any{
			"fs":  map[string]any{"read": []string{"inputs/**", "work/**"}, "write": append([]string{"artifacts/**"}, write...)},
			"net": map[string]any{"mode": "none"},
		},
		"limits": map[string]any{},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	for name, content := range map[string]string{"manifest.json": string(manifest), "SKILL.md": "# " + id + "\n", "run.sh": "true\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			f.t.Fatal(err)
		}
	}
}

// bearer adds a token to each request.
type bearer struct {
	token string
	base  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.base.RoundTrip(r)
}

// connect opens a session as the SDK's own client.
func (f *fixture) connect(token, query string, opts *mcp.ClientOptions) *mcp.ClientSession {
	f.t.Helper()
	base := &http.Transport{}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts)
	session, err := client.Connect(f.t.Context(), &mcp.StreamableClientTransport{
		Endpoint: f.url + query, HTTPClient: &http.Client{Transport: bearer{token, base}}, MaxRetries: -1,
	}, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		_ = session.Close()
		base.CloseIdleConnections()
	})
	return session
}

func (f *fixture) call(session *mcp.ClientSession, tool string, arguments any) *mcp.CallToolResult {
	f.t.Helper()
	result, err := session.CallTool(f.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		f.t.Fatal(err)
	}
	return result
}

func textOf(result *mcp.CallToolResult) string {
	var all []string
	for _, c := range result.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			all = append(all, text.Text)
		}
	}
	return strings.Join(all, "\n")
}

// post sends one body without the SDK's client.
func (f *fixture) post(token, session, body string, header ...string) (*http.Response, string) {
	f.t.Helper()
	return f.send(http.MethodPost, token, session, body, header...)
}

func (f *fixture) send(method, token, session, body string, header ...string) (*http.Response, string) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.url, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		req.Header.Set(sessionHeader, session)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp, string(content)
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`

// open begins a session by hand and returns its id.
func (f *fixture) open(token string) string {
	f.t.Helper()
	resp, body := f.post(token, "", initialize)
	id := resp.Header.Get(sessionHeader)
	if resp.StatusCode != http.StatusOK || id == "" {
		f.t.Fatalf("initialize: %d %s", resp.StatusCode, body)
	}
	if resp, body := f.post(token, id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); resp.StatusCode != http.StatusAccepted {
		f.t.Fatalf("initialized: %d %s", resp.StatusCode, body)
	}
	return id
}

// fakeRunner runs nothing: the real catalog validates invokes, and the input text selects the
// outcome of the exec.
type fakeRunner struct {
	catalog *skills.Catalog

	mu       sync.Mutex
	seen     []invoke.Request
	records  map[string]audit.Record
	canceled map[string]chan struct{}
	files    map[string][]byte // artifacts, by uriOf
}

func (s *fakeRunner) Invoke(ctx context.Context, req invoke.Request) (invoke.Result, error) {
	skill, err := s.catalog.Now().Get(req.SkillID)
	if err != nil {
		return invoke.Result{}, err
	}
	if err := skill.CheckInputs(ctx, req.Inputs); err != nil {
		return invoke.Result{}, err
	}
	var inputs struct{ Text string }
	_ = json.Unmarshal(req.Inputs, &inputs)
	if inputs.Text == "denied" {
		e := fault.New(fault.PolicyDenied, "memory_mb: 99999 is above the ceiling of 8192")
		e.Fields, e.ExecID = []fault.Field{{Field: "memory_mb", Reason: "is above the ceiling"}}, "denied-exec"
		return invoke.Result{}, e
	}
	if inputs.Text == "broken" {
		return invoke.Result{}, fmt.Errorf("a secret cause")
	}
	if inputs.Text == "late" { // the row is not open before the call has been canceled
		<-ctx.Done()
	}
	code := 0
	rec := audit.Record{ExecID: uuid.NewString(), ProjectID: req.ProjectID, SkillID: req.SkillID, RequestedBy: req.RequestedBy, Status: audit.Running}
	stop := make(chan struct{})
	s.mu.Lock()
	s.seen = append(s.seen, req)
	s.records[rec.ExecID], s.canceled[rec.ExecID] = rec, stop
	s.mu.Unlock()
	if req.OnOpen != nil {
		req.OnOpen(rec.ExecID)
	}
	rec.Status = audit.Succeeded
	switch inputs.Text {
	case "wait", "late":
		<-stop
		rec.Status, rec.ErrorReason = audit.Canceled, audit.ReasonCanceled
	case "fail":
		code = 3
		rec.Status, rec.ErrorReason, rec.Detail = audit.Failed, audit.NonzeroExit, "the command exited with 3"
	case "slow":
		code = 137
		rec.Status, rec.ErrorReason, rec.Detail = audit.Timeout, audit.ReasonTimeout, "killed; raise policy_overrides.timeout_ms"
	}
	rec.ExitCode, rec.DurationMS = &code, 7
	result := invoke.Result{Skill: skill}
	if rec.Status == audit.Succeeded {
		result.Outputs, _ = json.Marshal(map[string]string{"text": inputs.Text, "project": req.ProjectID})
	}
	result.Exec = runner.Result{Record: rec, Stdout: []byte("said " + inputs.Text)}
	s.mu.Lock()
	s.records[rec.ExecID] = rec
	s.files[uriOf(rec.ExecID, "a b/ü.txt")] = []byte("text of " + inputs.Text)
	s.mu.Unlock()
	result.Exec.Artifacts = []runner.Artifact{{Path: "a b/ü.txt", Size: 8}, {Path: runner.SkillOutputFile, Size: 2}}
	return result, nil
}

func (s *fakeRunner) requests() []invoke.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]invoke.Request{}, s.seen...)
}

// running lists the execs that have not ended.
func (s *fakeRunner) running() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, rec := range s.records {
		if !rec.Status.Final() {
			ids = append(ids, id)
		}
	}
	return ids
}

func (s *fakeRunner) Get(_ context.Context, execID string) (audit.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rec, ok := s.records[execID]; ok {
		return rec, nil
	}
	return audit.Record{}, fault.New(fault.UnknownExec, "there is no exec %s", execID)
}

// Refuse implements Runner. Tests of the real runner check the records.
func (s *fakeRunner) Refuse(_ context.Context, _ runner.Request, why error) error { return why }

func (s *fakeRunner) Resolve(context.Context, runner.Request) (policy.Snapshot, error) {
	return policy.Snapshot{Values: policy.Defaults()}, nil
}

func (s *fakeRunner) Cancel(_ context.Context, execID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stop := s.canceled[execID]; stop != nil {
		close(stop)
		delete(s.canceled, execID)
	}
	return nil
}

func (s *fakeRunner) OpenOutput(_ context.Context, _ audit.Record, stream string) (io.ReadSeekCloser, int64, error) {
	content := []byte("first\n" + stream + " so far\n")
	return readSeekNopCloser{bytes.NewReader(content)}, int64(len(content)), nil
}

func (s *fakeRunner) Artifacts(_ context.Context, record audit.Record) (runner.Artifacts, error) {
	if !record.Status.Final() {
		return nil, fault.New(fault.ArtifactsPending, "exec %s is running", record.ExecID)
	}
	return standFiles{s, record.ExecID}, nil
}

type standFiles struct {
	*fakeRunner
	execID string
}

func (f standFiles) List() runner.ArtifactList { return runner.ArtifactList{} }

func (f standFiles) Open(_ context.Context, path string) (io.ReadSeekCloser, runner.Artifact, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, ok := f.files[uriOf(f.execID, path)]
	if !ok {
		return nil, runner.Artifact{}, fault.New(fault.UnknownArtifact, "no such file")
	}
	return readSeekNopCloser{bytes.NewReader(content)}, runner.Artifact{Path: path, Size: int64(len(content))}, nil
}

func (standFiles) Close() error { return nil }

type readSeekNopCloser struct{ io.ReadSeeker }

func (readSeekNopCloser) Close() error { return nil }

// eventually waits until a condition holds; it fails the test after a minute.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func asError[T error](err error, target *T) bool { return errors.As(err, target) }

// downloads records downloads, or refuses them all with an error.
type downloads struct {
	mu   sync.Mutex
	seen []string
	err  error
}

func (d *downloads) Record(ctx context.Context, execID, what, path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, err := admin.New(ctx, admin.Download, execID, nil)
	if err != nil || d.err != nil {
		return cmp.Or(d.err, err)
	}
	d.seen = append(d.seen, e.Actor.ID+" "+what+" "+path)
	return nil
}
