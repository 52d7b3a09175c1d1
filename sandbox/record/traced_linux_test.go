package record_test

import (
	"testing"

	"secbox/sandbox"
	"secbox/traces"
)

// TestCommandKnowsItsSpan: a command of a request with a trace has it in its environment and on record, and its caller's own variable wins.
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
