package runner_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"secbox/audit"
	"secbox/audit/hmackey"
	"secbox/engine"
	"secbox/engine/memengine"
	"secbox/fault"
	"secbox/internal/admission"
	"secbox/internal/traces"
	"secbox/policy"
	"secbox/runner"
	"secbox/runner/jobs"
)

// async lets a fixture run asynchronous execs in so many of its places, after dispatch.
func async(places int) func(*fixture) {
	return func(f *fixture) {
		f.cfg.Key = hmackey.New(bytes.Repeat([]byte{7}, 32))
		f.cfg.Async = runner.Async{
			Limits: audit.JobLimits{Waiting: 50, WaitingPerToken: 40, Bytes: 1 << 20, BytesPerToken: 1 << 20}, Places: places, Notifier: jobs.NewNotifier(),
			Skill: func(context.Context, string, string, string) (*runner.Skill, error) {
				return nil, fault.New(fault.UnknownSkill, "there is no skill")
			},
			Valid: func(context.Context, string) error { return nil },
		}
	}
}

// dispatch runs the jobs that wait until stop, or the end of the test.
func (f *fixture) dispatch() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	d := jobs.New(jobs.Config{
		Store: f.jobs, Runner: f.Runner, Node: "n", Notifier: f.cfg.Async.Notifier, Poll: time.Minute, Logger: f.cfg.Logger, Ended: f.log.SpooledIDs,
	})
	var done sync.WaitGroup
	done.Go(func() { d.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		done.Wait()
		d.Wait()
	})
	f.t.Cleanup(stop)
	return stop
}

// queue makes a request asynchronous.
func queue(q runner.Queueing) func(*runner.Request) {
	return func(r *runner.Request) { r.Queue = &q }
}

// submit queues a request and returns its id.
func (f *fixture) submit(req runner.Request) string {
	f.t.Helper()
	if req.Queue == nil {
		req.Queue = &runner.Queueing{}
	}
	result := f.exec(req)
	if result.Record.Status != audit.Queued || result.Replayed || !result.Record.Async {
		f.t.Fatalf("%+v", result.Record)
	}
	return result.Record.ExecID
}

// ends waits for the end of an exec.
func (f *fixture) ends(execID string) audit.Record {
	f.t.Helper()
	record, err := f.WaitEnd(f.t.Context(), f.row(execID))
	must(f.t, err)
	return record
}

// waitingJobs is the number of jobs in the database.
func (f *fixture) waitingJobs() int {
	f.t.Helper()
	n, _, err := f.jobs.Waiting(f.t.Context())
	must(f.t, err)
	return n
}

func TestAsync(t *testing.T) {
	t.Parallel()
	f := setUp(t, async(2))
	request := func(project string) runner.Request {
		return shell(project, "cat /workspace/inputs/in.txt; cat; echo $SECRET > /workspace/artifacts/out", input("in.txt", "from inputs\n"),
			func(r *runner.Request) {
				r.Command.Env = map[string]string{"SECRET": "from env"}
				r.Command.Stdin = []byte("from stdin\n")
				r.TaskID = "task"
			})
	}
	id := f.submit(request("async"))
	waiting := f.row(id)
	if waiting.NodeID != "" || waiting.Priority != audit.Normal || waiting.ImageID != "" || !waiting.StartedAt.IsZero() || f.waitingJobs() != 1 {
		t.Errorf("it waits as %+v", waiting)
	}
	f.dispatch()
	got := f.ends(id)
	if got.Status != audit.Succeeded || got.NodeID != "n" || f.ended.of(id) != 1 || f.published(got, "stdout.txt") != "from inputs\nfrom stdin\n" {
		t.Errorf("%+v, told %d times", got, f.ended.of(id))
	}
	files, err := f.Artifacts(t.Context(), got)
	must(t, err)
	defer files.Close()
	if list := files.List(); len(list.Items) != 1 || list.Items[0].Size != int64(len("from env\n")) {
		t.Errorf("artifacts %+v", list)
	}

	// The same request, not asynchronous, has the same record.
	same := f.exec(request("sync")).Record
	if !slices.Equal(same.EnvKeys, got.EnvKeys) || !slices.Equal(same.Inputs, got.Inputs) || !slices.Equal(same.Args, got.Args) ||
		same.StdinBytes != got.StdinBytes ||
		string(same.PolicySnapshot) != string(got.PolicySnapshot) || same.RequestDigest != got.RequestDigest || same.TaskID != got.TaskID ||
		same.Cwd != got.Cwd {
		t.Errorf("asynchronous %+v\nnot so %+v", got, same)
	}
}

