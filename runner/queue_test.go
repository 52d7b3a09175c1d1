package runner_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/audit"
	"secbox/engine"
	"secbox/fault"
	"secbox/internal/admission"
	"secbox/runner"
)

// TestQueueIsFull: the queue has an end, and a request that finds no place leaves nothing behind.
func TestQueueIsFull(t *testing.T) {
	t.Parallel()
	f := setUp(t, slots(1, 1), each(admission.Share{AtOnce: 1, Queue: 1}))
	running := f.post(shell("p", "hold"))
	<-f.held
	queued := f.post(shell("q", "echo mine", by("token-2")))
	if r := f.row(queued.id()); r.Status != audit.Queued || !r.StartedAt.IsZero() || r.ImageID != "" {
		t.Errorf("a row that waits is %+v", r)
	}
	if running, waiting := f.Load(); running != 1 || waiting != 1 {
		t.Errorf("%d run, %d wait", running, waiting)
	}
	e := f.refused(fault.QueueFull, shell("full", "true", by("token-3")))
	if e.RetryAfter == 0 || !strings.Contains(e.Message, "sandbox.max_queued_execs ") || f.rows() != 2 {
		t.Errorf("%+v, %d rows", e, f.rows())
	}
	if _, err := os.Stat(f.path("full")); err == nil {
		t.Error("a request that found no place made a project")
	}
	// A refusal by policy needs no place.
	huge := int64(1 << 40)
	f.refused(fault.PolicyDenied, shell("full", "true", func(r *runner.Request) { r.Overrides.MemoryMB = &huge }))

	f.release <- struct{}{}
	running.wants(audit.Succeeded, "")
	got := queued.wants(audit.Succeeded, "")
	if string(got.Stdout) != "mine\n" || f.row(got.Record.ExecID).ImageID == "" {
		t.Errorf("%+v", got)
	}
}

// TestTokensTakeTurns: a token that fills its share of places and queue keeps no other one waiting,
// and those that wait are served one token after the other.
func TestTokensTakeTurns(t *testing.T) {
	t.Parallel()
	f := setUp(t, slots(2, 8), each(admission.Share{AtOnce: 1, Queue: 3}))
	greedy := f.post(shell("p", "hold", by("greedy")))
	<-f.held
	var waiting []*pending
	for range 3 {
		p := f.post(shell("p", "hold", by("greedy")))
		p.id()
		waiting = append(waiting, p)
	}
	if e := f.refused(fault.QueueFull, shell("p", "true", by("greedy"))); !strings.Contains(e.Message, "sandbox.max_queued_execs_per_token") {
		t.Errorf("beyond its share: %v", e)
	}
	f.exec(shell("q", "true", by("modest"))) // at once
	loopback := f.post(shell("q", "hold", by(runner.Tokenless)))
	<-f.held // its share is all there is
	modest := f.post(shell("q", "hold", by("modest")))
	modestID := modest.id()

	// Both places come free: one for the token that waited less, one for the first of the three.
	f.release <- struct{}{}
	f.release <- struct{}{}
	loopback.wants(audit.Succeeded, "")
	greedy.wants(audit.Succeeded, "")
	next := []string{<-f.held, <-f.held}
	if !slices.Contains(next, modestID) || !slices.Contains(next, waiting[0].id()) {
		t.Errorf("%v run; the other token's is %s, the first of three %s", next, modestID, waiting[0].id())
	}
	close(f.release)
	modest.wants(audit.Succeeded, "")
	for _, p := range waiting {
		p.wants(audit.Succeeded, "")
	}
}

// TestClientHangsUp: the end of a client ends its exec neither while it runs nor while it waits.
func TestClientHangsUp(t *testing.T) {
	t.Parallel()
	f := setUp(t, slots(1, 1), each(admission.Share{AtOnce: 1, Queue: 1}))
	ctx, hangUp := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, project := range []string{"running", "queued"} {
		opened := make(chan struct{})
		all.Go(func() {
			result, err := f.Run(ctx, shell(project, "hold; echo done", func(r *runner.Request) { r.OnOpen = func(string) { close(opened) } }))
			if err != nil || string(result.Stdout) != "done\n" {
				t.Errorf("%s: %+v %v", project, result.Record, err)
			}
		})
		<-opened
	}
	hangUp()
	close(f.release)
	all.Wait()
}

