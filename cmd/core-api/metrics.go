package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"secbox/audit"
	"secbox/runner"
)

// metrics are the numbers about execs; api has those about requests, health those about what an exec needs.
type metrics struct {
	registry *prometheus.Registry
	ended    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	output   *prometheus.CounterVec
}

func newMetrics(registry *prometheus.Registry) *metrics {
	m := &metrics{
		registry: registry,
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "secbox_execs_total", Help: "Execs that ended, by status and reason.",
		}, []string{"status", "reason", "warm"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "secbox_exec_duration_seconds", Help: "Time from a job's start to its end.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		}, []string{"warm"}),
		output: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "secbox_exec_output_bytes_total", Help: "Bytes that jobs wrote, kept or not.",
		}, []string{"stream"}),
	}
	registry.MustRegister(m.ended, m.duration, m.output)
	return m
}

// watch adds the gauges of a runner.
func (m *metrics) watch(r *runner.Runner) {
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "secbox_execs_running", Help: "Execs that run now."},
			func() float64 { running, _ := r.Load(); return float64(running) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "secbox_execs_queued", Help: "Execs that wait for a place."},
			func() float64 { _, waiting := r.Load(); return float64(waiting) }),
	)
}

// Ended counts one exec.
func (m *metrics) Ended(r audit.Record) {
	warm := "false"
	if r.Warm {
		warm = "true"
	}
	m.ended.WithLabelValues(string(r.Status), string(r.ErrorReason), warm).Inc()
	if r.Status != audit.Rejected && !r.StartedAt.IsZero() {
		m.duration.WithLabelValues(warm).Observe(r.EndedAt.Sub(r.StartedAt).Seconds())
	}
	m.output.WithLabelValues("stdout").Add(float64(r.StdoutBytes))
	m.output.WithLabelValues("stderr").Add(float64(r.StderrBytes))
}
