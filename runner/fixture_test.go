package runner_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/audit"
	"secbox/engine"
	"secbox/engine/memengine"
	"secbox/fault"
	"secbox/internal/admission"
	"secbox/pathadapter"
	"secbox/policy"
	"secbox/runner"
	"secbox/runner/diskwatch"
	"secbox/runner/jobs"
	"secbox/store/sqlite"
	"secbox/store/storetest/sqlitetest"
	"secbox/workspace"
	"secbox/workspace/diskspace"
)

// fixture is a runner on an engine without containers, with its own workspace and audit log.
//
// Scripts have two more commands: hold tells f.held the exec's id, then waits until the test sends
// to f.release or the job must die; break replaces the exec's artifacts directory by a file.
type fixture struct {
	*runner.Runner
	t         *testing.T
	dir       string
	cfg       runner.Config
	options   memengine.Options
	engine    *memengine.Engine
	images    *memengine.Images
	store     *store
	jobs      jobs.Store
	log       *audit.Log
	workspace *workspace.Workspace
	disk      *disk
	ended     *endings
	held      chan string
	release   chan struct{}
}

// setUp makes a fixture; change, if not nil, adapts it before the runner is made.
func setUp(t *testing.T, change ...func(*fixture)) *fixture {
	t.Helper()
	f := &fixture{
		t: t, dir: t.TempDir(), images: &memengine.Images{}, ended: &endings{rows: map[string]int{}},
		held: make(chan string, 100), release: make(chan struct{}),
	}
	f.options.Run = memengine.Shell(f.commands())
	owner := -1
	if os.Geteuid() == 0 {
		owner = 1000
	}
	adapter, err := pathadapter.New(pathadapter.Config{Root: filepath.Join(f.dir, "workspace")})
	must(t, err)
	f.workspace, err = workspace.Open(workspace.Options{Adapter: adapter, UID: owner, GID: owner})
	must(t, err)
	t.Cleanup(func() { must(t, f.workspace.Close()) })
	db, err := sqlite.Open(t.Context(), sqlitetest.Migrated(t, filepath.Join(f.dir, "audit.db")))
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	f.store, f.jobs = &store{Store: db.Audit()}, db.Jobs()
	f.disk = &disk{bytes: 1 << 40}
	resolver, err := policy.New(policy.Config{SettingsDigest: "sha256:s", Images: []string{"other:1"}})
	must(t, err)
	quiet := slog.New(slog.DiscardHandler)
	f.cfg = runner.Config{
		Images: f.images, Policy: resolver, Workspace: f.workspace, Host: func() policy.Host { return policy.Host{} },
		StateDir: filepath.Join(f.dir, "state"), NodeID: "n", User: "1000:1000",
		Disk:  diskwatch.New(f.disk, diskwatch.Limits{FreeMinBytes: 1 << 20}, quiet),
		Slots: 4, Queue: 8, Now: time.Now, NewID: func() string { return uuid.Must(uuid.NewV7()).String() }, Logger: quiet, Observer: f.ended,
	}
	for _, c := range change {
		if c != nil {
			c(f)
		}
	}
	f.boot()
	t.Cleanup(func() { f.shutDown(time.Minute) })
	return f
}

// boot makes the runner, its engine and its log, as a process does when it starts.
func (f *fixture) boot() {
	f.t.Helper()
	var err error
	f.log, err = audit.NewLog(audit.Config{Store: f.store, Dir: filepath.Join(f.dir, "spool"), NodeID: "n", Logger: f.cfg.Logger})
	must(f.t, err)
	f.engine = memengine.New(f.options)
	f.cfg.Log, f.cfg.Engine = f.log, f.engine
	f.Runner, err = runner.New(f.cfg)
	must(f.t, err)
}

// shutDown ends the runner and its engine, and checks that they have left nothing.
func (f *fixture) shutDown(timeout time.Duration) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	f.Drain(ctx)
	must(f.t, f.engine.Close())
	if n := f.engine.Open(); n != 0 {
		f.t.Errorf("%d slots were neither run nor discarded", n)
	}
	if running, waiting := f.Load(); running != 0 || waiting != 0 {
		f.t.Errorf("%d execs run and %d wait after the end", running, waiting)
	}
	if left, err := os.ReadDir(filepath.Join(f.cfg.StateDir, "captures")); err != nil || len(left) > 0 {
		f.t.Errorf("captures left: %v %v", left, err)
	}
}

func (f *fixture) commands() map[string]memengine.Command {
	return map[string]memengine.Command{
		"hold": func(ctx context.Context, p *memengine.Process) (int, *engine.Exit, error) {
			f.held <- p.ExecID
			select {
			case <-f.release:
				return 0, nil, nil
			case <-ctx.Done():
				died := memengine.Died()
				return 0, &died, nil
			}
		},
		"break": func(_ context.Context, p *memengine.Process) (int, *engine.Exit, error) {
			dir, _ := p.Path("/workspace/artifacts/x", true)
			dir = filepath.Dir(dir)
			return 0, nil, errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600))
		},
	}
}

// run makes the engine run every job by f instead of as a script.
func run(f memengine.Func) func(*fixture) {
	return func(x *fixture) { x.options.Run = f }
}

// exits makes every job end like this.
func exits(exit engine.Exit) func(*fixture) {
	return run(func(context.Context, *memengine.Container) (engine.Exit, error) { return exit, nil })
}

// shell is a request for a script.
func shell(project, script string, change ...func(*runner.Request)) runner.Request {
	req := runner.Request{
		ProjectID: project, Command: runner.Command{Kind: runner.KindShell, Name: "bash", Args: []string{"-lc", script}}, RequestedBy: "token-1",
	}
	for _, c := range change {
		c(&req)
	}
	req.Digest = script
	return req
}

