package record_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/audit"
	"secbox/audit/hmackey"
	"secbox/fault"
	"secbox/policy"
	"secbox/runner/lifecycle"
	"secbox/sandbox"
	"secbox/sandbox/none"
	"secbox/sandbox/process"
	"secbox/sandbox/record"
	"secbox/sandbox/sandboxtest"
	"secbox/store/postgres"
	"secbox/store/sqlite"
	"secbox/store/storetest/pgtest"
	"secbox/store/storetest/sqlitetest"
)

var cluster *pgtest.Cluster

func TestMain(m *testing.M) {
	process.Main()
	os.Exit(pgtest.Main(m, &cluster))
}

// fixture is a recorder over the sandbox none, with a real audit log behind it.
type fixture struct {
	*record.Recorder
	t     *testing.T
	log   *audit.Log
	dir   string
	tools sandbox.ReadOnlyRoot
	ended *endings
}

// endings is an observer that keeps all records.
type endings struct {
	mu  sync.Mutex
	all []audit.Record
}

func (e *endings) Ended(r audit.Record) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, r)
}

// onSQLite and onPostgres make a database for the test.
func onSQLite(t *testing.T) audit.Store {
	db, err := sqlite.Open(t.Context(), sqlitetest.Migrated(t, filepath.Join(t.TempDir(), "x.db")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db.Audit()
}

func onPostgres(t *testing.T) audit.Store {
	db, err := postgres.Open(t.Context(), cluster.Migrated(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db.Audit()
}

// setUp makes a fixture; change adapts its configuration.
func setUp(t *testing.T, store audit.Store, change ...func(*record.Config)) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: t.TempDir(), tools: sandbox.ReadOnlyRoot{Path: "/opt/tools", Dir: t.TempDir()}, ended: &endings{}}
	var err error
	if f.log, err = audit.NewLog(audit.Config{
		Store: store, Dir: filepath.Join(t.TempDir(), "spool"), NodeID: "n",
		Logger: slog.New(slog.DiscardHandler),
	}); err != nil {
		t.Fatal(err)
	}
	resolver, err := policy.New(policy.Config{SettingsDigest: "sha256:s"})
	if err != nil {
		t.Fatal(err)
	}
	cfg := record.Config{
		Sandbox: none.New(none.Config{
			Directories: sandboxtest.Directory(f.dir), ReadOnly: []sandbox.ReadOnlyRoot{f.tools},
			Environ: slices.Concat(os.Environ(), sandboxtest.Planted),
		}),
		Log: f.log, Policy: resolver, Host: func() policy.Host { return policy.Host{} }, NodeID: "n", Key: hmackey.New([]byte("key")), Now: time.Now,
		NewID: func() string { return uuid.Must(uuid.NewV7()).String() }, Logger: slog.New(slog.DiscardHandler), Observer: f.ended,
	}
	for _, c := range change {
		c(&cfg)
	}
	f.Recorder = record.New(cfg)
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

var user = sandbox.User{AgentID: "agent", ID: "user"}

// only is the only row.
func (f *fixture) only() audit.Record {
	f.t.Helper()
	rows, _, err := f.log.List(f.t.Context(), audit.Filter{}, nil, 10)
	if err != nil || len(rows) != 1 {
		f.t.Fatalf("%d rows, %v", len(rows), err)
	}
	return rows[0]
}

// kinds are the events of an exec.
func (f *fixture) kinds(execID string) []audit.EventKind {
	f.t.Helper()
	events, err := f.log.Events(f.t.Context(), execID)
	if err != nil {
		f.t.Fatal(err)
	}
	var kinds []audit.EventKind
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// TestRecorderIsASandbox: a Recorder keeps all promises of a sandbox.
func TestRecorderIsASandbox(t *testing.T) {
	t.Parallel()
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.Fixture {
		f := setUp(t, onSQLite(t), func(c *record.Config) { c.MaxPerUser = 1024 })
		return sandboxtest.Fixture{Sandbox: f.Recorder, User: user, Dir: f.dir, ReadOnly: f.tools, WorkspaceElsewhere: true, Decorator: true}
	})
}

// TestRowOfACommand compares each field of a row with request and result, on both databases.
func TestRowOfACommand(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func(*testing.T) audit.Store{"sqlite": onSQLite, "postgres": onPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t, store(t))
			ctx := sandbox.WithRequest(t.Context(), sandbox.Request{RequestedBy: "token", TaskID: "task", ConversationID: "talk"})
			res, err := f.Exec(ctx, sandbox.ExecSpec{
				Command: `cat; printf '%s' "$K" >&2; exit 3`, Shell: true, Env: []string{"K=hunter2", "B=x"}, Stdin: "some-stdin", User: user,
				Timeout: 90 * time.Minute, // above the ceiling
			})
			if err != nil || res.Stdout != "some-stdin" || res.Stderr != "hunter2" || res.ExitCode != 3 || res.ExecID == "" {
				t.Fatalf("%+v, %v", res, err)
			}
			row := f.only()
			shell, _ := f.GetShell(t.Context(), user)
			code := 3
			want := row
			want.ExecID, want.ProjectID, want.AgentID, want.UserID, want.TaskID, want.ConversationID = res.ExecID, "agent~user", "agent", "user", "task", "talk"
			want.Cmd, want.Args, want.Cwd, want.EnvKeys = shell, []string{`cat; printf '%s' "$K" >&2; exit 3`}, sandbox.Root, []string{"B", "K"}
			key := hmackey.New([]byte("key"))
			want.EnvHMACs = []string{key.Variable(row.HMACSalt, "B", "x"), key.Variable(row.HMACSalt, "K", "hunter2")}
			want.StdinHMAC, want.StdinBytes = key.Stdin(row.HMACSalt, []byte("some-stdin")), 10
			want.Backend, want.Image, want.ImageID, want.NodeID, want.RequestedBy, want.SettingsDigest = sandbox.None, "", "", "n", "token", "sha256:s"
			want.Status, want.ErrorReason, want.Detail, want.ExitCode = audit.Failed, audit.NonzeroExit, "exit code 3", &code
			want.StdoutBytes, want.StderrBytes, want.StdoutTruncated, want.StderrTruncated = 10, 7, false, false
			if !reflect.DeepEqual(row, want) {
				t.Errorf("row\n%+v\nwant\n%+v", row, want)
			}
			if hmackey.KeyOf(row.RequestDigest) == "" || row.EndedAt.Before(row.StartedAt) || row.StartedAt.IsZero() ||
				row.DurationMS != row.EndedAt.Sub(row.StartedAt).Milliseconds() {
				t.Errorf("digest %q, from %v to %v, %d ms", row.RequestDigest, row.StartedAt, row.EndedAt, row.DurationMS)
			}
			events, err := f.log.Events(t.Context(), row.ExecID)
			if err != nil || len(events) != 3 || bytes.Contains(events[1].Data, []byte("started_at")) || !bytes.Contains(events[2].Data, []byte("started_at")) {
				t.Errorf("a time is told before it is known for good: %+v, %v", events, err)
			}
			snapshot, err := policy.ParseSnapshot(row.PolicySnapshot)
			if err != nil || snapshot.Values.TimeoutMS != 30*60*1000 {
				t.Errorf("the policy gave it %d ms, %v", snapshot.Values.TimeoutMS, err)
			}
			if len(snapshot.Fields) != 3 || !slices.Contains(snapshot.NotEnforced, "memory_mb") || !slices.Contains(snapshot.NotEnforced, policy.FieldImage) {
				t.Errorf("without a container it is said to have %v, and not %v", snapshot.Fields, snapshot.NotEnforced)
			}
			if got := f.kinds(row.ExecID); !slices.Equal(got, []audit.EventKind{audit.EventCreated, audit.EventStarted, audit.EventEnded}) {
				t.Errorf("events %v", got)
			}
			events, _ = f.log.Events(t.Context(), row.ExecID)
			everything, _ := json.Marshal([]any{row, events})
			for _, secret := range []string{"hunter2", "some-stdin"} {
				if bytes.Contains(everything, []byte(secret)) {
					t.Errorf("%q is on record", secret)
				}
			}
			if len(f.ended.all) != 1 || f.ended.all[0].ExecID != row.ExecID {
				t.Errorf("observed %+v", f.ended.all)
			}
		})
	}
}

