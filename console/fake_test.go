package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"secbox/access/sessions"
	"secbox/access/tokens"
	"secbox/access/views"
	"secbox/api/visible"
	"secbox/audit"
	"secbox/audit/translog"
	"secbox/cluster/nodes"
	"secbox/cluster/samples"
	"secbox/console"
	"secbox/engine"
	"secbox/fault"
	"secbox/health"
	"secbox/runner"
	"secbox/runner/follow"
	"secbox/runner/session"
	"secbox/runner/webhooks"
	"secbox/sandbox/inside"
	"secbox/sandbox/remote"
)

// fakeApp implements what a Console asks, with content of a test.
type fakeApp struct {
	spooled  bool
	records  []audit.Record // newest first
	events   []audit.Event
	output   map[string][]byte // by stream
	files    []runner.Artifact
	notKept  runner.ArtifactList // without Items
	content  map[string]string   // of files, by path
	first    *fakeApp            // has the files of execID(4), which execID(2) of fullApp replays; nil: the same ones
	replayer fakeReplayer
	callback *webhooks.Delivery // of execID(2)
	network  []audit.Connection // of execID(2)
	cast     string             // the recording of every terminal
	caller   tokens.Token
	prove    error
	standing translog.Standing
	secure   bool // the browser comes by TLS

	nodes    []nodes.Node
	day      samples.Day
	latest   map[string]samples.Sample // by node
	report   health.Report
	known    func() health.Report // nil: report
	pool     engine.PoolStats
	machines []remote.RunnerInfo

	connected func() []remote.RunnerInfo // nil: machines
	skills    fakeSkills

	recent func(hours int) audit.Recent // nil: nothing
	now    func() time.Time             // nil: time.Now

	stalled bool // the bodies of requests stop, and net/http has ended their contexts

	sessions *fakeSessions
	boxes    map[string]session.State // that run on this node
	views    fakeViews
	people   []sessions.Person
	blocked  []string // ids; "not " before one is the end of its block
	signOn   console.SignOn
	tokens   []tokens.Token // oldest first

	audit fakeAudit

	barren bool // the first page of a list of execs has looked at many, and found none

	canceled  []string
	mu        sync.Mutex // of downloads, which frames make at once
	downloads []string
}

// newFake returns an application whose caller is an admin.
func newFake() *fakeApp {
	f := &fakeApp{
		caller: tokens.Token{ID: "t", Name: "Ada", Role: tokens.Admin}, standing: translog.Standing{Index: 1234}, output: map[string][]byte{},
		sessions: &fakeSessions{byToken: map[string]tokens.Token{}, open: map[string]tokens.Token{}},
		views:    fakeViews{of: map[string][]views.View{}},
	}
	f.sessions.app = f
	return f
}

// serve starts a console over the application.
func (f *fakeApp) serve(t *testing.T) string {
	t.Helper()
	pages, err := console.New(console.Config{
		Execs: f, Events: f, Callbacks: f, Connections: f, Runner: f, Live: follow.New(f, followed{f}), Proofs: f, Replayer: &f.replayer,
		Nodes: fakeNodes{f}, Samples: fakeSamples{f}, Health: f, Pool: f, Runners: f,
		AdminEvents: fakeAdminEvents{f}, Reports: fakeReports{f}, Registry: &f.skills.published, Holds: f.holds(), Images: fakeImages{f},
		Retention: fakeRetention{f}, Sessions: f.sessions, Views: &f.views, SignOn: f.signOn, Tokens: fakeTokens{f}, Version: "test", Now: f.now,
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { pages.ServeHTTP(w, r, openDoor{f}) }))
	t.Cleanup(func() {
		pages.Close() // the server waits for answers
		server.Close()
	})
	return server.URL
}

// Delivery implements console.Callbacks.
// Connections implements console.Connections.
func (f *fakeApp) Connections(_ context.Context, execID string, _ int64, limit int) ([]audit.Connection, error) {
	if execID != execID2 {
		return nil, nil
	}
	return f.network[:min(limit, len(f.network))], nil
}

func (f *fakeApp) Delivery(_ context.Context, execID string) (*webhooks.Delivery, error) {
	if execID != execID2 {
		return nil, nil
	}
	return f.callback, nil
}

var execID2 = execID(2)

// openDoor lets everything pass.
type openDoor struct{ app *fakeApp }

func (d openDoor) WithoutToken(*http.Request) (tokens.Token, error) {
	if d.app.caller.ID == "" {
		return tokens.Token{}, fault.New(fault.Unauthenticated, "this request needs a token")
	}
	return d.app.caller, nil
}