// TestAsyncTrace: a job that has waited knows the span of its request.
func TestAsyncTrace(t *testing.T) {
	t.Parallel()
	var env map[string]string
	f := setUp(t, async(1), run(func(_ context.Context, c *memengine.Container) (engine.Exit, error) {
		env = c.Job.Env
		return engine.Exit{}, nil
	}))
	const span = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	id, _ := traces.Parse(span)
	res, err := f.Run(traces.With(t.Context(), id), shell("p", "true", queue(runner.Queueing{})))
	must(t, err)
	f.dispatch()
	if r := f.ends(res.Record.ExecID); r.TraceID != id.Trace || r.SpanID != id.Span || env[traces.Variable] != span {
		t.Errorf("%+v with %v", r, env)
	}
}

// TestAsyncRefusals: an asynchronous request is refused as any other.
func TestAsyncRefusals(t *testing.T) {
	t.Parallel()
	f := setUp(t, async(2))
	f.images.Fail("secbox-sandbox:latest", fault.New(fault.ImageMissing, "there is no image"))
	now := queue(runner.Queueing{})
	if e := f.refused(fault.ImageMissing, shell("p", "true", now)); e.ExecID == "" || f.row(e.ExecID).Status != audit.Errored {
		t.Errorf("%+v", e)
	}
	f.images.Fail("secbox-sandbox:latest", nil)
	f.refused(fault.InvalidRequest, shell("../p", "true", now))
	huge := int64(1 << 40)
	if e := f.refused(fault.PolicyDenied, shell("p", "true", now,
		func(r *runner.Request) { r.Overrides.MemoryMB = &huge })); f.row(e.ExecID).Status != audit.Rejected {
		t.Errorf("%+v", e)
	}
	f.disk.set(0)
	f.refused(fault.DiskFull, shell("p", "true", now))
	f.disk.set(1 << 40)
	if f.waitingJobs() != 0 {
		t.Errorf("%d jobs wait", f.waitingJobs())
	}
	for i := range 40 {
		f.submit(shell("p", fmt.Sprint("echo ", i)))
	}
	f.refused(fault.QueueFull, shell("p", "true", now))
	f.submit(shell("p", "true", by("token-2")))
	f.Drain(t.Context())
	f.refused(fault.ShuttingDown, shell("p", "true", now, by("token-2")))
}