// scripted is a sandbox whose command ends as the test wants.
type scripted struct {
	sandbox.Backend
	location sandbox.Location
	locate   error
	result   *sandbox.ExecResult
	err      error
	ran      bool
	image    string // which the command was to run in
}

func (s *scripted) Locate(context.Context, sandbox.User) (sandbox.Location, error) {
	return s.location, s.locate
}

func (s *scripted) ExecTo(_ context.Context, spec sandbox.ExecSpec, _, _ io.Writer) (*sandbox.ExecResult, error) {
	s.ran, s.image = true, spec.ImageID
	return s.result, s.err
}

// TestVerdicts: each end of a command, in its row and for its caller.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	path := func(err error) error { return &fs.PathError{Op: "exec", Path: "/workspace/x", Err: err} }
	for name, c := range map[string]struct {
		s      scripted
		status audit.Status
		reason audit.Reason
		began  bool
	}{
		"well":       {scripted{result: &sandbox.ExecResult{}}, audit.Succeeded, "", true},
		"time is up": {scripted{result: &sandbox.ExecResult{ExitCode: -1, TimedOut: true}}, audit.Timeout, audit.ReasonTimeout, true},
		"ended after SIGTERM": {
			scripted{result: &sandbox.ExecResult{ExitCode: -1, TimedOut: true, Ended: new(3)}},
			audit.Timeout, audit.ReasonTimeout,
			true,
		},
		"for memory":                {scripted{result: &sandbox.ExecResult{ExitCode: 137, OOMKilled: true}}, audit.OOMKilled, audit.OOM, true},
		"for the disk":              {scripted{result: &sandbox.ExecResult{ExitCode: 137, DiskLimit: true}}, audit.Failed, audit.DiskLimit, true},
		"outcome unknown":           {scripted{err: fault.New(fault.OutcomeUnknown, "gone")}, audit.Lost, audit.OutcomeUnknown, true},
		"offline before":            {scripted{locate: fault.New(fault.RunnerOffline, "off")}, audit.Errored, audit.RunnerOffline, false},
		"offline just then":         {scripted{err: fault.New(fault.RunnerOffline, "off")}, audit.Errored, audit.RunnerOffline, false},
		"the machine refuses":       {scripted{err: fault.New(fault.RunnerRefused, "no")}, audit.Errored, audit.RunnerRefused, false},
		"no engine":                 {scripted{locate: fault.New(fault.EngineUnavailable, "no")}, audit.Errored, audit.EngineUnavailable, false},
		"no image":                  {scripted{locate: fault.New(fault.ImageMissing, "no")}, audit.Errored, audit.ImageMissing, false},
		"too much to do":            {scripted{err: fault.New(fault.SandboxBusy, "no")}, audit.Errored, audit.StartFailed, false},
		"a bad variable":            {scripted{err: fault.BadField("env", "no")}, audit.Rejected, audit.InputRefused, false},
		"no directory":              {scripted{err: path(fs.ErrNotExist)}, audit.Rejected, audit.InputRefused, false},
		"a directory outside":       {scripted{err: path(fs.ErrPermission)}, audit.Rejected, audit.InputRefused, false},
		"a stranger's error":        {scripted{err: errors.New("password=hunter2")}, audit.Errored, audit.InternalError, true},
		"the user's machine failed": {scripted{err: fault.New(fault.UpstreamFailed, "x")}, audit.Errored, audit.InternalError, true},
		"moved to another backend":  {scripted{err: fault.New(fault.ShuttingDown, "the sandbox was closed")}, audit.Canceled, audit.ReasonCanceled, true},
		"elsewhere before":          {scripted{locate: fault.New(fault.ShuttingDown, "the sandbox was closed")}, audit.Canceled, audit.ReasonCanceled, false},
		"a backend switched off":    {scripted{locate: fault.New(fault.Unsupported, "not switched on")}, audit.Rejected, audit.InputRefused, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.s.location = sandbox.Location{Backend: sandbox.Remote, User: laptop}
			f := setUp(t, onSQLite(t), func(cfg *record.Config) { c.s.Backend, cfg.Sandbox = cfg.Sandbox, &c.s })
			res, err := f.Exec(t.Context(), sandbox.ExecSpec{Command: "true", User: user})
			row := f.only()
			if row.Status != c.status || row.ErrorReason != c.reason || row.Backend != sandbox.Remote || row.Runner != "laptop" ||
				row.StartedAt.IsZero() == c.began || row.EndedAt.IsZero() {
				t.Errorf("row %+v", row)
			}
			if c.s.result != nil && c.s.result.Ended != nil {
				if row.ExitCode == nil || *row.ExitCode != 3 || !strings.HasPrefix(row.Detail, "ended after its SIGTERM, before timeout_ms=") {
					t.Errorf("a command that ended by itself has the exit code %v and the detail %q", row.ExitCode, row.Detail)
				}
			} else if c.s.result != nil && c.s.result.TimedOut && (row.ExitCode == nil || *row.ExitCode != 137) {
				t.Errorf("a killed command has the exit code %v", row.ExitCode)
			}
			if strings.Contains(row.Detail, "hunter2") {
				t.Errorf("the row shows a cause: %q", row.Detail)
			}
			failed := c.s.err
			if c.s.locate != nil {
				failed = c.s.locate
			}
			switch {
			case failed == nil && (err != nil || res.ExecID != row.ExecID || res.Runner != "laptop"):
				t.Errorf("%+v, %v", res, err)
			case failed != nil && (res != nil || fault.CodeOf(err) != fault.CodeOf(failed)):
				t.Errorf("%+v, %v", res, err)
			}
			for _, is := range []error{fs.ErrNotExist, fs.ErrPermission} {
				if errors.Is(failed, is) != errors.Is(err, is) {
					t.Errorf("%v is lost in %v", is, err)
				}
			}
			var e *fault.Error
			if errors.As(err, &e) && e.ExecID != row.ExecID {
				t.Errorf("the error does not name its row: %+v", e)
			}
			if len(f.ended.all) != 1 {
				t.Errorf("observed %d", len(f.ended.all))
			}
		})
	}
}