// TestCancel asks for an exec's end in each of its states.
func TestCancel(t *testing.T) {
	t.Parallel()
	starting, start := make(chan struct{}), make(chan struct{})
	f := setUp(t, slots(1, 2), each(admission.Share{AtOnce: 1, Queue: 2}), func(f *fixture) {
		f.options.Start = func(spec engine.Spec) error {
			if spec.ProjectID == "starting" {
				close(starting)
				<-start
				return fault.New(fault.Internal, "killed before it started")
			}
			return nil
		}
	})
	cancel := func(execID string) {
		t.Helper()
		must(t, f.Cancel(t.Context(), execID))
	}
	running := f.post(shell("running", "echo begun; echo kept > /workspace/artifacts/kept; hold", under("k1")))
	<-f.held
	queued := f.post(shell("queued", "echo never", under("k2")))
	next := f.post(shell("next", "echo mine"))
	cancel(queued.id())
	got := queued.wants(audit.Canceled, audit.ReasonCanceled)
	if r := got.Record; r.ExitCode != nil || !r.StartedAt.IsZero() || r.DurationMS != 0 || r.ArtifactsPath != "" || r.IdempotencyKey == "" ||
		len(got.Stdout) != 0 {
		t.Errorf("queued: %+v", r)
	}
	if _, err := os.Stat(f.path("queued", "work", "ran")); err == nil {
		t.Error("it ran all the same")
	}

	next.id()
	cancel(running.id())
	got = running.wants(audit.Canceled, audit.ReasonCanceled)
	if r := got.Record; *r.ExitCode != 137 || string(got.Stdout) != "begun\n" || len(got.Artifacts) != 1 || got.Artifacts[0].Path != "kept" {
		t.Errorf("running: %+v, left %v", r, got.Artifacts)
	}
	next.wants(audit.Succeeded, "") // in its turn

	begins := f.post(shell("starting", "echo never"))
	<-starting
	cancel(begins.id())
	close(start)
	got = begins.wants(audit.Canceled, audit.ReasonCanceled)
	if r := got.Record; r.ExitCode != nil || !r.StartedAt.IsZero() || r.ArtifactsPath != "" || len(f.artifactDirs("starting")) != 0 {
		t.Errorf("starting: %+v, artifacts of %v", r, f.artifactDirs("starting"))
	}

	for _, p := range []*pending{running, queued, next, begins} {
		if err := f.Cancel(t.Context(), p.id()); !fault.Is(err, fault.ExecEnded) {
			t.Errorf("ended: %v", err)
		}
		if row := f.row(p.id()); row.Status != p.result.Record.Status || row.ErrorReason != p.result.Record.ErrorReason || f.ended.of(p.id()) != 1 {
			t.Errorf("row %+v, told %d times", row, f.ended.of(p.id()))
		}
	}
	if err := f.Cancel(t.Context(), "01890000-0000-7000-8000-ffffffffffff"); !fault.Is(err, fault.UnknownExec) {
		t.Errorf("unknown: %v", err)
	}
	// A request that was canceled was answered: its key is used.
	if again := f.exec(shell("running", running.request.Command.Args[1], under("k1"))); !again.Replayed || again.Record.Status != audit.Canceled {
		t.Errorf("%+v", again.Record)
	}
}

// TestRowEndedWhileRunning: another node has ended the row of a node that did not move for longer
// than its lease. The result corrects it.
func TestRowEndedWhileRunning(t *testing.T) {
	t.Parallel()
	f := setUp(t, slots(1, 1))
	running := f.post(shell("running", "hold"))
	<-f.held
	lost, err := f.store.LoseOpen(t.Context(), "n", nil)
	must(t, err)
	f.release <- struct{}{}
	got := running.wants(audit.Succeeded, "")
	if row := f.row(running.id()); !slices.Equal(lost, []string{running.id()}) || row.Status != audit.Succeeded || f.ended.of(running.id()) != 1 {
		t.Errorf("%v: %+v, the row is %s", lost, got.Record, row.Status)
	}
}

