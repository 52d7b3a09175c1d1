package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"secbox/audit"
)

// commandMetrics measure commands in sandboxes, and changes of files there. Execs have separate
// metrics, which include the start of a container.
type commandMetrics struct {
	ended    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	changes  *prometheus.CounterVec
}

func newCommandMetrics(registry *prometheus.Registry) *commandMetrics {
	register := promauto.With(registry)
	return &commandMetrics{
		ended: register.NewCounterVec(prometheus.CounterOpts{
			Name: "secbox_sandbox_commands_total", Help: "Commands in users' sandboxes that ended, by backend, status and reason.",
		}, []string{"backend", "status", "reason"}),
		duration: register.NewHistogramVec(prometheus.HistogramOpts{
			Name: "secbox_sandbox_command_duration_seconds", Help: "Time from the start to the end of a command in a user's sandbox.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		}, []string{"backend"}),
		changes: register.NewCounterVec(prometheus.CounterOpts{
			Name: "secbox_file_changes_total", Help: "Changes of files in users' workspaces that ended, by backend, status and reason.",
		}, []string{"backend", "status", "reason"}),
	}
}

// Ended implements lifecycle.Observer.
func (m *commandMetrics) Ended(r audit.Record) {
	if r.Kind == audit.KindChange {
		m.changes.WithLabelValues(r.Backend, string(r.Status), string(r.ErrorReason)).Inc()
		return
	}
	m.ended.WithLabelValues(r.Backend, string(r.Status), string(r.ErrorReason)).Inc()
	if !r.StartedAt.IsZero() {
		m.duration.WithLabelValues(r.Backend).Observe(r.EndedAt.Sub(r.StartedAt).Seconds())
	}
}