// unknowing is a router without its database.
type unknowing struct{ *scripted }

func (unknowing) Name() string { return sandbox.RouterName }

// TestUnknownBackendInRow: the row of a command has no backend if the user's backend was unknown.
func TestUnknownBackendInRow(t *testing.T) {
	t.Parallel()
	s := &scripted{locate: fault.New(fault.DatabaseUnavailable, "down")}
	f := setUp(t, onSQLite(t), func(cfg *record.Config) { s.Backend, cfg.Sandbox = cfg.Sandbox, unknowing{s} })
	if _, err := f.Exec(t.Context(), sandbox.ExecSpec{Command: "true", User: user}); !fault.Is(err, fault.DatabaseUnavailable) {
		t.Error(err)
	}
	if row := f.only(); row.Backend != "" || row.Status != audit.Errored {
		t.Errorf("row %+v", row)
	}
}

// starting is a sandbox whose container never starts.
type starting struct {
	sandbox.Backend
	began chan struct{}
}

func (s starting) Locate(ctx context.Context, user sandbox.User) (sandbox.Location, error) {
	close(s.began)
	<-ctx.Done()
	return sandbox.Location{Backend: sandbox.Docker, User: user}, ctx.Err()
}

// TestShutdownWhileContainerStarts: the caller gets the error of a node that shuts down, as for a
// running command.
func TestShutdownWhileContainerStarts(t *testing.T) {
	t.Parallel()
	s := starting{began: make(chan struct{})}
	f := setUp(t, onSQLite(t), func(cfg *record.Config) { s.Backend, cfg.Sandbox = cfg.Sandbox, &s })
	answered := make(chan error, 1)
	go func() {
		_, err := f.Exec(t.Context(), sandbox.ExecSpec{Command: "true", User: user})
		answered <- err
	}()
	<-s.began
	now, cancel := context.WithCancel(t.Context())
	cancel()
	f.Drain(now)
	row := f.only()
	if row.Status != audit.Canceled || row.ErrorReason != audit.ShuttingDown || !row.StartedAt.IsZero() {
		t.Errorf("row %+v", row)
	}
	var e *fault.Error
	if err := <-answered; !errors.As(err, &e) || e.Code != fault.ShuttingDown || e.ExecID != row.ExecID {
		t.Errorf("%v", err)
	}
}

