package console_test

import (
	"strings"
	"testing"
)

// TestExecLeadsToItsTrace: the page of an exec has its trace and span to copy, and leads to the
// other execs of the trace.
func TestExecLeadsToItsTrace(t *testing.T) {
	t.Parallel()
	f := fullApp()
	v := newVisitor(t, f.serve(t))
	path := "/console/execs/" + execID(2)
	if _, page := v.get(path); strings.Contains(page, "<dt>Trace</dt>") {
		t.Error("an exec without a trace has one")
	}
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	f.records[58].TraceID, f.records[58].SpanID = trace, span
	_, page := v.get(path)
	for _, want := range []string{"<dt>Trace</dt>", `href="/console/history?trace_id=` + trace + `"`, `data-copy="` + trace + `"`, `data-copy="` + span + `"`} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
	if resp, page := v.get("/console/history?trace_id=" + trace); resp.StatusCode != 200 || !strings.Contains(page, `name="trace_id"`) {
		t.Errorf("%d: %.400s", resp.StatusCode, page)
	}
}
