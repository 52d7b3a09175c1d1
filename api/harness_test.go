package api_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/api/contracttest"
	"secbox/api/problem"
	"secbox/api/visible"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/export"
	"secbox/audit/hmackey"
	"secbox/audit/translog"
	"secbox/fault"
	"secbox/internal/traces"
	"secbox/packages/catalog"
	"secbox/packages/library"
	"secbox/packages/registry"
	"secbox/packages/versions"
	"secbox/pathadapter"
	"secbox/policy"
	"secbox/replay"
	"secbox/runner"
	"secbox/runner/follow"
	"secbox/runner/session"
	"secbox/runner/terminal"
	"secbox/runner/webhooks"
	"secbox/sandbox/places/placestest"
	"secbox/skills"
	"secbox/skills/invoke"
	"secbox/store/sqlite"
	"secbox/store/storetest/sqlitetest"
	"secbox/workspace"
)

// The implementations of package server.
var (
	_ api.Runner      = (*runner.Runner)(nil)
	_ api.History     = (*audit.Log)(nil)
	_ api.Tokens      = (*tokens.Service)(nil)
	_ visible.Catalog = (*skills.Catalog)(nil)
	_ api.Invoker     = (*invoke.Invoker)(nil)
	_ api.Library     = (*library.Library)(nil)

	_ api.Catalog  = (*catalog.Store)(nil)
	_ api.Registry = (*registry.Registry)(nil)
	_ api.Webhooks = webhooks.Registry{}
)

// fixture is a server on loopback with a real database behind it. Only the parts that need a Docker
// engine are fake.
type fixture struct {
	t       *testing.T
	url     string
	client  *http.Client // checks every exchange against the contract
	db      *sqlite.DB
	dbFile  string
	tokens  *tokens.Service
	runner  *fakeRunner
	dir     string          // the operator's skills
	skills  *skills.Catalog // the real one; its skills run on the fake runner
	health  *fakeHealth
	log     *syncBuffer
	config  api.Config // of server
	server  *api.Server
	history *audit.Log

	packages *library.Library
	uploads  string // where archives wait
	root     string // the workspace root
	logKey   string // the file that logEvents made

	sandboxes *userSandboxes
}