// TestImageOnRecord: the row has the image that Locate returned, and the command must run in it.
func TestImageOnRecord(t *testing.T) {
	t.Parallel()
	s := &scripted{location: sandbox.Location{Backend: sandbox.Docker, User: user, Image: "image:latest", ImageID: "sha256:1"}, result: &sandbox.ExecResult{}}
	f := setUp(t, onSQLite(t), func(cfg *record.Config) { s.Backend, cfg.Sandbox = cfg.Sandbox, s })
	if _, err := f.Exec(t.Context(), sandbox.ExecSpec{Command: "true", User: user}); err != nil || f.only().ImageID != "sha256:1" || s.image != "sha256:1" {
		t.Errorf("%v, row %+v, was to run in %q", err, f.only(), s.image)
	}
}

// refusing is a log that opens no row.
type refusing struct{ lifecycle.Log }

func (refusing) Open(context.Context, audit.Record) (*audit.Record, error) {
	return nil, fault.New(fault.DatabaseUnavailable, "down")
}

func TestNoRowNoRun(t *testing.T) {
	t.Parallel()
	s := &scripted{result: &sandbox.ExecResult{}}
	f := setUp(t, onSQLite(t), func(cfg *record.Config) { s.Backend, cfg.Sandbox, cfg.Log = cfg.Sandbox, s, refusing{cfg.Log} })
	if _, err := f.Exec(t.Context(), sandbox.ExecSpec{Command: "true", User: user}); !fault.Is(err, fault.DatabaseUnavailable) || s.ran {
		t.Errorf("%v, ran %v", err, s.ran)
	}
}

