package runner_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/audit"
	"secbox/internal/traces"
	"secbox/internal/traces/otlp/otlptest"
	"secbox/runner"
)

// tracing has the spans of the fixture's execs go to a collector. stop returns them by name.
func tracing(t *testing.T) (c *otlptest.Collector, change func(*fixture), stop func() map[string][]otlptest.Span) {
	c = otlptest.Start(t)
	tracer, flush := c.Tracer(t)
	return c, func(f *fixture) { f.cfg.Tracer = tracer }, func() map[string][]otlptest.Span {
		flush()
		all := map[string][]otlptest.Span{}
		for _, s := range c.Spans() {
			all[s.Name] = append(all[s.Name], s)
		}
		return all
	}
}

// TestSpansOfAnExec: every stage is a span below the exec's span, which is on record, and below the
// request's span. None has what was sent or written.
func TestSpansOfAnExec(t *testing.T) {
	t.Parallel()
	c, on, stop := tracing(t)
	f := setUp(t, on)
	request, _ := traces.Parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	secrets := []string{
		"s3cret-argument", "s3cret-name", "s3cret-value", "s3cret-stdin", "s3cret-input", "s3cret-file", "s3cret-key", "s3cret-artifact",
		"s3cret-output",
	}
	script := "cat > /workspace/artifacts/s3cret-artifact; echo s3cret-output; echo s3cret-output >&2; echo $TRACEPARENT > /workspace/artifacts/span; echo " +
		"s3cret-argument > /workspace/work/x; exit 3"
	result, err := f.Run(traces.With(t.Context(), request),
		shell("p", script, input("s3cret-file", "s3cret-input"), under("s3cret-key"), func(r *runner.Request) {
			r.Command.Env = map[string]string{"s3cret-name": "s3cret-value"}
			r.Command.Stdin = []byte("s3cret-stdin")
			r.TaskID, r.UserID = "task-1", strings.Repeat("u", 200)
		}))
	must(t, err)
	spans := stop()
	want := []string{"admission", "close", "collection", "container", "exec", "image", "inputs", "job", "open", "policy", "start"}
	if got := slices.Sorted(maps.Keys(spans)); !slices.Equal(got, want) {
		t.Fatalf("spans %v, want %v", got, want)
	}
	exec := spans["exec"][0]
	var tick time.Duration
	if runtime.GOOS == "windows" { // where a start is rounded down to a tick of the clock, and an end is not
		tick = 20 * time.Millisecond
	}
	for name, list := range spans {
		s := list[0]
		if len(list) != 1 || s.Trace != request.Trace || name != "exec" && (s.Parent != exec.ID || s.Start.Before(exec.Start) ||
			s.End.After(exec.End.Add(tick))) {
			t.Errorf("%s: %+v", name, list)
		}
		if failed := name == "exec" || name == "job"; (s.Error == "nonzero_exit") != failed || (s.Error != "") != failed {
			t.Errorf("%s has the error %q", name, s.Error)
		}
	}
	if exec.Parent != request.Span || result.Record.TraceID != request.Trace || result.Record.SpanID != exec.ID {
		t.Errorf("%+v, on record %s %s", exec, result.Record.TraceID, result.Record.SpanID)
	}
	for _, pair := range [][2]string{
		{"policy", "admission"},
		{"admission", "image"},
		{"image", "container"},
		{"container", "open"},
		{"open", "inputs"},
		{"inputs", "start"},
		{"start", "job"},
		{"collection", "close"},
	} {
		if a, b := spans[pair[0]][0], spans[pair[1]][0]; b.Start.Add(tick).Before(a.End) {
			t.Errorf("%s begins before the end of %s", pair[1], pair[0])
		}
	}
	for name, value := range map[string]any{
		"secbox.exec.id": result.Record.ExecID, "secbox.project.id": "p", "secbox.task.id": "task-1", "secbox.exec.status": "failed",
		"secbox.exec.reason": "nonzero_exit", "secbox.token.id": "token-1",
		"process.exit.code": int64(3), "secbox.stdout.bytes": int64(14), "secbox.stdin.bytes": int64(12), "secbox.inputs.count": int64(1),
		"secbox.exec.warm": false, "container.image.id": result.Record.ImageID,
	} {
		if exec.Attributes[name] != value {
			t.Errorf("%s is %v, want %v", name, exec.Attributes[name], value)
		}
	}
	for _, secret := range secrets {
		if c.Contains(secret) {
			t.Errorf("%s was exported", secret)
		}
	}
	if !c.Contains(result.Record.ExecID) {
		t.Error("the collector's bytes are not searched")
	}
	own, err := os.ReadFile(f.path("p", "artifacts", result.Record.ExecID, "span"))
	if want := fmt.Sprintf("00-%s-%s-01\n", request.Trace, exec.ID); err != nil || string(own) != want {
		t.Errorf("the job has %q, want %q, %v", own, want, err)
	}
}

