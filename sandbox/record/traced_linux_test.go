package record_test

import (
	"context"
	"testing"

	"secbox/internal/traces"
	"secbox/internal/traces/otlp/otlptest"
	"secbox/sandbox"
	"secbox/sandbox/record"
)

// TestCommandKnowsItsSpan: a command of a request with a trace has it in its environment and on
// record, and its caller's own variable wins.
func TestCommandKnowsItsSpan(t *testing.T) {
	t.Parallel()
	const sent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	id, _ := traces.Parse(sent)
	for name, c := range map[string]struct {
		env  []string
		want string
	}{
		"its span":  {nil, sent},
		"its own":   {[]string{"A=b", "TRACEPARENT=mine"}, "mine"},
		"lookalike": {[]string{"TRACEPARENT2=x"}, sent},
	} {
		f := setUp(t, onSQLite(t))
		res, err := f.Exec(traces.With(t.Context(), id), sandbox.ExecSpec{Command: `printf %s "$TRACEPARENT"`, Shell: true, Env: c.env, User: user})
		if err != nil || res.Stdout != c.want {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
		if row := f.only(); row.TraceID != id.Trace || row.SpanID != id.Span || len(row.EnvKeys) != len(c.env) {
			t.Errorf("%s: %q %q, %v", name, row.TraceID, row.SpanID, row.EnvKeys)
		}
	}
}

// TestSpansOfACommand: a command has a span for each stage, and nothing that it was given or wrote
// is in one. So has a change of a file.
func TestSpansOfACommand(t *testing.T) {
	t.Parallel()
	c := otlptest.Start(t)
	tracer, flush := c.Tracer(t)
	f := setUp(t, onSQLite(t), func(cfg *record.Config) { cfg.Tracer = tracer })
	res, err := f.Exec(t.Context(), sandbox.ExecSpec{
		Command: `printf %s "$TRACEPARENT"; echo s3cret-output >&2; exit 4 # s3cret-argument`, Shell: true, Env: []string{"s3cret-name=s3cret-value"},
		Stdin: "s3cret-stdin", User: user,
	})
	if err != nil {
		t.Fatal(err)
	}
	row := f.only()
	if _, err := f.Change(t.Context(), sandbox.Change{User: user, Tool: "edit", Path: "s3cret-file"},
		func(context.Context, sandbox.Location) (sandbox.Digests, error) { return sandbox.Digests{}, nil }); err != nil {
		t.Fatal(err)
	}
	flush()
	spans := map[string]otlptest.Span{}
	for _, s := range c.Spans() {
		spans[s.Name] = s
	}
	command := spans["sandbox command"]
	for _, stage := range []string{"policy", "container", "open", "job", "close"} {
		if s := spans[stage]; s.Parent != command.ID || s.Trace != command.Trace || s.Error != "" {
			t.Errorf("%s: %+v", stage, s)
		}
	}
	if row.TraceID != command.Trace || row.SpanID != command.ID || res.Stdout != "00-"+command.Trace+"-"+command.ID+"-01" || command.Error != "nonzero_exit" ||
		command.Attributes["secbox.exec.id"] != row.ExecID ||
		command.Attributes["secbox.backend"] != sandbox.None || command.Attributes["secbox.stderr.bytes"] != int64(14) {
		t.Errorf("%+v, on record %s %s, %q", command, row.TraceID, row.SpanID, res.Stdout)
	}
	if change := spans["file change"]; change.Attributes["secbox.exec.kind"] != "change" || change.Error != "" || len(spans) != 7 {
		t.Errorf("%+v among %d", change, len(spans))
	}
	for _, secret := range []string{"s3cret-output", "s3cret-argument", "s3cret-name", "s3cret-value", "s3cret-stdin", "s3cret-file"} {
		if c.Contains(secret) {
			t.Errorf("%s was exported", secret)
		}
	}
}