var laptop = sandbox.User{AgentID: "agent", ID: "user", Runner: "laptop"}

// vanished is a machine that disappears while it runs a command.
func vanished() *scripted {
	return &scripted{location: sandbox.Location{Backend: sandbox.Remote, User: laptop}, err: fault.New(fault.OutcomeUnknown, "gone")}
}

// loses runs a command on such a machine, and returns its row.
func (f *fixture) loses() audit.Record {
	f.t.Helper()
	if _, err := f.Exec(f.t.Context(), sandbox.ExecSpec{Command: "true", User: user}); !fault.Is(err, fault.OutcomeUnknown) {
		f.t.Fatal(err)
	}
	return f.only()
}

// TestLateCorrectsOwnRowsOnly: lost rows of the same user and machine, on both databases.
func TestLateCorrectsOwnRowsOnly(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func(*testing.T) audit.Store{"sqlite": onSQLite, "postgres": onPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := vanished()
			f := setUp(t, store(t), func(cfg *record.Config) { s.Backend, cfg.Sandbox = cfg.Sandbox, s })
			lost := f.loses()
			result := sandbox.ExecResult{ExitCode: 4, StdoutBytes: 5}
			for _, stranger := range []sandbox.User{{ID: "other", Runner: "laptop"}, {ID: "user", Runner: "desk"}} {
				if err := f.Late(t.Context(), stranger, lost.ExecID, result); err != nil || f.only().Status != audit.Lost {
					t.Errorf("from %+v: %v, %s", stranger, err, f.only().Status)
				}
			}
			if err := f.Late(t.Context(), laptop, "0195-unknown", result); !fault.Is(err, fault.UnknownExec) {
				t.Errorf("of no row: %v", err)
			}
			for range 2 { // the second repeats it; a different result is ignored
				if err := f.Late(t.Context(), laptop, lost.ExecID, result); err != nil {
					t.Fatal(err)
				}
				result.ExitCode = 0
			}
			row := f.only()
			if row.Status != audit.Failed || row.ExitCode == nil || *row.ExitCode != 4 || row.StdoutBytes != 5 || row.ErrorReason != audit.NonzeroExit {
				t.Errorf("corrected to %+v", row)
			}
			if got := f.kinds(lost.ExecID); !slices.Equal(got,
				[]audit.EventKind{audit.EventCreated, audit.EventStarted, audit.EventEnded, audit.EventCorrected}) {
				t.Errorf("events %v", got)
			}
		})
	}
}