// TestSpanOfTheQueue: an exec that waits has a span for it, also when it is canceled there.
func TestSpanOfTheQueue(t *testing.T) {
	t.Parallel()
	_, on, stop := tracing(t)
	f := setUp(t, on, func(f *fixture) { f.cfg.Slots = 1 })
	first := f.post(shell("p", "hold"))
	<-f.held
	second, third := f.post(shell("p", "true")), f.post(shell("p", "true"))
	canceled := third.id()
	second.id()
	must(t, f.Cancel(t.Context(), canceled))
	<-third.done
	f.release <- struct{}{}
	<-first.done
	<-second.done
	spans := stop()
	errors := map[string]int{}
	for _, s := range spans["queue"] {
		errors[s.Error]++
	}
	if len(spans["exec"]) != 3 || len(spans["queue"]) != 2 || errors[""] != 1 || errors["canceled"] != 1 || len(spans["job"]) != 2 {
		t.Errorf("%d execs, %d jobs, queues %v", len(spans["exec"]), len(spans["job"]), errors)
	}
}

// TestSpanOfARefusal: it has the code and the id of the record.
func TestSpanOfARefusal(t *testing.T) {
	t.Parallel()
	_, on, stop := tracing(t)
	f := setUp(t, on)
	_, err := f.Run(context.Background(), shell("p", "true", func(r *runner.Request) { r.Image = "forbidden:1" }))
	if err == nil {
		t.Fatal("not refused")
	}
	items, _, err := f.log.List(t.Context(), audit.Filter{}, nil, 2)
	must(t, err)
	spans := stop()
	if len(items) != 1 || len(spans) != 2 || spans["exec"][0].Error != "policy_denied" || spans["policy"][0].Error != "policy_denied" ||
		spans["exec"][0].Attributes["secbox.exec.id"] != items[0].ExecID ||
		items[0].TraceID != spans["exec"][0].Trace || items[0].SpanID != spans["exec"][0].ID {
		t.Errorf("%+v, %+v", items, spans)
	}
}

// TestSpansOfAnAsynchronousExec: the spans of its turn are below the exec's span, which is on
// record from the beginning, and which its job names.
func TestSpansOfAnAsynchronousExec(t *testing.T) {
	t.Parallel()
	_, on, stop := tracing(t)
	f := setUp(t, async(2), on)
	id := f.submit(shell("p", "echo $TRACEPARENT"))
	queued := f.row(id)
	end := f.dispatch()
	row := f.ends(id)
	end()
	spans := stop()
	exec, turn := spans["exec"][0], spans["queued exec"][0]
	if queued.TraceID != exec.Trace || queued.SpanID != exec.ID || row.SpanID != exec.ID ||
		f.published(row, "stdout.txt") != "00-"+exec.Trace+"-"+exec.ID+"-01\n" || exec.Error != "" || exec.Attributes["secbox.exec.status"] != "queued" {
		t.Errorf("%+v, on record %s %s", exec, row.TraceID, row.SpanID)
	}
	if turn.Trace != exec.Trace || turn.Parent != exec.ID || turn.Error != "" || turn.Attributes["secbox.exec.id"] != id ||
		turn.Attributes["secbox.exec.status"] != "succeeded" {
		t.Errorf("%+v", turn)
	}
	for _, name := range []string{"queue", "container", "inputs", "start", "job", "collection", "close"} {
		if len(spans[name]) != 1 || spans[name][0].Parent != turn.ID {
			t.Errorf("%s: %+v", name, spans[name])
		}
	}
	if !spans["queue"][0].Start.Equal(queued.CreatedAt) {
		t.Errorf("the queue began at %s, the exec at %s", spans["queue"][0].Start, queued.CreatedAt)
	}
}