func (d openDoor) ClientAddress(r *http.Request) string { return r.RemoteAddr }

func (d openDoor) Secure(*http.Request) bool            { return d.app.secure }
func (d openDoor) Reserve(int64) error                  { return nil }
func (d openDoor) Turn(context.Context) (func(), error) { return func() {}, nil }

func (d openDoor) Skills() visible.Skills { return d.app.skills.visible() }

func (d openDoor) Away(context.Context, audit.Record) (string, bool)             { return "", false }
func (d openDoor) Forward(http.ResponseWriter, *http.Request, string) error      { return nil }
func (d openDoor) Relay(http.ResponseWriter, *http.Request, string, string) bool { return false }
func (d openDoor) Enter(w http.ResponseWriter, r *http.Request, _ string, _ tokens.Token, _ func() error) (http.ResponseWriter, *http.Request, func(), error) {
	if d.app.stalled && r.Method == http.MethodPost {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		r = r.WithContext(ctx)
		r.Body = io.NopCloser(iotest.ErrReader(fault.New(fault.BodyTooSlow, "the body stopped")))
	}
	return w, r, func() {}, nil
}

func (f *fakeApp) Get(_ context.Context, _ tokens.Token, execID string) (audit.Record, error) {
	for _, rec := range f.records {
		if rec.ExecID == execID {
			return rec, nil
		}
	}
	return audit.Record{}, fault.New(fault.UnknownExec, "there is no exec %s that you may see", execID)
}

// List ignores filters but ExecIDs, TaskID and one for changes.
func (f *fakeApp) List(_ context.Context, _ tokens.Token, filter audit.Filter, after *audit.Cursor, limit int) ([]audit.Record, *audit.Cursor, error) {
	if f.barren && after == nil {
		return nil, &audit.Cursor{CreatedAt: f.records[0].CreatedAt, ExecID: f.records[0].ExecID}, nil
	}
	ids := audit.Filter{ExecIDs: filter.ExecIDs, TaskID: filter.TaskID, SessionID: filter.SessionID, Sessions: filter.Sessions}
	if filter.Kind == audit.KindChange {
		ids.Kind = filter.Kind
	}
	rows := slices.DeleteFunc(slices.Clone(f.records), func(r audit.Record) bool { return !ids.Matches(r) })
	if filter.OldestFirst {
		slices.Reverse(rows)
	}
	if after != nil {
		rows = rows[1+slices.IndexFunc(rows, func(r audit.Record) bool { return r.ExecID == after.ExecID }):]
	}
	if len(rows) <= limit {
		return rows, nil, nil
	}
	last := rows[limit-1]
	return rows[:limit], &audit.Cursor{CreatedAt: last.CreatedAt, ExecID: last.ExecID}, nil
}

// fillSessions makes execID(20) a session of this node with two execs, and execID(23) one that has
// ended.
func (f *fakeApp) fillSessions(name, inContext string) {
	running, ended := &f.records[40], &f.records[37]
	for _, r := range []*audit.Record{running, ended} {
		r.SessionID, r.Cmd, r.Args = r.ExecID, runner.SessionCommand, runner.SessionTerms{Name: name, Idle: time.Minute, TTL: time.Hour}.Arguments()
	}
	running.Status, running.ExitCode, running.EndedAt = audit.Running, nil, time.Time{}
	ended.Status, ended.ErrorReason = audit.Canceled, audit.SessionIdle
	for i, r := range []*audit.Record{&f.records[39], &f.records[38]} {
		r.SessionID, r.SessionSeq, r.Context, r.CPUUS, r.MaxRSSBytes = running.ExecID, int64(i+1), inContext, new(int64(5000)), new(int64(9<<20))
	}
	f.boxes = map[string]session.State{running.ExecID: {
		ID: running.ExecID, Running: 1, Execs: 2, ExpiresAt: clock.Add(time.Hour), IdleExpiresAt: clock.Add(time.Minute),
		Contexts: []session.ContextState{{Context: session.Context{Kind: inContext, Name: inContext}, Cells: 2, StartedAt: clock}},
	}}
}

// Session implements console.Runner.
func (f *fakeApp) Session(id string) (session.State, error) {
	if state, ok := f.boxes[id]; ok {
		return state, nil
	}
	return session.State{}, session.Ended(id)
}

// Inside implements console.Runner.
func (f *fakeApp) Inside(string) session.Inside { return fakeInside{} }

// fakeInside is a session whose processes include a hostile one.
type fakeInside struct{ session.Inside }