// TestRowEndedWhileStarting: an exec whose container starts when the node loses its lease never
// ran. The caller is told so, or what is on record about it, and not that the server is broken.
func TestRowEndedWhileStarting(t *testing.T) {
	t.Parallel()
	for _, other := range []audit.Status{audit.Lost, audit.Errored} {
		starting, start := make(chan struct{}), make(chan struct{})
		f := setUp(t, slots(3, 2), func(f *fixture) {
			f.options.Start = func(spec engine.Spec) error {
				if spec.ProjectID != "p" {
					return nil
				}
				close(starting)
				<-start
				return fault.New(fault.Internal, "killed before it started")
			}
		})
		runs := f.post(shell("another", "hold"))
		<-f.held
		begins := f.post(shell("p", "echo never"))
		id := begins.id()
		<-starting
		r := f.row(id)
		r.Status, r.ErrorReason, r.EndedAt = other, audit.NodeLost, time.Now().UTC()
		_, err := f.store.Close(t.Context(), r)
		must(t, err)
		var ended sync.WaitGroup
		ended.Go(f.Lose)
		<-runs.done // then both are killed
		close(start)
		want := audit.Canceled
		if other != audit.Lost {
			want = other
		}
		if got := begins.wants(want, audit.NodeLost); !got.Record.StartedAt.IsZero() || got.Record.ExecID != id {
			t.Errorf("%s: %+v", other, got.Record)
		}
		ended.Wait()
	}
}

// TestRowEndedWhileQueued: an exec whose row another node has ended does not run.
func TestRowEndedWhileQueued(t *testing.T) {
	t.Parallel()
	f := setUp(t, slots(1, 1), each(admission.Share{AtOnce: 1, Queue: 1}))
	running := f.post(shell("running", "hold"))
	<-f.held
	queued := f.post(shell("queued", "echo x > ran"))
	id := queued.id()
	f.store.hook(nil, func() {
		r := f.row(id)
		r.Status, r.ErrorReason, r.EndedAt = audit.Lost, audit.NodeLost, time.Now().UTC()
		_, err := f.store.Store.Close(context.Background(), r)
		must(t, err)
	})
	f.release <- struct{}{}
	running.wants(audit.Succeeded, "")
	<-queued.done
	if !fault.Is(queued.err, fault.ExecEnded) {
		t.Errorf("%+v, %v", queued.result.Record, queued.err)
	}
	if _, err := os.Stat(f.path("queued", "work", "ran")); err == nil {
		t.Error("it ran all the same")
	}
}

// TestDrain: running execs may end; new ones are refused and not on record.
func TestDrain(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	running := f.post(shell("p", "hold; echo finished"))
	<-f.held
	drained := make(chan struct{})
	go func() {
		f.Drain(context.Background())
		close(drained)
	}()
	for {
		err := f.try(shell("q", "true"))
		if fault.Is(err, fault.ShuttingDown) {
			if fault.From(err).RetryAfter == 0 {
				t.Error("the refusal does not say when to try again")
			}
			break
		}
		must(t, err) // Drain has not begun
	}
	rows := f.rows()
	f.refused(fault.ShuttingDown, shell("q", "true"))
	if f.rows() != rows {
		t.Error("a request that was refused during the drain is on record")
	}
	f.release <- struct{}{}
	if got := running.wants(audit.Succeeded, ""); string(got.Stdout) != "finished\n" {
		t.Errorf("%q", got.Stdout)
	}
	<-drained
}