func TestAsyncIdempotency(t *testing.T) {
	t.Parallel()
	f := setUp(t, async(2))
	req := func() runner.Request {
		return shell("p", "echo once >> counted", under("key"), queue(runner.Queueing{}))
	}
	id := f.submit(req())
	for range 2 {
		if again := f.exec(req()); !again.Replayed || again.Record.ExecID != id || again.Record.Status != audit.Queued {
			t.Errorf("%+v", again.Record)
		}
	}
	f.refused(fault.IdempotencyMismatch, shell("p", "echo other", under("key"), queue(runner.Queueing{})))
	f.dispatch()
	f.ends(id)
	if again := f.exec(req()); !again.Replayed || again.Record.ExecID != id || again.Record.Status != audit.Succeeded {
		t.Errorf("%+v", again.Record)
	}
	notAsync := req()
	notAsync.Queue = nil
	if again := f.exec(notAsync); !again.Replayed || again.Record.ExecID != id || again.Record.Status != audit.Succeeded {
		t.Errorf("%+v", again.Record)
	}
	if got, err := os.ReadFile(f.path("p", "work", "counted")); err != nil || string(got) != "once\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestCallbacks: the callback of a request is stored before the row of its exec, and forgotten if
// there is no row of its own.
func TestCallbacks(t *testing.T) {
	t.Parallel()
	told := &callbacks{}
	f := setUp(t, async(2), func(f *fixture) { f.cfg.Callbacks, told.f = told, f })
	to := func(r *runner.Request) { r.CallbackURL = "https://a.example" }
	for name, change := range map[string]func(*runner.Request){"sync": func(*runner.Request) {}, "async": queue(runner.Queueing{})} {
		req := func() runner.Request { return shell("p", "true", to, change, under(name)) }
		id := f.exec(req()).Record.ExecID
		if told.known[id] != "https://a.example" {
			t.Errorf("%s: %v", name, told.known)
		}
		if again := f.exec(req()); again.Record.ExecID != id || len(told.known) != 1 {
			t.Errorf("%s: after a repeated request: %v", name, told.known)
		}
		told.err = fault.New(fault.QueueFull, "full")
		f.refused(fault.QueueFull, shell("p", "true", to, change))
		told.err = nil
		f.exec(shell("p", "true", change))
		if len(told.known) != 1 {
			t.Errorf("%s: %v", name, told.known)
		}
		clear(told.known)
	}
}

// callbacks is a runner.Callbacks that knows what is registered.
type callbacks struct {
	f     *fixture
	known map[string]string
	err   error
}

func (c *callbacks) Register(ctx context.Context, execID, _, url string) error {
	if c.err != nil {
		return c.err
	}
	if _, err := c.f.store.Get(ctx, execID); !fault.Is(err, fault.UnknownExec) {
		c.f.t.Errorf("the exec has a row already: %v", err)
	}
	if c.known == nil {
		c.known = map[string]string{}
	}
	c.known[execID] = url
	return nil
}

func (c *callbacks) Forget(_ context.Context, execID string) error {
	delete(c.known, execID)
	return nil
}

// TestAsyncOrder: tokens take turns, of one token priorities come first, and other requests keep
// their places.
func TestAsyncOrder(t *testing.T) {
	t.Parallel()
	f := setUp(t, async(1), slots(2, 2), each(admission.Share{AtOnce: 2, Queue: 2}))
	var want []string
	add := func(token string, p audit.Priority) string {
		return f.submit(shell("p", "hold", by(token), queue(runner.Queueing{Priority: p})))
	}
	low := add("a", audit.Low)
	a1, a2, a3 := add("a", ""), add("a", ""), add("a", "")
	b1 := add("b", audit.Normal)
	high := add("b", audit.High)
	want = []string{a1, high, a2, b1, a3, low}
	f.dispatch()
	var got []string
	for range want {
		got = append(got, <-f.held)
		if r := f.exec(shell("q", "true", by("c"))); r.Record.Status != audit.Succeeded {
			t.Errorf("%+v", r.Record)
		}
		f.release <- struct{}{}
	}
	if !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
	for _, id := range want {
		if r := f.ends(id); r.Status != audit.Succeeded {
			t.Errorf("%+v", r)
		}
	}
}

// TestAsyncShare: a token that has its share at work keeps no other from its place.
func TestAsyncShare(t *testing.T) {
	t.Parallel()
	f := setUp(t, async(3), slots(4, 2), each(admission.Share{AtOnce: 1, Queue: 1}))
	first, second := f.submit(shell("p", "hold", by("a"))), f.submit(shell("p", "hold", by("a")))
	other := f.submit(shell("p", "hold", by("b")))
	f.dispatch()
	begun := []string{<-f.held, <-f.held}
	if !slices.Contains(begun, first) || !slices.Contains(begun, other) || f.row(second).Status != audit.Queued {
		t.Errorf("%v run; the first of each token are %s and %s", begun, first, other)
	}
	close(f.release)
	if r := f.ends(second); r.Status != audit.Succeeded {
		t.Errorf("%+v", r)
	}
}

func TestAsyncCancel(t *testing.T) {
	t.Parallel()
	f := setUp(t, async(1))
	running, waiting := f.submit(shell("p", "hold")), f.submit(shell("p", "echo x > ran"))
	expired := f.submit(shell("p", "echo x > ran", queue(runner.Queueing{Timeout: time.Nanosecond})))
	ended := make(chan audit.Record)
	go func() {
		r, _ := f.WaitEnd(context.Background(), f.row(waiting))
		ended <- r
	}()
	must(t, f.Cancel(t.Context(), waiting))
	if r := <-ended; r.Status != audit.Canceled || r.ErrorReason != audit.ReasonCanceled || r.NodeID != "" || f.ended.of(waiting) != 1 {
		t.Errorf("waiting: %+v", r)
	}
	f.dispatch()
	<-f.held
	must(t, f.Cancel(t.Context(), running))
	if r := f.ends(running); r.Status != audit.Canceled || r.ErrorReason != audit.ReasonCanceled || r.StartedAt.IsZero() {
		t.Errorf("running: %+v", r)
	}
	if r := f.ends(expired); r.Status != audit.Canceled || r.ErrorReason != audit.QueueTimeout || !r.StartedAt.IsZero() ||
		!strings.Contains(r.Detail, "queue_timeout_ms") {
		t.Errorf("expired: %+v", r)
	}
	for _, id := range []string{running, waiting, expired} {
		if err := f.Cancel(t.Context(), id); !fault.Is(err, fault.ExecEnded) {
			t.Errorf("ended: %v", err)
		}
	}
	if _, err := os.Stat(f.path("p", "work", "ran")); err == nil {
		t.Error("one that was canceled ran all the same")
	}
}

// TestAsyncExpires: an exec that finds no place in its time is ended, although none is free.
func TestAsyncExpires(t *testing.T) {
	t.Parallel()
	f := setUp(t, async(1))
	running := f.submit(shell("p", "hold"))
	f.dispatch()
	<-f.held
	expired := f.submit(shell("p", "true", queue(runner.Queueing{Timeout: time.Millisecond})))
	if r := f.ends(expired); r.Status != audit.Canceled || r.ErrorReason != audit.QueueTimeout || f.ended.of(expired) != 1 {
		t.Errorf("%+v", r)
	}
	f.release <- struct{}{}
	f.ends(running)
}

// TestAsyncRestart: a node that ends leaves what waits to the next process, and what has been taken
// and not started, also when it was killed after it had made the directory for the artifacts.
func TestAsyncRestart(t *testing.T) {
	t.Parallel()
	f := setUp(t, async(1))
	running, waiting, taken := f.submit(shell("p", "hold")), f.submit(shell("p", "echo after")), f.submit(shell("p", "echo after", by("z")))
	stop := f.dispatch()
	<-f.held
	if got, err := f.jobs.Take(t.Context(), "n", "", func(token string) bool { return token == "z" }); err != nil || got == nil || got.ExecID != taken {
		t.Fatalf("%+v, %v", got, err)
	}
	now, cancel := context.WithCancel(t.Context())
	cancel()
	go f.Drain(now)
	stop()
	f.shutDown(time.Minute)
	if r := f.ends(running); r.Status != audit.Canceled || r.ErrorReason != audit.ShuttingDown {
		t.Errorf("%+v", r)
	}
	left := f.path("p", "artifacts", taken)
	must(t, os.Mkdir(left, 0o700))
	must(t, os.WriteFile(filepath.Join(f.cfg.StateDir, "allotted", taken), []byte("p"), 0o600))
	f.boot()
	if _, err := os.Stat(left); err != nil {
		t.Errorf("another node may run the exec, and has no directory: %v", err)
	}
	if notes, err := os.ReadDir(filepath.Join(f.cfg.StateDir, "allotted")); err != nil || len(notes) != 0 {
		t.Errorf("%v, %v", notes, err)
	}
	f.dispatch()
	for _, id := range []string{waiting, taken} {
		if r := f.ends(id); r.Status != audit.Succeeded || f.published(r, "stdout.txt") != "after\n" {
			t.Errorf("%+v", r)
		}
	}
}

// TestAsyncWaitsForEngine: an engine that is away costs no exec.
func TestAsyncWaitsForEngine(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	tried, away := 0, 2
	f := setUp(t, async(1), func(f *fixture) {
		f.options.Acquire = func(engine.Spec) error {
			mu.Lock()
			defer mu.Unlock()
			if tried++; tried <= away {
				return fault.New(fault.EngineUnavailable, "the engine is away")
			}
			return nil
		}
	})
	id := f.submit(shell("p", "echo done"))
	f.dispatch()
	if r := f.ends(id); r.Status != audit.Succeeded || tried != away+1 {
		t.Errorf("after %d attempts: %+v", tried, r)
	}
}

// TestAsyncDamaged: a job that cannot be opened, or whose skill is gone, is an error, and its key
// is free.
func TestAsyncDamaged(t *testing.T) {
	t.Parallel()
	f := setUp(t, async(1))
	other := f.submit(shell("p", "true", under("key")))
	skill := &runner.Skill{Input: []byte("{}"), MaxOutput: 1000}
	skill.Folder.Digest = strings.Repeat("ab", 32)
	gone := f.submit(shell("p", "true", func(r *runner.Request) { r.SkillID, r.Skill = "a.skill", skill }))
	f.shutDown(time.Minute)
	f.cfg.Key = hmackey.New(bytes.Repeat([]byte{8}, 32))
	f.boot()
	f.dispatch()
	if r := f.ends(other); r.Status != audit.Errored || !strings.Contains(r.Detail, "audit.hmac_key_file") || r.IdempotencyKey != "" {
		t.Errorf("another key: %+v", r)
	}
	f.ends(gone)
	gone = f.submit(shell("p", "true", func(r *runner.Request) { r.SkillID, r.Skill = "a.skill", skill }))
	if r := f.ends(gone); r.Status != audit.Errored || !strings.Contains(r.Detail, "a.skill is gone since the exec was queued") {
		t.Errorf("a skill that is gone: %+v", r)
	}
	if f.waitingJobs() != 0 {
		t.Errorf("%d jobs wait", f.waitingJobs())
	}
}

// TestAsyncSkill: the outputs of a skill that waited are validated like any others.
func TestAsyncSkill(t *testing.T) {
	t.Parallel()
	asked := ""
	version := func(accept func(context.Context, []byte) ([]byte, error)) *runner.Skill {
		s := &runner.Skill{Input: []byte(`{"n": 1}`), MaxOutput: 1000, Accept: accept}
		s.Folder.Digest = strings.Repeat("ab", 32)
		return s
	}
	f := setUp(t, async(1), func(f *fixture) {
		f.cfg.Async.Skill = func(_ context.Context, project, id, digest string) (*runner.Skill, error) {
			asked = project + " " + id + " " + digest
			s := version(func(_ context.Context, output []byte) ([]byte, error) {
				if strings.TrimSpace(string(output)) != `{"n": 1}` {
					return nil, fmt.Errorf("it is %q", output)
				}
				return output, nil
			})
			s.Input = nil
			return s, nil
		}
	})
	f.dispatch()
	for script, want := range map[string]audit.Reason{"cat $SKILL_INPUT > $SKILL_OUTPUT": "", "echo 7 > $SKILL_OUTPUT": audit.InvalidOutput} {
		id := f.submit(shell("p", script, func(r *runner.Request) { r.SkillID, r.Skill = "a.skill", version(nil) }))
		if r := f.ends(id); r.ErrorReason != want || r.SkillDigest != strings.Repeat("ab", 32) || asked != "p a.skill "+r.SkillDigest {
			t.Errorf("%s: %+v; asked for %s", script, r, asked)
		}
	}
}

// TestAsyncSpooledEnd: an exec whose end waits in the spool does not run, also after a restart,
// although its row is still queued.
func TestAsyncSpooledEnd(t *testing.T) {
	t.Parallel()
	var revoked atomic.Bool
	revoked.Store(true)
	f := setUp(t, async(1), func(f *fixture) {
		f.cfg.Async.Valid = func(context.Context, string) error {
			if revoked.Load() {
				return fault.New(fault.TokenRevoked, "this token was revoked")
			}
			return nil
		}
	})
	first := f.submit(shell("p", "true"))
	f.store.fail(nil, fault.New(fault.DatabaseUnavailable, "no database"))
	stop := f.dispatch()
	if r := f.ends(first); r.ErrorReason != audit.TokenRevoked || len(f.log.SpooledIDs()) != 1 {
		t.Errorf("%+v", r)
	}
	stop()
	f.store.fail(nil, nil)
	revoked.Store(false)
	second := f.submit(shell("p", "true"))
	f.dispatch()
	if r := f.ends(second); r.Status != audit.Succeeded {
		t.Errorf("%+v", r)
	}
	if r, err := f.store.Get(t.Context(), first); err != nil || r.Status != audit.Queued {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestAsyncSecretWithdrawn: an exec whose token may no longer use its secret when its turn comes
// does not run.
func TestAsyncSecretWithdrawn(t *testing.T) {
	t.Parallel()
	var withdrawn atomic.Bool
	f := setUp(t, async(1), func(f *fixture) {
		var err error
		f.cfg.Policy, err = policy.New(policy.Config{
			SettingsDigest: "sha256:s", Settings: policy.Layer{NetMode: new("allowlist"), NetAllow: []string{"api.example.org"}},
			Secrets: map[string]policy.SecretRule{"key": {Hosts: []string{"api.example.org"}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		f.cfg.SecretAllowed = func(_ context.Context, secret, token string) (bool, error) {
			return secret == "key" && token == "ci" && !withdrawn.Load(), nil
		}
	})
	id := f.submit(shell("p", "true", func(r *runner.Request) {
		r.RequestedBy = "ci"
		r.Overrides.NetCredentials = []policy.Credential{{Secret: "key", Host: "api.example.org", Basic: "me"}}
	}))
	withdrawn.Store(true)
	f.dispatch()
	if r := f.ends(id); r.Status != audit.Rejected || r.ErrorReason != audit.PolicyDenied || !strings.Contains(r.Detail, "not for this token") {
		t.Errorf("%+v", r)
	}
}

// TestAsyncRevoked: an exec whose token was revoked while it waited ends without a run, and one
// whose token cannot be looked up waits.
func TestAsyncRevoked(t *testing.T) {
	t.Parallel()
	looked := make(chan struct{})
	var asked atomic.Int64
	f := setUp(t, async(1), func(f *fixture) {
		f.cfg.Async.Valid = func(_ context.Context, token string) error {
			switch {
			case token == "revoked":
				return fault.New(fault.TokenRevoked, "this token was revoked")
			case asked.Add(1) == 1:
				close(looked)
				return fault.New(fault.DatabaseUnavailable, "the database does not answer")
			}
			return nil
		}
	})
	by := func(token string) func(*runner.Request) { return func(r *runner.Request) { r.RequestedBy = token } }
	revoked := f.submit(shell("p", "true", by("revoked")))
	valid := f.submit(shell("p", "true", by("valid")))
	f.dispatch()
	if r := f.ends(revoked); r.Status != audit.Canceled || r.ErrorReason != audit.TokenRevoked || !r.StartedAt.IsZero() ||
		r.Detail != "canceled because its token was revoked before it started" {
		t.Errorf("%+v", r)
	}
	<-looked
	if r := f.ends(valid); r.Status != audit.Succeeded {
		t.Errorf("%+v", r)
	}
}