func under(key string) func(*runner.Request) {
	return func(r *runner.Request) { r.IdempotencyKey = key }
}

func input(path, content string) func(*runner.Request) {
	return func(r *runner.Request) {
		r.Inputs = append(r.Inputs, runner.Input{Path: path, Content: []byte(content)})
	}
}

func by(token string) func(*runner.Request) {
	return func(r *runner.Request) { r.RequestedBy = token }
}

// pending is a request that was sent.
type pending struct {
	t       *testing.T
	request runner.Request
	opened  chan string // gets the exec's id when its row is open
	done    chan struct{}
	result  runner.Result
	err     error
}

// post sends a request in the background.
func (f *fixture) post(req runner.Request) *pending {
	p := &pending{t: f.t, request: req, opened: make(chan string, 1), done: make(chan struct{})}
	req.OnOpen = func(execID string) { p.opened <- execID }
	go func() {
		defer close(p.done)
		p.result, p.err = f.Run(context.Background(), req)
	}()
	return p
}

// id waits until the row is open.
func (p *pending) id() string {
	p.t.Helper()
	select {
	case id := <-p.opened:
		p.opened <- id
		return id
	case <-p.done:
	}
	select {
	case id := <-p.opened:
		p.opened <- id
		return id
	default:
		p.t.Fatalf("ended before its row was open: %v", p.err)
		return ""
	}
}

// wants waits for the result.
func (p *pending) wants(status audit.Status, reason audit.Reason) runner.Result {
	p.t.Helper()
	<-p.done
	if p.err != nil || p.result.Record.Status != status || p.result.Record.ErrorReason != reason {
		p.t.Fatalf("%s %s %q, %v; want %s %s", p.result.Record.Status, p.result.Record.ErrorReason, p.result.Record.Detail, p.err, status, reason)
	}
	return p.result
}

// exec runs a request to its result.
func (f *fixture) exec(req runner.Request) runner.Result {
	f.t.Helper()
	result, err := f.Run(f.t.Context(), req)
	if err != nil {
		f.t.Fatal(err)
	}
	return result
}

// try runs a request and returns its error.
func (f *fixture) try(req runner.Request) error {
	_, err := f.Run(f.t.Context(), req)
	return err
}

// refused wants an error and returns it.
func (f *fixture) refused(code fault.Code, req runner.Request) *fault.Error {
	f.t.Helper()
	result, err := f.Run(f.t.Context(), req)
	if !fault.Is(err, code) {
		f.t.Fatalf("%+v, %v; want %s", result.Record, err, code)
	}
	return fault.From(err)
}

// row is the exec's row in the database.
func (f *fixture) row(execID string) audit.Record {
	f.t.Helper()
	r, err := f.store.Get(context.Background(), execID)
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// rows is the number of rows.
func (f *fixture) rows() int {
	f.t.Helper()
	rows, _, err := f.log.List(f.t.Context(), audit.Filter{}, nil, 1000)
	must(f.t, err)
	return len(rows)
}

func (f *fixture) path(elem ...string) string {
	return filepath.Join(append([]string{f.dir, "workspace", "projects"}, elem...)...)
}

// artifactDirs lists the project's directories of artifacts.
func (f *fixture) artifactDirs(project string) (names []string) {
	f.t.Helper()
	entries, err := os.ReadDir(f.path(project, "artifacts"))
	must(f.t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// published reads a file that core-api has added to what an exec left.
func (f *fixture) published(r audit.Record, name string) string {
	f.t.Helper()
	file, _, err := f.OpenPublished(f.t.Context(), r, name)
	must(f.t, err)
	defer file.Close()
	content, err := io.ReadAll(file)
	must(f.t, err)
	return string(content)
}

// store is a database that fails when it is told to.
type store struct {
	audit.Store
	mu          sync.Mutex
	open, close error

	onOpen, onStart func() // run before Open and Start; may be nil
}

func (s *store) hook(onOpen, onStart func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onOpen, s.onStart = onOpen, onStart
}

func (s *store) fail(open, close error) { //nolint:revive,predeclared // named for the methods
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open, s.close = open, close
}

func (s *store) Open(ctx context.Context, r audit.Record) (*audit.Record, error) {
	s.mu.Lock()
	err, on := s.open, s.onOpen
	s.mu.Unlock()
	if on != nil {
		on()
	}
	if err != nil {
		return nil, err
	}
	return s.Store.Open(ctx, r)
}

func (s *store) Start(ctx context.Context, r audit.Record) (bool, error) {
	s.mu.Lock()
	on := s.onStart
	s.mu.Unlock()
	if on != nil {
		on()
	}
	return s.Store.Start(ctx, r)
}

func (s *store) Close(ctx context.Context, r audit.Record) (audit.Status, error) {
	s.mu.Lock()
	err := s.close
	s.mu.Unlock()
	if err != nil {
		return "", err
	}
	return s.Store.Close(ctx, r)
}

// disk has as much room as the test says.
type disk struct {
	mu    sync.Mutex
	bytes uint64
}

func (d *disk) Free() (diskspace.Space, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return diskspace.Space{Bytes: d.bytes, Inodes: 1 << 30}, nil
}

func (d *disk) set(bytes uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bytes = bytes
}

// endings is an observer that counts calls by exec id.
type endings struct {
	mu   sync.Mutex
	rows map[string]int
}

func (e *endings) Ended(r audit.Record) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rows[r.ExecID]++
}

func (e *endings) of(execID string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rows[execID]
}

func slots(n, queue int) func(*fixture) {
	return func(f *fixture) { f.cfg.Slots, f.cfg.Queue = n, queue }
}

func each(share admission.Share) func(*fixture) {
	return func(f *fixture) { f.cfg.Each = share }
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
