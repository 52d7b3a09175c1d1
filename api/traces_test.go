package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"secbox/api"
	"secbox/tokens"
)

// TestRequestsTrace: an exec is found by the trace that its request names, by its own token only; a header that names none is ignored.
func TestRequestsTrace(t *testing.T) {
	t.Parallel()
	f := start(t)
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	_, secret := f.token(tokens.Spec{Role: tokens.Worker})
	_, other := f.token(tokens.Spec{Role: tokens.Worker})
	for _, header := range []string{
		"00-" + trace + "-" + span + "-01", "", "00-" + strings.Repeat("0", 32) + "-" + span + "-01", "00-" + trace, strings.Repeat("00-", 10_000), "ff-" + trace + "-" + span + "-01", "\xff\xfe",
	} {
		reply := f.do(request{method: "POST", path: "/sandbox/execs", body: `{"project_id": "p", "exec": {"script": "true"}}`, token: secret, header: map[string]string{"traceparent": header}})
		if reply.StatusCode != http.StatusOK {
			t.Errorf("%.60q: %d %s", header, reply.StatusCode, reply.body)
		}
	}
	for token, want := range map[string]int{secret: 1, other: 0} {
		var page api.ExecList
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
