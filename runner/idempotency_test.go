package runner_test

import (
	"context"
	"os"
	"reflect"
	"sync"
	"testing"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/internal/admission"
	"secbox/policy"
	"secbox/runner"
)

// TestOneKeyOneExec: under one key a request runs once, however often and when it comes, also after
// a restart.
func TestOneKeyOneExec(t *testing.T) {
	t.Parallel()
	f := setUp(t, slots(3, 30), each(admission.Share{AtOnce: 3, Queue: 30}))
	req := shell("p", "echo ran >> log; echo out; echo err >&2; echo a > /workspace/artifacts/a.txt; hold; exit 3", under("key"), input("in.txt", "x"))
	first := f.post(req)
	id := first.id()
	<-f.held

	// While it runs: the same requests wait for its end, another one is refused at once.
	var all sync.WaitGroup
	results := make([]runner.Result, 10)
	for i := range results {
		all.Go(func() { results[i] = f.exec(req) })
	}
	other := shell("p", "true", under("key"))
	if e := f.refused(fault.IdempotencyMismatch, other); e.ExecID != id {
		t.Errorf("another request, while the first runs: %+v", e)
	}
	f.release <- struct{}{}
	want := first.wants(audit.Failed, audit.NonzeroExit)
	all.Wait()
	want.Replayed = true
	same := func(when string, got runner.Result) {
		t.Helper()
		got.Record.PolicySnapshot, want.Record.PolicySnapshot = nil, nil // the same JSON, with other white space
		got.Record.CreatedAt, got.Record.StartedAt, got.Record.EndedAt = got.Record.CreatedAt.UTC(), got.Record.StartedAt.UTC(), got.Record.EndedAt.UTC()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v\ndiffers from\n%+v", when, got, want)
		}
	}
	for _, got := range results {
		same("in flight", got)
	}
	same("afterwards", f.exec(req))
	if e := f.refused(fault.IdempotencyMismatch, other); e.ExecID != id {
		t.Errorf("another request: %+v", e)
	}
	if ran, err := os.ReadFile(f.path("p", "work", "log")); string(ran) != "ran\n" || f.rows() != 1 || len(f.artifactDirs("p")) != 1 {
		t.Errorf("it ran more than once: %q %v, %d rows, artifacts of %v", ran, err, f.rows(), f.artifactDirs("p"))
	}

	f.shutDown(time.Minute)
	f.boot()
	same("after a restart", f.exec(req))
	if e := f.refused(fault.IdempotencyMismatch, other); e.ExecID != id {
		t.Errorf("another request, after a restart: %+v", e)
	}
	go func() { f.release <- struct{}{} }()
	req.RequestedBy = "token-2"
	if got := f.exec(req); got.Replayed || got.Record.ExecID == id {
		t.Error("another token got this one's exec")
	}
}

// TestRefusalIsReplayed: a refusal by policy is an answer like any other.
func TestRefusalIsReplayed(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	huge := int64(1 << 40)
	denied := shell("p", "true", under("key"), func(r *runner.Request) { r.Overrides = policy.Layer{Limits: policy.Limits{MemoryMB: &huge}} })
	first := f.refused(fault.PolicyDenied, denied)
	if again := f.refused(fault.PolicyDenied, denied); again.ExecID != first.ExecID || f.rows() != 1 {
		t.Errorf("%v, then %v, %d rows", first, again, f.rows())
	}
	f.refused(fault.IdempotencyMismatch, shell("p", "echo other", under("key")))
	// The same body under a policy that allows it now has its first answer, too.
	denied.Overrides = policy.Layer{}
	if again := f.refused(fault.PolicyDenied, denied); again.ExecID != first.ExecID {
		t.Errorf("%v", again)
	}
}

// TestKeyIsFreeWhenNothingRan: after a temporary refusal the same request may come again under its
// key.
func TestKeyIsFreeWhenNothingRan(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	holder := f.post(shell("p", "hold; cat /workspace/inputs/in.txt", input("in.txt", "first")))
	<-f.held
	req := shell("p", "cat /workspace/inputs/in.txt", input("in.txt", "second"), under("key"))
	for range 2 {
		e := f.refused(fault.InputInUse, req)
		if r := f.row(e.ExecID); r.Status != audit.Rejected || r.ErrorReason != audit.InputRefused || r.IdempotencyKey != "" || r.ArtifactsPath != "" {
			t.Errorf("%+v", r)
		}
	}
	f.release <- struct{}{}
	if got := holder.wants(audit.Succeeded, ""); string(got.Stdout) != "first" {
		t.Errorf("the holder read %q", got.Stdout)
	}
	if got := f.exec(req); string(got.Stdout) != "second" || got.Replayed {
		t.Errorf("%+v", got)
	}
	if got := f.exec(req); !got.Replayed || len(f.artifactDirs("p")) != 2 {
		t.Errorf("replayed: %v, artifacts of %v", got.Replayed, f.artifactDirs("p"))
	}
}

// TestWaitingReplayTakesNoQueueSlot: a request that waits for another exec's end keeps no third one
// waiting, and ends with its client.
func TestWaitingReplayTakesNoQueueSlot(t *testing.T) {
	t.Parallel()
	f := setUp(t, slots(2, 0), each(admission.Share{AtOnce: 2, Queue: 1}))
	first := f.post(shell("p", "hold", under("key")))
	<-f.held
	entered := make(chan struct{})
	f.store.hook(func() { close(entered) }, nil)
	ctx, hangUp := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := f.Run(ctx, shell("p", "hold", under("key")))
		left <- err
	}()
	<-entered // it has the second place
	f.store.hook(nil, nil)
	for fault.Is(f.try(shell("q", "true")), fault.QueueFull) { // until it gives that back
	}
	hangUp()
	if err := <-left; err == nil {
		t.Error("the replay's client left, and it had a result")
	}
	f.release <- struct{}{}
	first.wants(audit.Succeeded, "")
}
