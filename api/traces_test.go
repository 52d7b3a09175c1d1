package api_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/api/wire"
	"secbox/internal/traces/otlp/otlptest"
)

// TestRequestsTrace: an exec is found by the trace that its request names, by its own token only; a
// header that names none is ignored.
func TestRequestsTrace(t *testing.T) {
	t.Parallel()
	f := start(t)
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	_, secret := f.token(tokens.Spec{Role: tokens.Worker})
	_, other := f.token(tokens.Spec{Role: tokens.Worker})
	for _, header := range []string{
		"00-" + trace + "-" + span + "-01", "", "00-" + strings.Repeat("0", 32) + "-" + span + "-01", "00-" + trace, strings.Repeat("00-", 10_000),
		"ff-" + trace + "-" + span + "-01", "\xff\xfe",
	} {
		reply := f.do(request{
			method: "POST", path: "/sandbox/execs", body: `{"project_id": "p", "exec": {"script": "true"}}`, token: secret,
			header: map[string]string{"traceparent": header},
		})
		if reply.StatusCode != http.StatusOK {
			t.Errorf("%.60q: %d %s", header, reply.StatusCode, reply.body)
		}
	}
	for token, want := range map[string]int{secret: 1, other: 0} {
		var page wire.ExecList
		reply := f.do(request{path: "/sandbox/execs?trace_id=" + trace, token: token})
		if err := json.Unmarshal(reply.body, &page); err != nil || len(page.Items) != want {
			t.Fatalf("%v, %s", err, reply.body)
		}
		for _, item := range page.Items {
			if item.TraceID != trace || item.SpanID != span {
				t.Errorf("%+v", item)
			}
		}
	}
}

// TestSpanOfARequest: a request of a token has a span with its route and no path; one without a
// valid token has none.
func TestSpanOfARequest(t *testing.T) {
	t.Parallel()
	c := otlptest.Start(t)
	tracer, flush := c.Tracer(t)
	f := start(t, func(cfg *api.Config) { cfg.Tracer = tracer })
	_, secret := f.token(tokens.Spec{Role: tokens.Worker})
	sent := map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
	var ran wire.ExecResult
	reply := f.do(request{
		method: "POST", path: "/sandbox/execs",
		body: `{"project_id": "p", "exec": {"script": "echo s3cret-script", "env": {"A": "s3cret-value"}}}`, token: secret, header: sent,
	})
	if err := json.Unmarshal(reply.body, &ran); err != nil {
		t.Fatal(err)
	}
	f.do(request{path: "/sandbox/execs/" + ran.ExecID + "/artifacts/s3cret-file", token: secret, header: sent})
	f.do(request{path: "/audit/log/checkpoint", token: secret}) // not for workers
	f.do(request{path: "/sandbox/execs", token: "wrong"})
	f.do(request{path: "/healthz"})
	var row wire.ExecRecord
	if err := json.Unmarshal(f.do(request{path: "/sandbox/execs/" + ran.ExecID, token: secret}).body, &row); err != nil {
		t.Fatal(err)
	}
	flush()
	names := map[string]int64{}
	for _, s := range c.Spans() {
		status, _ := s.Attributes["http.response.status_code"].(int64)
		names[s.Name] = status
		if s.Name == "POST /sandbox/execs" && (s.Trace != row.TraceID || s.ID != row.SpanID || s.Parent != "00f067aa0ba902b7" ||
			s.Kind != tracepb.Span_SPAN_KIND_SERVER || s.Error != "" || s.Attributes["secbox.request.id"] != reply.Header.Get("X-Request-Id")) {
			t.Errorf("%+v, on record %s %s", s, row.TraceID, row.SpanID)
		}
	}
	want := map[string]int64{
		"POST /sandbox/execs": 200, "GET /sandbox/execs/{exec_id}/artifacts/{path}": 404, "GET /audit/log/checkpoint": 403,
		"GET /sandbox/execs/{exec_id}": 200,
	}
	if !maps.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
	for _, secret := range []string{"s3cret-script", "s3cret-value", "s3cret-file", secret} {
		if c.Contains(secret) {
			t.Errorf("%s was exported", secret)
		}
	}
}