func (fakeInside) Watch(_ context.Context, _ engine.Job, stdout io.Writer) (engine.Exit, error) {
	err := json.NewEncoder(stdout).Encode(inside.Answer{Processes: []inside.Process{
		{PID: 42, Parent: -7, Command: []byte("sleep\x1b[2J <b>1000</b>"), State: "S", CPUUS: -1, MemoryBytes: 5 << 20, StartedAt: clock},
	}})
	return engine.Exit{}, err
}

// SessionUsage implements console.Runner.
func (f *fakeApp) SessionUsage(_ context.Context, rec audit.Record) (s session.Samples, err error) {
	for i := range 3 {
		s.Samples = append(s.Samples, session.Sample{
			At: rec.StartedAt.Add(time.Duration(i) * time.Second), CPUUS: int64(i*i) * 250_000, MemoryBytes: int64(3-i) << 20,
		})
	}
	return s, err
}

// Search ignores filters, too.
func (f *fakeApp) Search(ctx context.Context, caller tokens.Token, filter audit.Filter, after *audit.Cursor, most int,
	each func(audit.Record) bool,
) (*audit.Cursor, error) {
	rows, next, err := f.List(ctx, caller, filter, after, most)
	for _, rec := range rows {
		if !each(rec) {
			return after, err
		}
		after = &audit.Cursor{CreatedAt: rec.CreatedAt, ExecID: rec.ExecID}
	}
	return next, err
}

func (f *fakeApp) Names(context.Context, tokens.Token, ...string) (map[string]string, error) {
	return map[string]string{"t": "Ada"}, nil
}

func (f *fakeApp) ArtifactsRemoved(context.Context, ...string) (map[string]time.Time, error) {
	return nil, nil
}
func (f *fakeApp) UnlessRemoved(_ context.Context, _ audit.Record, err error) error { return err }
func (f *fakeApp) RecordDownload(_ context.Context, _ tokens.Token, rec audit.Record, what, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.downloads = append(f.downloads, rec.ExecID+" "+what+" "+path)
	return nil
}

func (f *fakeApp) RecordSearch(_ context.Context, _ tokens.Token, text string, _ []audit.Record, streams map[string][]string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.downloads = append(f.downloads, fmt.Sprint("search ", text, " ", streams))
	return nil
}

func (f *fakeApp) Spooled(string) bool { return f.spooled }

func (f *fakeApp) Events(context.Context, string) ([]audit.Event, error) { return f.events, nil }

func (f *fakeApp) Cancel(_ context.Context, execID string) error {
	f.canceled = append(f.canceled, execID)
	return nil
}

func (f *fakeApp) Artifacts(_ context.Context, rec audit.Record) (runner.Artifacts, error) {
	if rec.ExecID == execID(4) && f.first != nil {
		return fakeFiles{f.first}, nil
	}
	return fakeFiles{f}, nil
}

func (f *fakeApp) OpenOutput(_ context.Context, _ audit.Record, stream string) (io.ReadSeekCloser, int64, error) {
	b := f.output[stream]
	return readSeekCloser{bytes.NewReader(b)}, int64(len(b)), nil
}

func (f *fakeApp) OpenPublished(_ context.Context, _ audit.Record, name string) (io.ReadSeekCloser, runner.Artifact, error) {
	return readSeekCloser{bytes.NewReader([]byte(f.cast))}, runner.Artifact{Path: name, Size: int64(len(f.cast))}, nil
}

func (f *fakeApp) Standing(context.Context, audit.Record) (translog.Standing, error) {
	return f.standing, nil
}

func (f *fakeApp) Prove(context.Context, audit.Record) ([]byte, error) { return []byte("{}"), f.prove }

// fakeTokens has tokens in memory; their secrets are of no use.
type fakeTokens struct{ app *fakeApp }

func (f fakeTokens) Create(ctx context.Context, spec tokens.Spec) (tokens.Token, string, error) {
	t, secret, err := tokens.NewService(fakeTokenStore{}, func() time.Time { return clock }).Create(ctx, spec)
	if err == nil {
		f.app.tokens = append(f.app.tokens, t)
	}
	return t, secret, err
}

func (f fakeTokens) Page(_ context.Context, after string, revoked bool, limit int) (page []tokens.Token, _ error) {
	begun := after == ""
	for _, t := range slices.Backward(f.app.tokens) {
		if begun && (revoked || !t.Revoked()) && len(page) < limit {
			page = append(page, t)
		}
		begun = begun || t.ID == after
	}
	return page, nil
}

func (f fakeTokens) ByID(_ context.Context, id string) (tokens.Token, error) {
	for _, t := range f.app.tokens {
		if t.ID == id {
			return t, nil
		}
	}
	return tokens.Token{}, fault.New(fault.UnknownToken, "there is no token %s", id)
}