func start(t *testing.T, change ...func(*api.Config)) *fixture {
	t.Helper()
	file := sqlitetest.Migrated(t, filepath.Join(t.TempDir(), "test.db"))
	db, err := sqlite.Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	f := &fixture{
		t: t, client: contracttest.New(t), db: db, dbFile: file, tokens: tokens.NewService(db.Tokens(), time.Now),
		health: &fakeHealth{report: wire.HealthReport{Engine: wire.Docker}}, log: &syncBuffer{},
	}
	f.runner = &fakeRunner{store: db.Audit()}
	f.runner.run = f.runner.succeed
	f.dir = t.TempDir()
	if f.skills, err = skills.Open(skills.Config{Dir: f.dir, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	f.uploads, f.root = filepath.Join(t.TempDir(), "uploads"), t.TempDir()
	adapter, err := pathadapter.New(pathadapter.Config{Root: f.root})
	if err != nil {
		t.Fatal(err)
	}
	files, err := workspace.Open(workspace.Options{Adapter: adapter, UID: -1, GID: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { files.Close() })
	stored := versions.New(files)
	f.packages, err = library.New(library.Config{Workspace: files, Versions: stored, Registry: db.Skills()})
	if err != nil {
		t.Fatal(err)
	}
	f.sandboxes = newUserSandboxes(t, files, db)
	listed := catalog.New(catalog.Config{Sandboxes: f.sandboxes})
	published, err := registry.New(registry.Config{
		Store: db.Registry(), Versions: stored, Sandboxes: f.sandboxes, NewID: func() string { return uuid.Must(uuid.NewV7()).String() },
		Changed: listed.InvalidateCache,
	})
	if err != nil {
		t.Fatal(err)
	}
	f.history, err = audit.NewLog(audit.Config{Store: db.Audit(), Dir: filepath.Join(t.TempDir(), "spool"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewUnstartedServer(nil)
	cfg := api.Config{
		Needs: api.Needs{
			Runner: f.runner, Live: follow.New(f.runner, f.history), Changes: db.Audit(),
			Connections: db.Connections(),
			Webhooks: webhooks.Registry{
				Policy: webhooks.Policy{Allow: []string{"*.example.com"}}, Store: db.Webhooks(),
				Secrets: webhooks.Secrets{Store: db.Webhooks(), Key: hmackey.New([]byte("key"))}, Limits: webhooks.Limits{Waiting: 9, WaitingPerToken: 9},
			},
			History: f.history, TransparencyLog: translog.Log{
				Store: db.TransparencyLog(),
				Key:   func() (translog.Key, error) { return translog.ReadKey(f.logKey, "secbox/test") },
			}, Retention: db.Retention(), Images: db.OwnImages(),
			Exports: export.Exporter{
				Records: db.Audit(), Log: translog.Log{Store: db.TransparencyLog()}, Events: db.AdminEvents(), Limits: db.Limits(),
				Patience: time.Millisecond,
			},
			Reports: export.Reports{
				Records: db.Audit(), Events: db.AdminEvents(), Limits: db.Limits(), Patience: time.Millisecond, Denied: policy.DeniedFields,
				Log: translog.Log{
					Store: db.TransparencyLog(),
					Key:   func() (translog.Key, error) { return translog.ReadKey(f.logKey, "secbox/test") },
				},
			},
			AdminEvents: db.AdminEvents(), Downloads: admin.Downloads{Store: db.AdminEvents(), Limits: db.Limits()},
			Health: f.health, Pool: fakePool{}, Skills: f.skills, Invoker: invoke.New(f.skills, f.runner), Replayer: replay.New(f.runner, keptInputs{}, nil),
			Tokens: f.tokens, Library: f.packages, View: f.packages.View(), Sandboxes: f.sandboxes, Projects: projects{files},
			Catalog: listed, Registry: published, UploadDir: f.uploads,
		},
		ListenAddr: ts.Listener.Addr().String(), Logger: slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, c := range change {
		c(&cfg)
	}
	f.config = cfg
	if f.server, err = api.New(cfg); err != nil {
		t.Fatal(err)
	}
	ts.Config.Handler = f.server
	ts.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	ts.Start()
	t.Cleanup(ts.Close)
	f.url = ts.URL
	return f
}

// stopClock stops the clock of the limits of events until the returned function moves it on.
func (f *fixture) stopClock() (move func(time.Duration)) {
	now := time.Now()
	f.db.Limits().Now = func() time.Time { return now }
	return func(d time.Duration) { now = now.Add(d) }
}

// count writes the events that count others.
func (f *fixture) count() {
	f.db.Limits().Count(admin.OnNode(f.t.Context(), "n1"), f.db.AdminEvents(), slog.New(slog.DiscardHandler))
}

// token makes a token and returns its secret.
func (f *fixture) token(spec tokens.Spec) (id, secret string) {
	f.t.Helper()
	spec.Name = cmpName(spec.Name)
	tok, secret, err := f.tokens.Create(f.t.Context(), spec)
	if err != nil {
		f.t.Fatal(err)
	}
	return tok.ID, secret
}

func cmpName(s string) string {
	if s == "" {
		return "test"
	}
	return s
}

// call is one request; body may be a string, bytes, an io.Reader (sent chunked) or nil.
type request struct {
	method, path string
	body         any
	header       map[string]string
	token        string
	host         string
}

// reply is a whole answer.
type reply struct {
	*http.Response
	body []byte
}

func (f *fixture) do(r request) reply {
	f.t.Helper()
	var body io.Reader
	switch b := r.body.(type) {
	case string:
		body = strings.NewReader(b)
	case []byte:
		body = bytes.NewReader(b)
	case io.Reader:
		body = b
	}
	if r.method == "" {
		r.method = "GET"
	}
	req, err := http.NewRequestWithContext(f.t.Context(), r.method, f.url+r.path, body)
	if err != nil {
		f.t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
		if value == "" {
			req.Header.Del(name)
		}
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	req.Host = r.host
	resp, err := f.client.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return reply{resp, got}
}

func (f *fixture) post(path, body string) reply {
	f.t.Helper()
	return f.do(request{method: "POST", path: path, body: body})
}

func (f *fixture) get(path string) reply {
	f.t.Helper()
	return f.do(request{path: path})
}

// problem decodes a problem document and holds it against the status it came with.
func (r reply) problem(t *testing.T) problem.Document {
	t.Helper()
	var p problem.Document
	if err := json.Unmarshal(r.body, &p); err != nil {
		t.Fatalf("status %d: %v: %.300s", r.StatusCode, err, r.body)
	}
	if p.Status != r.StatusCode || fault.HTTPStatus(p.Code) != r.StatusCode || r.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("status %d, document %d, code %s, %s", r.StatusCode, p.Status, p.Code, r.Header.Get("Content-Type"))
	}
	if r.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Error("no nosniff")
	}
	return p
}

// wants fails unless the answer is a problem with this code and, in this order, these fields.
func (r reply) wants(t *testing.T, code fault.Code, fields ...string) problem.Document {
	t.Helper()
	p := r.problem(t)
	var got []string
	for _, f := range p.Errors {
		got = append(got, f.Field)
	}
	if p.Code != code || !slices.Equal(got, fields) {
		t.Errorf("got %s %v (%s), want %s %v", p.Code, got, p.Detail, code, fields)
	}
	return p
}

func decodeAs[T any](t *testing.T, r reply, status int) T {
	t.Helper()
	var v T
	if r.StatusCode != status {
		t.Fatalf("status %d, want %d: %.400s", r.StatusCode, status, r.body)
	}
	if err := json.Unmarshal(r.body, &v); err != nil {
		t.Fatalf("%v: %.400s", err, r.body)
	}
	return v
}

// fakeRunner stands where the Docker engine would be. It keeps real rows.
type fakeRunner struct {
	dialPort func(ctx context.Context, id string, v runner.Visitor, port uint16) (net.Conn, error)

	stdin func(execID string) (io.WriteCloser, error)

	inside placestest.Here
	store  audit.Store
	run    func(ctx context.Context, req runner.Request) (runner.Result, error)

	ended    chan struct{}      // closed when execs that WaitEnd waits for have ended
	terminal *terminal.Terminal // nil: the exec has ended

	waiting func() error // called by WaitEnd when it begins to wait, which returns its error; may be nil

	mu       sync.Mutex
	requests []runner.Request
	canceled []string

	files          map[string]string
	skillOutput    string // what a skill leaves
	output         map[string]string
	published      map[string]string
	manifestBytes  int64 // of memory, which an open manifest takes
	artifactsError error
	resolveError   error
	timeoutCeiling int64 // milliseconds; 0: half an hour
	maxStdout      int64 // bytes
	cancelError    error
}

func (r *fakeRunner) seen() []runner.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

func (r *fakeRunner) Run(ctx context.Context, req runner.Request) (runner.Result, error) {
	r.mu.Lock()
	r.requests = append(r.requests, req)
	r.mu.Unlock()
	return r.run(ctx, req)
}

func (r *fakeRunner) Stdin(_ context.Context, rec audit.Record) (io.WriteCloser, error) {
	return r.stdin(rec.ExecID)
}

func (r *fakeRunner) RunAll(ctx context.Context, reqs []runner.Request) ([]runner.Outcome, error) {
	out := make([]runner.Outcome, len(reqs))
	for i, req := range reqs {
		out[i].Result, out[i].Err = r.Run(ctx, req)
	}
	return out, nil
}

func (r *fakeRunner) WaitEnd(ctx context.Context, rec audit.Record) (audit.Record, error) {
	if rec.Status.Final() {
		return rec, nil
	}
	if r.waiting != nil {
		if err := r.waiting(); err != nil {
			return rec, err
		}
	}
	select {
	case <-ctx.Done():
	case <-r.ended:
	}
	return r.store.Get(context.WithoutCancel(ctx), rec.ExecID)
}

func (r *fakeRunner) Repeat(ctx context.Context, req runner.Request) (runner.Result, bool, error) {
	taken, err := r.store.OfKey(ctx, req.RequestedBy, req.IdempotencyKey)
	if err != nil || taken == nil {
		return runner.Result{}, false, err
	}
	return runner.Result{Record: *taken, Replayed: true}, true, nil
}

// succeed writes the row of an exec that ended well.
func (r *fakeRunner) succeed(ctx context.Context, req runner.Request) (runner.Result, error) {
	rec := newRecord(req)
	span := traces.Of(ctx)
	rec.TraceID, rec.SpanID = span.Trace, span.Span
	taken, err := r.store.Open(ctx, rec)
	if err != nil {
		return runner.Result{}, err
	}
	if taken != nil {
		return runner.Result{Record: *taken, Replayed: true}, nil
	}
	rec.Status, rec.ExitCode, rec.EndedAt, rec.DurationMS = audit.Succeeded, new(int), rec.StartedAt.Add(64*time.Millisecond), 64
	if _, err := r.store.Close(ctx, rec); err != nil {
		return runner.Result{}, err
	}
	res := runner.Result{Record: rec, Stdout: []byte("hi\n"), Artifacts: r.list()}
	if req.Skill != nil {
		res.Output, err = req.Skill.Accept(ctx, []byte(r.skillOutput))
		if err != nil {
			res.Output = nil
		}
	}
	return res, nil
}

func (r *fakeRunner) list() []runner.Artifact {
	var out []runner.Artifact
	for _, path := range slices.Sorted(maps.Keys(r.files)) {
		out = append(out, artifact(path, r.files[path]))
	}
	return out
}

func artifact(path, content string) runner.Artifact {
	sum := sha256.Sum256([]byte(content))
	return runner.Artifact{Path: path, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
}

// Refuse implements api.Runner. Tests of the real runner check the records.
func (r *fakeRunner) Refuse(_ context.Context, _ runner.Request, why error) error { return why }

func (r *fakeRunner) Cancel(_ context.Context, execID string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.canceled = append(r.canceled, execID)
	return r.cancelError
}

func (r *fakeRunner) Resolve(_ context.Context, req runner.Request) (policy.Snapshot, error) {
	r.mu.Lock()
	r.requests = append(r.requests, req)
	r.mu.Unlock()
	return policy.Snapshot{Values: policy.Values{MaxStdoutBytes: r.maxStdout}, Fields: map[string]policy.Field{
		"timeout_ms": {Value: int64(5000), Layer: policy.LayerRequest, Ceiling: cmp.Or(r.timeoutCeiling, 1800000), CeilingFrom: "default"},
		"fs.read":    {Value: []string{"inputs/**"}, Layer: policy.LayerDefault, Ceiling: []string{"inputs/**"}, CeilingFrom: "default"},
	}, SettingsDigest: "abc"}, r.resolveError
}

func (r *fakeRunner) Artifacts(ctx context.Context, _ audit.Record) (runner.Artifacts, error) {
	if err := runner.Reserve(ctx, r.manifestBytes); err != nil {
		return nil, err
	}
	if r.artifactsError != nil {
		return nil, r.artifactsError
	}
	return fakeArtifacts{r}, nil
}

type fakeArtifacts struct{ r *fakeRunner }

func (a fakeArtifacts) Close() error { return nil }

func (a fakeArtifacts) List() runner.ArtifactList {
	list := runner.ArtifactList{Items: a.r.list()}
	for _, item := range list.Items {
		list.TotalBytes += item.Size
	}
	return list
}

type content struct{ *strings.Reader }

func (content) Close() error { return nil }

func (a fakeArtifacts) Open(_ context.Context, path string) (io.ReadSeekCloser, runner.Artifact, error) {
	text, ok := a.r.files[path]
	if !ok {
		return nil, runner.Artifact{}, fault.New(fault.UnknownArtifact, "the exec left no file of this name")
	}
	return content{strings.NewReader(text)}, artifact(path, text), nil
}

func (r *fakeRunner) OpenPublished(_ context.Context, _ audit.Record, name string) (io.ReadSeekCloser, runner.Artifact, error) {
	text, ok := r.published[name]
	if !ok {
		return nil, runner.Artifact{}, fault.New(fault.UnknownArtifact, "the exec left no %s", name)
	}
	return content{strings.NewReader(text)}, artifact(name, text), nil
}

func (r *fakeRunner) OpenOutput(_ context.Context, _ audit.Record, stream string) (io.ReadSeekCloser, int64, error) {
	text := r.output[stream]
	return content{strings.NewReader(text)}, int64(len(text)), nil
}

// Follow implements follow.Runner. No exec runs here.
func (r *fakeRunner) Follow(context.Context, string, runner.Progress) (runner.Progress, error) {
	return runner.Progress{}, nil
}

// Await implements follow.Runner.
func (r *fakeRunner) Await(string) (<-chan struct{}, func()) { return nil, func() {} }

// newRecord is a running exec as the runner would open it.
func newRecord(req runner.Request) audit.Record {
	now := time.Now().UTC().Truncate(time.Microsecond)
	id := uuid.Must(uuid.NewV7()).String()
	project := req.ProjectID
	if project == "" {
		project = req.ConversationID
	}
	return audit.Record{
		ExecID: id, Kind: audit.KindExec, ProjectID: project, TaskID: req.TaskID, ConversationID: req.ConversationID, AgentID: req.AgentID, UserID: req.UserID,
		SkillID: req.SkillID,
		Image:   "secbox/sandbox:latest", Cmd: req.Command.Name, Args: req.Command.Args, Cwd: "/workspace/work",
		PolicySnapshot: json.RawMessage(`{"fields":{"pids":{"value":64,"layer":"default","ceiling":4096,"ceiling_from":"default"}},"settings_digest":"abc"}`),
		Status:         audit.Running, CreatedAt: now, StartedAt: now, ArtifactsPath: "projects/" + project + "/artifacts/" + id,
		NodeID: "n1", Backend: "docker", RequestedBy: req.RequestedBy, RequestDigest: req.Digest, IdempotencyKey: req.IdempotencyKey,
	}
}

// record puts a row into the database, ended unless change says otherwise.
func (f *fixture) record(change func(*audit.Record)) audit.Record {
	f.t.Helper()
	rec := newRecord(runner.Request{ProjectID: "demo", Command: runner.Command{Name: "bash"}, RequestedBy: "loopback"})
	ended := rec
	ended.Status, ended.ExitCode, ended.EndedAt = audit.Succeeded, new(int), rec.StartedAt.Add(time.Second)
	if change != nil {
		change(&ended)
	}
	rec = ended
	rec.Status, rec.EndedAt, rec.ExitCode = audit.Running, time.Time{}, nil
	if _, err := f.db.Audit().Open(f.t.Context(), rec); err != nil {
		f.t.Fatal(err)
	}
	if ended.Status.Final() {
		if _, err := f.db.Audit().Close(f.t.Context(), ended); err != nil {
			f.t.Fatal(err)
		}
	}
	return ended
}

type fakeHealth struct {
	report wire.HealthReport
	ready  error
}

func (h *fakeHealth) Report(context.Context) wire.HealthReport {
	r := h.report
	if r.Status == "" {
		r.Status = wire.Ok
	}
	r.Database, r.AuditLog.Witnesses = "sqlite", []wire.HealthAuditWitness{}
	return r
}

func (h *fakeHealth) Ready(context.Context) error { return h.ready }

// fakePool shows a pool that was never used.
type fakePool struct{}

func (fakePool) Report() wire.PoolReport {
	return wire.PoolReport{Enabled: true, Max: 32, Keys: []wire.PoolKey{}}
}

// syncBuffer is a log that test and server may use at once.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

const aCommand = `"exec": {"kind": "shell", "command": "bash", "args": ["-lc", "true"]}`

// StartSession keeps the row of a session.
func (r *fakeRunner) StartSession(ctx context.Context, req runner.SessionRequest) (audit.Record, bool, error) {
	rec := newRecord(req.Request)
	rec.SessionID = rec.ExecID
	taken, err := r.store.Open(ctx, rec)
	if taken != nil {
		return *taken, true, err
	}
	return rec, false, err
}

// Session knows no running one.
func (r *fakeRunner) Session(id string) (session.State, error) {
	return session.State{}, session.Ended(id)
}

// ExtendSession extends nothing.
func (r *fakeRunner) ExtendSession(_ string, _, _ time.Duration, record func() error) error {
	return record()
}

// Inside returns the same for any session.
func (r *fakeRunner) DialPort(ctx context.Context, id string, v runner.Visitor, port uint16) (net.Conn, error) {
	return r.dialPort(ctx, id, v, port)
}

func (r *fakeRunner) Inside(string) session.Inside { return r.inside }

// SessionUsage returns one sample.
func (r *fakeRunner) SessionUsage(_ context.Context, rec audit.Record) (session.Samples, error) {
	return session.Samples{Samples: []session.Sample{{At: rec.CreatedAt, CPUUS: 5, MemoryBytes: 9}}}, nil
}

// EndContext knows one.
func (r *fakeRunner) EndContext(_, name string) bool { return name == "main" }

func (r *fakeRunner) Terminal(_ context.Context, rec audit.Record) (*terminal.Terminal, error) {
	if r.terminal == nil {
		return nil, fault.New(fault.ExecEnded, "exec %s has ended", rec.ExecID)
	}
	return r.terminal, nil
}
