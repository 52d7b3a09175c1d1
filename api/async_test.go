package api_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
	"secbox/runner"
)

// queue is a runner.Run that puts every exec into the queue.
func (r *fakeRunner) queue(ctx context.Context, req runner.Request) (runner.Result, error) {
	rec := newRecord(req)
	rec.Status, rec.StartedAt, rec.NodeID, rec.ArtifactsPath = audit.Queued, time.Time{}, "", ""
	rec.Async, rec.Priority = true, req.Queue.Priority
	out, err := r.store.Enqueue(ctx, []audit.Waiting{{Record: rec, Job: audit.Job{ExpiresAt: rec.CreatedAt.Add(time.Hour), Sealed: []byte{1}}}},
		audit.JobLimits{Waiting: 9, WaitingPerToken: 9, Bytes: 9, BytesPerToken: 9})
	if err != nil {
		return runner.Result{}, err
	}
	if taken := out[0].Taken; taken != nil {
		return runner.Result{Record: *taken, Replayed: true}, nil
	}
	return runner.Result{Record: rec}, out[0].Err
}

func TestRespondAsync(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.runner.run = f.runner.queue
	for path, body := range map[string]string{
		"/sandbox/execs":           `{"project_id": "demo", "priority": "high", "queue_timeout_ms": 5000, ` + aCommand + `}`,
		"/skills/shell.run/invoke": `{"project_id": "demo", "priority": "high", "queue_timeout_ms": 5000, "inputs": {"script": "true"}}`,
	} {
		request := request{
			method: "POST", path: path, body: body,
			header: map[string]string{"Prefer": "wait=10, Respond-Async; x=1", "Idempotency-Key": "k " + path},
		}
		r := f.do(request)
		got := decodeAs[wire.ExecRecord](t, r, 202)
		if got.Status != audit.Queued || !got.Async || got.Priority != audit.High || r.Header.Get("Location") != "/sandbox/execs/"+got.ExecID ||
			r.Header.Get("Preference-Applied") != "respond-async" || r.Header.Get("Idempotency-Replayed") != "" {
			t.Errorf("%s: %v %s", path, r.Header, r.body)
		}
		seen := f.runner.seen()
		if q := seen[len(seen)-1].Queue; q == nil || q.Timeout != 5*time.Second {
			t.Errorf("%s: the runner was given %+v", path, q)
		}
		again := f.do(request)
		if decodeAs[wire.ExecRecord](t, again, 202).ExecID != got.ExecID || again.Header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%s: a repeated one got %v %s", path, again.Header, again.body)
		}
		if r := decodeAs[wire.ExecRecord](t, f.get(r.Header.Get("Location")), 200); r.ExecID != got.ExecID {
			t.Errorf("%s: at its location is %+v", path, r)
		}

		request.body = strings.Replace(strings.Replace(body, "high", "urgent", 1), "5000", "604800001", 1)
		f.do(request).wants(t, fault.InvalidRequest, "priority", "queue_timeout_ms")
		request.body = strings.Replace(body, "5000", "0", 1)
		f.do(request).wants(t, fault.InvalidRequest, "queue_timeout_ms")
		for _, other := range []string{"", "respond-asynchronously", "wait=10"} {
			request.body, request.header = body, map[string]string{"Prefer": other}
			f.do(request).wants(t, fault.InvalidRequest, "priority", "queue_timeout_ms")
		}
	}
}

func TestWaitExec(t *testing.T) {
	t.Parallel()
	f := start(t)
	ended := f.record(nil)
	running := f.record(func(r *audit.Record) { r.Status, r.EndedAt, r.ExitCode = audit.Running, time.Time{}, nil })
	for path, want := range map[string]audit.Status{
		ended.ExecID + "/wait":                audit.Succeeded,
		running.ExecID + "/wait?timeout_ms=1": audit.Running,
		running.ExecID + "/wait?timeout_ms=0": audit.Running,
	} {
		if got := decodeAs[wire.ExecRecord](t, f.get("/sandbox/execs/"+path), 200); got.Status != want {
			t.Errorf("%s: %+v", path, got)
		}
	}
	for _, bad := range []string{"", "-1", "300001", "x", "1.5", "99999999999999999999"} {
		f.get("/sandbox/execs/"+running.ExecID+"/wait?timeout_ms="+bad).wants(t, fault.InvalidRequest, "timeout_ms")
	}
	f.get("/sandbox/execs/0190aaaa-7c1e-7d35-9a52-0f4f3a1b2c3d/wait").wants(t, fault.UnknownExec)
}

// TestWaitExecIsBounded: requests that wait have a share of the streams, and no answer for a token
// that was revoked meanwhile.
func TestWaitExecIsBounded(t *testing.T) {
	t.Parallel()
	f := start(t, func(cfg *api.Config) { cfg.Bounds.StreamsPerToken, cfg.TokenInterval = 1, time.Nanosecond })
	id, secret := f.token(tokens.Spec{Role: tokens.Auditor})
	running := f.record(func(r *audit.Record) { r.Status, r.EndedAt, r.ExitCode = audit.Running, time.Time{}, nil })
	wait := request{path: "/sandbox/execs/" + running.ExecID + "/wait?timeout_ms=1", token: secret}
	f.runner.waiting = func() error {
		f.do(wait).wants(t, fault.ServerBusy)
		if r := f.do(request{path: strings.Replace(wait.path, "=1", "=0", 1), token: secret}); r.StatusCode != 200 {
			t.Errorf("one that does not wait got %d %s", r.StatusCode, r.body)
		}
		if _, err := f.tokens.Revoke(t.Context(), id); err != nil {
			t.Error(err)
		}
		return nil
	}
	f.do(wait).wants(t, fault.TokenRevoked)
}
