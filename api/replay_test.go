package api_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
	"secbox/replay"
	"secbox/runner"
)

// replays is a replay.Replayer by a function.
type replays func(ctx context.Context, q replay.Request) (replay.Result, error)

func (f replays) Replay(ctx context.Context, q replay.Request) (replay.Result, error) {
	return f(ctx, q)
}

func (replays) Inputs(context.Context, audit.Record, int, int, replay.Reserve) (replay.InputList, error) {
	return replay.InputList{}, nil
}

func (replays) OpenInput(context.Context, audit.Record, string, replay.Reserve) (io.ReadSeekCloser, audit.Input, error) {
	return nil, audit.Input{}, fault.New(fault.UnknownInput, "there is no input")
}

func (replays) Compare(_ context.Context, first, second audit.Record, reserve replay.Reserve) []replay.Point {
	if err := reserve(100 << 10); err != nil {
		return []replay.Point{{What: "stdout", Equal: replay.Unknown, Why: err.Error()}}
	}
	return []replay.Point{{What: "status", Equal: replay.Yes, First: string(first.Status), Second: string(second.Status)}}
}

func TestReplayIsForThoseWhoMaySeeAndRun(t *testing.T) {
	t.Parallel()
	var ran []replay.Request
	f := start(t, func(c *api.Config) {
		c.Replayer = replays(func(_ context.Context, q replay.Request) (replay.Result, error) {
			ran = append(ran, q)
			return replay.Result{Exec: runner.Result{Record: newRecord(runner.Request{ProjectID: q.First.ProjectID})}}, nil
		})
	})
	ownID, own := f.token(tokens.Spec{Role: tokens.Worker})
	_, other := f.token(tokens.Spec{Role: tokens.Worker})
	_, ofProject := f.token(tokens.Spec{Role: tokens.Worker, Projects: []string{"demo"}})
	limitedID, limited := f.token(tokens.Spec{Role: tokens.Worker, Projects: []string{"another"}})
	_, auditor := f.token(tokens.Spec{Role: tokens.Auditor})
	adminID, admin := f.token(tokens.Spec{Role: tokens.Admin})
	first := f.record(func(r *audit.Record) { r.RequestedBy = ownID })
	moved := f.record(func(r *audit.Record) { r.RequestedBy = limitedID })
	send := func(token, id string) reply {
		return f.do(request{method: http.MethodPost, path: "/sandbox/execs/" + id + "/replay", token: token, body: "{}"})
	}
	send(other, first.ExecID).wants(t, fault.UnknownExec)
	send(ofProject, first.ExecID).wants(t, fault.UnknownExec)
	send(admin, "019aa4b7-1111-7d35-9a52-0f4f3a1b2c3d").wants(t, fault.UnknownExec)
	send(auditor, first.ExecID).wants(t, fault.Forbidden)
	refused := send(limited, moved.ExecID).wants(t, fault.Forbidden, "project_id") // its project is no longer the token's
	if len(ran) != 0 {
		t.Fatalf("%+v", ran)
	}
	if rec, err := f.history.Get(t.Context(), refused.ExecID); err == nil && rec.ReplayOf != moved.ExecID {
		t.Errorf("%+v", rec)
	}
	for i, by := range [][2]string{{ownID, own}, {adminID, admin}} {
		decodeAs[wire.ReplayResult](t, send(by[1], first.ExecID), http.StatusOK)
		if q := ran[i]; q.RequestedBy != by[0] || q.First.ExecID != first.ExecID {
			t.Errorf("%+v", q)
		}
	}
	if r := f.do(request{path: "/sandbox/execs/" + first.ExecID + "/comparison", token: other}); r.StatusCode != http.StatusNotFound {
		t.Errorf("the comparison: %d", r.StatusCode)
	}
}

// TestReplayIsCountedAsMemory: what a replay reads counts like a posted body until its answer is
// sent, and a comparison that does not fit is refused.
func TestReplayIsCountedAsMemory(t *testing.T) {
	t.Parallel()
	reading, answer := make(chan struct{}), make(chan struct{})
	f := start(t, small, func(c *api.Config) {
		c.Replayer = replays(func(_ context.Context, q replay.Request) (replay.Result, error) {
			if err := q.Reserve(950 << 10); err != nil {
				return replay.Result{}, err
			}
			reading <- struct{}{}
			<-answer
			return replay.Result{Exec: runner.Result{Record: q.First}}, nil
		})
	})
	_, admin := f.token(tokens.Spec{Role: tokens.Admin})
	_, metrics := f.token(tokens.Spec{Role: tokens.Admin})
	first := f.record(nil)
	second := f.record(func(r *audit.Record) { r.ReplayOf = first.ExecID })
	send := func() reply {
		return f.do(request{method: http.MethodPost, path: "/sandbox/execs/" + first.ExecID + "/replay", token: admin, body: "{}"})
	}
	done := make(chan reply)
	go func() { done <- send() }()
	<-reading
	f.memory(metrics, 950<<10, 1e9)
	if p := send().wants(t, fault.ServerBusy); !strings.Contains(p.Detail, "http.max_memory_bytes_per_token") {
		t.Error(p.Detail)
	}
	compare := request{path: "/sandbox/execs/" + second.ExecID + "/comparison", token: admin}
	f.do(compare).wants(t, fault.ServerBusy)
	close(answer)
	decodeAs[wire.ReplayResult](t, <-done, http.StatusOK)
	f.memory(metrics, 0, 1<<10)
	if c := decodeAs[wire.Comparison](t, f.do(compare), http.StatusOK); len(c.Points) != 1 || c.Points[0].Equal != replay.Yes {
		t.Errorf("%+v", c)
	}
}

// TestRepeatsEndWithTheirClients: a request that waits for an exec under its key ends when its
// client hangs up.
func TestRepeatsEndWithTheirClients(t *testing.T) {
	t.Parallel()
	waiting, left := make(chan struct{}), make(chan error)
	wait := func(ctx context.Context) error {
		waiting <- struct{}{}
		<-ctx.Done()
		left <- ctx.Err()
		return ctx.Err()
	}
	f := start(t, func(c *api.Config) {
		c.Replayer = replays(func(ctx context.Context, _ replay.Request) (replay.Result, error) { return replay.Result{}, wait(ctx) })
	})
	f.runner.run = func(ctx context.Context, _ runner.Request) (runner.Result, error) { return runner.Result{}, wait(ctx) }
	for path, body := range map[string]string{
		"/sandbox/execs": `{"project_id": "p", ` + aCommand + `}`, "/sandbox/execs/" + f.record(nil).ExecID + "/replay": "{}",
		"/skills/shell.run/invoke": `{"project_id": "p", "inputs": {"script": "true"}}`,
	} {
		if !json.Valid([]byte(body)) {
			t.Fatal(body)
		}
		ctx, hangUp := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		go func() {
			if resp, err := http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
			}
		}()
		<-waiting
		hangUp()
		if err := <-left; err == nil {
			t.Errorf("%s goes on", path)
		}
	}
}