// TestLateOfKilledCommand: a machine kills a command whose caller has left, which is not a failure
// of the command.
func TestLateOfKilledCommand(t *testing.T) {
	t.Parallel()
	s := vanished()
	f := setUp(t, onSQLite(t), func(cfg *record.Config) { s.Backend, cfg.Sandbox = cfg.Sandbox, s })
	lost := f.loses()
	result := sandbox.ExecResult{ExitCode: 137, Canceled: true, Detail: "the command was killed: its caller left", StdoutBytes: 6}
	if err := f.Late(t.Context(), laptop, lost.ExecID, result); err != nil {
		t.Fatal(err)
	}
	row := f.only()
	if row.Status != audit.Canceled || row.ErrorReason != audit.ReasonCanceled || row.ExitCode == nil || *row.ExitCode != 137 || row.Detail != result.Detail ||
		row.StdoutBytes != 6 {
		t.Errorf("corrected to %+v", row)
	}
}

// waitFor starts a command, waits until it runs, and returns a channel for its end.
func (f *fixture) waitFor(ctx context.Context, id string) <-chan ended {
	f.t.Helper()
	out := make(chan ended, 1)
	go func() {
		res, err := f.Exec(ctx, sandbox.ExecSpec{Command: "echo begun; : >begun; sleep 1000", Shell: true, User: user, ExecID: id, Timeout: 10 * time.Minute})
		out <- ended{res, err}
	}()
	for {
		if _, err := os.Stat(filepath.Join(f.dir, "begun")); err == nil {
			return out
		}
		select {
		case e := <-out:
			f.t.Fatalf("it ended before it began: %+v, %v", e.res, e.err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

type ended struct {
	res *sandbox.ExecResult
	err error
}

const execID = "0195aaaa-0000-7000-8000-000000000001"

func TestCancel(t *testing.T) {
	t.Parallel()
	f := setUp(t, onSQLite(t))
	end := f.waitFor(t.Context(), execID)
	if f.Running() != 1 || f.Cancel(t.Context(), "0195aaaa-0000-7000-8000-00000000ffff") {
		t.Errorf("%d run", f.Running())
	}
	if !f.Cancel(t.Context(), execID) {
		t.Fatal("it is not known")
	}
	got := <-end
	if got.err != nil || got.res.ExitCode != -1 || got.res.Stdout != "begun\n" || got.res.Detail != "canceled by request" || got.res.ExecID != execID {
		t.Errorf("%+v, %v", got.res, got.err)
	}
	if row := f.only(); row.Status != audit.Canceled || row.ErrorReason != audit.ReasonCanceled || row.ExitCode != nil || row.StdoutBytes != 6 {
		t.Errorf("row %+v", row)
	}
	if f.Cancel(t.Context(), execID) {
		t.Error("canceled twice")
	}
}

func TestCallerGivesUp(t *testing.T) {
	t.Parallel()
	f := setUp(t, onSQLite(t))
	ctx, cancel := context.WithCancel(t.Context())
	end := f.waitFor(ctx, execID)
	cancel()
	if got := <-end; !errors.Is(got.err, context.Canceled) {
		t.Errorf("%+v, %v", got.res, got.err)
	}
	if row := f.only(); row.Status != audit.Canceled || !strings.Contains(row.Detail, "gave up") {
		t.Errorf("row %+v", row)
	}
}

// TestDrain: running commands get time and are then killed; every row is closed before Drain
// returns.
func TestDrain(t *testing.T) {
	t.Parallel()
	f := setUp(t, onSQLite(t))
	end := f.waitFor(t.Context(), execID)
	ctx, stop := context.WithCancel(t.Context())
	drained := make(chan struct{})
	go func() {
		f.Drain(ctx)
		close(drained)
	}()
	for { // until Drain has begun
		_, err := f.Exec(t.Context(), sandbox.ExecSpec{Command: "true", User: sandbox.User{AgentID: "a", ID: "other"}})
		if fault.Is(err, fault.ShuttingDown) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Stat(t.Context(), sandbox.Root, user); err != nil {
		t.Errorf("files while draining: %v", err)
	}
	select {
	case <-drained:
		t.Fatal("drained while a command ran")
	case e := <-end:
		t.Fatalf("killed before its time was up: %+v, %v", e.res, e.err)
	default:
	}
	stop()
	<-drained
	row, err := f.log.Get(t.Context(), execID)
	if err != nil || row.Status != audit.Canceled || row.ErrorReason != audit.ShuttingDown {
		t.Errorf("row %+v, %v", row, err)
	}
	if got := <-end; !fault.Is(got.err, fault.ShuttingDown) || fault.From(got.err).ExecID != execID {
		t.Errorf("%+v, %v", got.res, got.err)
	}
	f.Drain(t.Context()) // again
}

// TestMaxPerUser: commands beyond a user's limit are refused without a row; another user's are not.
func TestMaxPerUser(t *testing.T) {
	t.Parallel()
	f := setUp(t, onSQLite(t), func(c *record.Config) { c.MaxPerUser, c.Max = 1, 2 })
	end := f.waitFor(t.Context(), execID)
	_, err := f.Exec(t.Context(), sandbox.ExecSpec{Command: "true", User: user})
	if e := fault.From(err); e == nil || e.Code != fault.SandboxBusy || e.RetryAfter == 0 {
		t.Errorf("a second of the user: %v", err)
	}
	f.only()
	if _, err := f.Exec(t.Context(), sandbox.ExecSpec{Command: "true", User: sandbox.User{AgentID: "agent", ID: "other"}}); err != nil {
		t.Errorf("one of another user: %v", err)
	}
	f.Cancel(t.Context(), execID)
	<-end
	if _, err := f.Exec(t.Context(), sandbox.ExecSpec{Command: "true", User: user}); err != nil {
		t.Errorf("when it has ended: %v", err)
	}
}

// TestEnter: it is called with the location before a command begins, and leave after its row is
// closed.
func TestEnter(t *testing.T) {
	t.Parallel()
	var f *fixture
	var entered []sandbox.Location
	status := audit.Status("")
	refuse := error(nil)
	f = setUp(t, onSQLite(t), func(c *record.Config) {
		c.Enter = func(_ context.Context, l sandbox.Location) (func(), error) {
			entered = append(entered, l)
			return func() { status = f.only().Status }, refuse
		}
	})
	if _, err := f.Exec(t.Context(), sandbox.ExecSpec{Command: "true", User: user}); err != nil {
		t.Fatal(err)
	}
	if len(entered) != 1 || entered[0].Backend != sandbox.None || entered[0].User.ProjectID() != "agent~user" || status != audit.Succeeded {
		t.Errorf("entered %+v, left when the row was %q", entered, status)
	}
	refuse = fault.New(fault.DiskFull, "no room")
	if _, err := f.Exec(t.Context(), sandbox.ExecSpec{Command: "true", User: user}); !fault.Is(err, fault.DiskFull) {
		t.Errorf("refused: %v", err)
	}
	rows, _, err := f.log.List(t.Context(), audit.Filter{Statuses: []audit.Status{audit.Errored}}, nil, 10)
	if err != nil || len(rows) != 1 || rows[0].ErrorReason != audit.StartFailed {
		t.Errorf("rows %+v, %v", rows, err)
	}
}

// spooling is a log whose database closes no row.
type spooling struct{ lifecycle.Log }

func (spooling) Close(context.Context, *audit.Record) (bool, error) { return true, nil }

func TestLateFailsWhenSpooled(t *testing.T) {
	t.Parallel()
	s := vanished()
	log := &struct{ lifecycle.Log }{}
	f := setUp(t, onSQLite(t), func(cfg *record.Config) { s.Backend, cfg.Sandbox = cfg.Sandbox, s; log.Log, cfg.Log = cfg.Log, log })
	id, works := f.loses().ExecID, log.Log
	log.Log = spooling{works}
	if err := f.Late(t.Context(), laptop, id, sandbox.ExecResult{}); !fault.Is(err, fault.DatabaseUnavailable) {
		t.Errorf("while it cannot be kept: %v", err)
	}
	log.Log = works
	if err := f.Late(t.Context(), laptop, id, sandbox.ExecResult{}); err != nil || f.only().Status != audit.Succeeded {
		t.Errorf("told again: %v, %s", err, f.only().Status)
	}
}

// slowly is a log that closes a row on demand.
type slowly struct {
	lifecycle.Log
	begun, on chan struct{}
}

func (s slowly) Close(ctx context.Context, r *audit.Record) (bool, error) {
	if r.Status == audit.Lost {
		close(s.begun)
		<-s.on
	}
	return s.Log.Close(ctx, r)
}

// TestLateWaitsForRow: a machine may be back before its command's row is ended as lost.
func TestLateWaitsForRow(t *testing.T) {
	t.Parallel()
	s := vanished()
	log := slowly{begun: make(chan struct{}), on: make(chan struct{})}
	f := setUp(t, onSQLite(t), func(cfg *record.Config) { s.Backend, cfg.Sandbox, log.Log = cfg.Sandbox, s, cfg.Log; cfg.Log = log })
	var work sync.WaitGroup
	work.Go(func() {
		if _, err := f.Exec(t.Context(), sandbox.ExecSpec{Command: "true", User: user}); !fault.Is(err, fault.OutcomeUnknown) {
			t.Error(err)
		}
	})
	<-log.begun
	id := f.only().ExecID
	if err := f.Late(t.Context(), sandbox.User{ID: "user", Runner: "desk"}, id, sandbox.ExecResult{}); err != nil {
		t.Errorf("of another machine: %v", err)
	}
	work.Go(func() {
		if err := f.Late(t.Context(), laptop, id, sandbox.ExecResult{}); err != nil {
			t.Error(err)
		}
	})
	time.AfterFunc(50*time.Millisecond, func() { close(log.on) })
	work.Wait()
	if row := f.only(); row.Status != audit.Succeeded {
		t.Errorf("the row is %s", row.Status)
	}
}