// TestDrainKills: execs that take longer than the drain are killed, queued ones too; each has its
// answer and its row.
func TestDrainKills(t *testing.T) {
	t.Parallel()
	f := setUp(t, slots(1, 1), each(admission.Share{AtOnce: 1, Queue: 1}))
	running := f.post(shell("running", "echo x > /workspace/artifacts/x; hold"))
	<-f.held
	queued := f.post(shell("queued", "echo x > ran"))
	queued.id()
	now, cancel := context.WithCancel(t.Context())
	cancel()
	f.Drain(now)
	if got := running.wants(audit.Canceled, audit.ShuttingDown); *got.Record.ExitCode != 137 || len(got.Artifacts) != 1 {
		t.Errorf("%+v", got)
	}
	if got := queued.wants(audit.Canceled, audit.ShuttingDown); got.Record.ExitCode != nil || !got.Record.StartedAt.IsZero() {
		t.Errorf("%+v", got.Record)
	}
	for _, p := range []*pending{running, queued} {
		if r := f.row(p.id()); r.Status != audit.Canceled || r.ErrorReason != audit.ShuttingDown {
			t.Errorf("row %+v", r)
		}
	}
	f.Drain(now) // twice
}

// TestLose: a node that has lost its lease ends what runs as lost. An exec that waits has not run,
// and its client is told so.
func TestLose(t *testing.T) {
	t.Parallel()
	f := setUp(t, slots(1, 1), each(admission.Share{AtOnce: 1, Queue: 1}))
	running := f.post(shell("running", "hold"))
	<-f.held
	queued := f.post(shell("queued", "echo x > ran"))
	queued.id()
	f.Lose()
	running.wants(audit.Lost, audit.NodeLost)
	if got := queued.wants(audit.Canceled, audit.NodeLost); got.Record.ExitCode != nil || !got.Record.StartedAt.IsZero() {
		t.Errorf("%+v", got.Record)
	}
}

// TestFailureAfterTheQueue: an exec that finds no engine in its turn has a closed row, and its key
// is free.
func TestFailureAfterTheQueue(t *testing.T) {
	t.Parallel()
	f := setUp(t, slots(1, 1), each(admission.Share{AtOnce: 1, Queue: 1}), func(f *fixture) {
		f.options.Acquire = func(spec engine.Spec) error {
			if spec.ExecID != "" { // promised while it waited
				return fault.New(fault.EngineUnavailable, "the engine is away")
			}
			return nil
		}
	})
	running := f.post(shell("running", "hold"))
	<-f.held
	queued := f.post(shell("queued", "true", under("key")))
	id := queued.id()
	f.release <- struct{}{}
	running.wants(audit.Succeeded, "")
	<-queued.done
	if e := fault.From(queued.err); e.Code != fault.EngineUnavailable || e.ExecID != id {
		t.Errorf("%+v", e)
	}
	if r := f.row(id); r.Status != audit.Errored || r.ErrorReason != audit.EngineUnavailable || r.IdempotencyKey != "" || r.EndedAt.IsZero() {
		t.Errorf("%+v", r)
	}
	if got := f.exec(shell("queued", "echo now", under("key"))); got.Replayed || string(got.Stdout) != "now\n" {
		t.Errorf("%+v", got)
	}
}

// TestCancelWhileOutputIsValidated: the container is gone, and the cancellation counts all the
// same.
func TestCancelWhileOutputIsValidated(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	validating := make(chan struct{})
	skill := &runner.Skill{Input: []byte("{}"), MaxOutput: 1000, Accept: func(ctx context.Context, _ []byte) ([]byte, error) {
		close(validating)
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	skill.Folder.Digest = strings.Repeat("ab", 32)
	p := f.post(shell("p", "echo 7 > $SKILL_OUTPUT", func(r *runner.Request) { r.SkillID, r.Skill = "a.skill", skill }))
	<-validating
	if running, _ := f.Load(); running != 0 {
		t.Errorf("%d execs hold a place while an output is validated", running)
	}
	must(t, f.Cancel(t.Context(), p.id()))
	if got := p.wants(audit.Canceled, audit.ReasonCanceled); !strings.Contains(got.Record.Detail, "while its output was validated") || got.Output != nil {
		t.Errorf("%+v", got)
	}
}
