package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/access/tokens"
	"secbox/internal/traces/otlp/otlptest"
	"secbox/sandbox/remote/machine"
	"secbox/settings"
)

// TestTraces: spans of execs, calls of tools, and commands in sandboxes reach the collector of the
// settings, the last ones when the server ends. None has what clients sent or jobs wrote.
func TestTraces(t *testing.T) {
	t.Parallel()
	c := otlptest.Start(t)
	s := start(t, func(cfg *settings.Settings) { cfg.Traces.Endpoint = c.URL })
	_, s.token = s.newToken(tokens.Spec{Role: tokens.Admin})
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	const parent = "00-" + trace + "-00f067aa0ba902b7-01"

	secrets := []string{
		"s3cret-script", "s3cret-value", "s3cret-stdin", "s3cret-input", "s3cret-name", "s3cret-output", "s3cret-artifact", "s3cret-argument",
		s.token,
	}
	request := shell("traced", "echo $TRACEPARENT; echo s3cret-output >&2; touch /workspace/artifacts/s3cret-artifact # s3cret-script", "inputs",
		[]object{{"path": "s3cret-name", "content": "s3cret-input"}})
	request["exec"].(object)["env"], request["exec"].(object)["stdin"] = object{"A": "s3cret-value"}, "s3cret-stdin"
	ran := s.send(http.MethodPost, "/sandbox/execs", request, "Traceparent", parent).json(t)
	s.send(http.MethodGet, "/sandbox/execs/"+ran.str("exec_id")+"/artifacts/s3cret-artifact", nil, "Traceparent", parent)

	queued := s.send(http.MethodPost, "/sandbox/execs", shell("traced", "echo $TRACEPARENT"), "Prefer", "respond-async", "Traceparent", parent).json(t)
	s.get("/sandbox/execs/" + queued.str("exec_id") + "/wait?timeout_ms=60000")

	session := s.mcpClient("?project_id=traced", nil)
	if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{
		Meta: mcp.Meta{"traceparent": parent}, Name: "skill.shell.run", Arguments: map[string]any{"script": "echo s3cret-output # s3cret-argument"},
	}); err != nil {
		t.Fatal(err)
	}

	s.worksIn("far", object{"backend": "remote"})
	s.dialIn("far", "laptop", t.TempDir(), machine.AllowExec)
	for _, user := range []string{"near", "far"} {
		answer := s.send(http.MethodPost, "/v1/sandbox/"+user+"/ag/execute?command=bash", []string{"-c", "echo $TRACEPARENT; : s3cret-argument"}, "Traceparent",
			parent)
		if answer.Code != http.StatusOK || !strings.Contains(answer.json(t).str("data.stdout"), trace) {
			t.Errorf("%s: %d %s", user, answer.Code, answer.Body)
		}
	}

	rows := map[string]object{} // by span
	for _, row := range s.get("/sandbox/execs?trace_id=" + trace).list("items") {
		rows[row.str("span_id")] = row
	}
	if len(rows) != 5 {
		t.Errorf("%d records of the trace, want 5", len(rows))
	}
	if err := s.app.Close(); err != nil {
		t.Fatal(err)
	}
	byID, names := map[string]otlptest.Span{}, map[string]int{}
	for _, span := range c.Spans() {
		byID[span.ID] = span
		if span.Trace == trace {
			names[span.Name]++
		}
	}
	for id, row := range rows {
		span := byID[id]
		if span.Attributes["secbox.exec.id"] != row.str("exec_id") || span.Trace != trace || byID[span.Parent].Parent != "00f067aa0ba902b7" {
			t.Errorf("the record %v has the span %+v", row.str("exec_id"), span)
		}
		if row.str("exec_id") == ran.str("exec_id") && ran.str("stdout") != "00-"+trace+"-"+id+"-01\n" {
			t.Errorf("the job has %q, its span is %s", ran.str("stdout"), id)
		}
	}
	for name, want := range map[string]int{
		"exec": 3, "queued exec": 1, "queue": 1, "sandbox command": 2, "tools/call skill.shell.run": 1, "job": 5,
		"collection": 3, "close": 5, "start": 3,
	} {
		if names[name] != want {
			t.Errorf("%d spans %q, want %d", names[name], name, want)
		}
	}
	for _, secret := range secrets {
		if c.Contains(secret) {
			t.Errorf("%s was exported", secret)
		}
	}
}
