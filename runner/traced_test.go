package runner_test

import (
	"context"
	"slices"
	"testing"

	"secbox/audit"
	"secbox/engine"
	"secbox/engine/memengine"
	"secbox/internal/traces"
	"secbox/runner"
)

// TestJobKnowsItsSpan: the record has the span of the request, and the job its name, unless the
// request has set the variable. The record has no more variables than the request.
func TestJobKnowsItsSpan(t *testing.T) {
	t.Parallel()
	const sent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	var env map[string]string
	f := setUp(t, run(func(_ context.Context, c *memengine.Container) (engine.Exit, error) {
		env = c.Job.Env
		return engine.Exit{}, nil
	}))
	id, _ := traces.Parse(sent)
	for name, c := range map[string]struct {
		ctx        context.Context
		env        map[string]string
		want       string
		trace, own string // of the record
	}{
		"no trace":           {t.Context(), nil, "", "", ""},
		"a trace":            {traces.With(t.Context(), id), nil, sent, id.Trace, id.Span},
		"beside others":      {traces.With(t.Context(), id), map[string]string{"A": "b"}, sent, id.Trace, id.Span},
		"the request's own":  {traces.With(t.Context(), id), map[string]string{"TRACEPARENT": "mine"}, "mine", id.Trace, id.Span},
		"only the request's": {t.Context(), map[string]string{"TRACEPARENT": "mine"}, "mine", "", ""},
	} {
		names := len(c.env)
		result, err := f.Run(c.ctx, shell("p", "true", func(r *runner.Request) { r.Command.Env = c.env }))
		must(t, err)
		if env["TRACEPARENT"] != c.want || len(env) != names && c.env["TRACEPARENT"] != "" {
			t.Errorf("%s: the job has %v, want %q", name, env, c.want)
		}
		stored, err := f.log.Get(t.Context(), result.Record.ExecID)
		must(t, err)
		if stored.TraceID != c.trace || stored.SpanID != c.own || len(stored.EnvKeys) != names || len(stored.EnvHMACs) != names || len(c.env) != names {
			t.Errorf("%s: %q %q, %v of %d, %v", name, stored.TraceID, stored.SpanID, stored.EnvKeys, names, c.env)
		}
	}
	items, _, err := f.log.List(t.Context(), audit.Filter{TraceID: id.Trace}, nil, 10)
	if err != nil || len(items) != 3 || slices.ContainsFunc(items, func(r audit.Record) bool { return r.SpanID != id.Span }) {
		t.Errorf("by the trace: %d, %v", len(items), err)
	}
}

// TestRefusalHasTheTrace: a request that is refused is found by its trace as well.
func TestRefusalHasTheTrace(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	id, _ := traces.Parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00")
	_, err := f.Run(traces.With(t.Context(), id), shell("p", "true", func(r *runner.Request) { r.Image = "forbidden:1" }))
	if err == nil {
		t.Fatal("not refused")
	}
	items, _, err := f.log.List(t.Context(), audit.Filter{TraceID: id.Trace}, nil, 10)
	if err != nil || len(items) != 1 || items[0].Status != audit.Rejected || items[0].SpanID != id.Span {
		t.Errorf("%+v, %v", items, err)
	}
}