func (f fakeTokens) OtherAdmin(_ context.Context, id string) (bool, error) {
	return slices.ContainsFunc(f.app.tokens, func(t tokens.Token) bool { return t.ID != id && t.Role == tokens.Admin && !t.Revoked() }), nil
}

func (f fakeTokens) Revoke(_ context.Context, id string) (tokens.Token, error) {
	i := slices.IndexFunc(f.app.tokens, func(t tokens.Token) bool { return t.ID == id })
	if i < 0 {
		return tokens.Token{}, fault.New(fault.UnknownToken, "there is no token %s", id)
	}
	f.app.tokens[i].RevokedAt = clock
	return f.app.tokens[i], nil
}

type fakeTokenStore struct{ tokens.Store }

func (fakeTokenStore) Create(context.Context, tokens.Token, tokens.Hash) error { return nil }

// fakeNodes are the nodes of a fakeApp.
type fakeNodes struct{ *fakeApp }

func (f fakeNodes) List(context.Context, time.Duration) ([]nodes.Node, error) { return f.nodes, nil }
func (f *fakeApp) Latest(context.Context) health.Report                       { return f.report }
func (f *fakeApp) Stats() engine.PoolStats                                    { return f.pool }

func (f *fakeApp) Known(context.Context) health.Report {
	if f.known != nil {
		return f.known()
	}
	return f.report
}

// fakeSamples are the numbers of the nodes of a fakeApp. All had the same day.
type fakeSamples struct{ *fakeApp }

func (f fakeSamples) Day(context.Context, string) (samples.Day, error) { return f.day, nil }
func (f fakeSamples) Latest(context.Context) (map[string]samples.Sample, error) {
	return f.latest, nil
}

func (f *fakeApp) Runners(context.Context) []remote.RunnerInfo {
	if f.connected != nil {
		return f.connected()
	}
	return slices.Clone(f.machines)
}

type readSeekCloser struct{ io.ReadSeeker }

func (readSeekCloser) Close() error { return nil }

// clock is the time of the records of tests.
var clock = time.Date(2026, 11, 23, 9, 30, 0, 0, time.UTC)

// execID is the id of the n-th record.
func execID(n int) string { return fmt.Sprintf("019aa4b6-7c1e-7d35-9a52-%012d", n) }

// record returns a record of an exec that succeeded.
func record(n int) audit.Record {
	at := clock.Add(time.Duration(n) * time.Second)
	return audit.Record{
		ExecID: execID(n), Kind: audit.KindExec, ProjectID: "demo", UserID: "ada", Cmd: "bash", Args: []string{"-lc", "echo hi"}, Cwd: "/workspace/work",
		Status: audit.Succeeded, ExitCode: new(0), CreatedAt: at, StartedAt: at, EndedAt: at.Add(time.Second), DurationMS: 1000,
		NodeID: "node", Backend: "docker", RequestedBy: "t", StdoutBytes: 3, ManifestDigest: "sha256:x",
	}
}

// fill adds n records to the application.
func (f *fakeApp) fill(n int) *fakeApp {
	for i := range n {
		f.records = append(f.records, record(n-i))
	}
	f.events = []audit.Event{{Kind: audit.EventCreated, At: clock}, {Kind: audit.EventEnded, At: clock.Add(time.Second)}}
	return f
}

// fakeSessions has sessions in memory.
type fakeSessions struct {
	app     *fakeApp
	mu      sync.Mutex
	byToken map[string]tokens.Token // by the token's secret
	open    map[string]tokens.Token // by the session's secret
	down    bool                    // the database does not answer
	failed  int                     // sign-ins of people that identify has refused
}

func (f *fakeSessions) Begin(_ context.Context, secret, _ string) (string, tokens.Token, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return "", tokens.Token{}, fault.New(fault.DatabaseUnavailable, "the database does not answer")
	}
	t, ok := f.byToken[secret]
	if !ok {
		return "", tokens.Token{}, fault.New(fault.Unauthenticated, "the token is not known")
	}
	session := sessions.Secret()
	f.open[session] = t
	return session, t, nil
}

func (f *fakeSessions) Caller(_ context.Context, session string) (tokens.Token, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, ok := f.open[session]
	if f.down {
		return tokens.Token{}, fault.New(fault.DatabaseUnavailable, "the database does not answer")
	}
	if !ok {
		return tokens.Token{}, fault.New(fault.Unauthenticated, "the session has ended")
	}
	return t, nil
}

func (f *fakeSessions) End(_ context.Context, session string, _ tokens.Token) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, session)
	return nil
}
