package server

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"secbox/audit"
)

func TestSessionsAreCounted(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m := newMetrics(registry)
	m.Ended(audit.Record{ExecID: "a", SessionID: "a", Status: audit.Canceled, ErrorReason: audit.SessionIdle})
	m.Ended(audit.Record{ExecID: "b", SessionID: "a", Status: audit.Succeeded})
	m.Ended(audit.Record{ExecID: "c", SessionID: "a", Status: audit.Succeeded})
	m.Ended(audit.Record{ExecID: "d", Status: audit.Failed})
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	var got []string
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "secbox_session") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	want := `secbox_session_execs_total{status="succeeded"} 2` + "\n" + `secbox_sessions_ended_total{reason="idle"} 1`
	if strings.Join(got, "\n") != want {
		t.Errorf("%q", got)
	}
}
