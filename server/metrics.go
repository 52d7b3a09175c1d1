package server

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"secbox/audit"
	"secbox/engine"
	"secbox/runner"
	"secbox/skills"
)

// metrics measure execs and skills. Package api measures requests, package health what an exec
// needs.
type metrics struct {
	registry *prometheus.Registry
	ended    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	output   *prometheus.CounterVec
	invokes  *prometheus.CounterVec
	sessions *prometheus.CounterVec
	inside   *prometheus.CounterVec
	slotAge  prometheus.Histogram
	refill   prometheus.Histogram

	endedExecs, failedExecs atomic.Int64 // for samples
}

func newMetrics(registry *prometheus.Registry) *metrics {
	register := promauto.With(registry)
	return &metrics{
		registry: registry,
		ended: register.NewCounterVec(prometheus.CounterOpts{
			Name: "secbox_execs_total", Help: "Execs that ended, by status and reason.",
		}, []string{"status", "reason", "warm"}),
		duration: register.NewHistogramVec(prometheus.HistogramOpts{
			Name: "secbox_exec_duration_seconds", Help: "Time from a job's start to its end.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		}, []string{"warm"}),
		output: register.NewCounterVec(prometheus.CounterOpts{
			Name: "secbox_exec_output_bytes_total", Help: "Bytes that jobs wrote, kept or not.",
		}, []string{"stream"}),
		invokes: register.NewCounterVec(prometheus.CounterOpts{
			Name: "secbox_skill_invokes_total", Help: "Invokes of skills, by the status of the exec or the code of the refusal.",
		}, []string{"skill", "status"}),
		sessions: register.NewCounterVec(prometheus.CounterOpts{
			Name: "secbox_sessions_ended_total", Help: "Sessions that ended, by reason.",
		}, []string{"reason"}),
		inside: register.NewCounterVec(prometheus.CounterOpts{
			Name: "secbox_session_execs_total", Help: "Execs in sessions that ended, by status.",
		}, []string{"status"}),
		slotAge: register.NewHistogram(prometheus.HistogramOpts{
			Name: "secbox_pool_slot_age_seconds", Help: "For how long a container had been there when it was given a job.",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800},
		}),
		refill: register.NewHistogram(prometheus.HistogramOpts{
			Name: "secbox_pool_refill_seconds", Help: "Time to start a container ahead of its job.",
			Buckets: []float64{.05, .1, .15, .2, .25, .3, .4, .5, .75, 1, 2, 5, 10, 30},
		}),
	}
}

func (m *metrics) slotTaken(age time.Duration)  { m.slotAge.Observe(age.Seconds()) }
func (m *metrics) slotReady(took time.Duration) { m.refill.Observe(took.Seconds()) }

// watchPool adds the counters of the pool.
func (m *metrics) watchPool(p *engine.Pool) { m.registry.MustRegister(poolCollector{p}) }

// poolCollector reads all values at one moment.
type poolCollector struct{ pool *engine.Pool }

var (
	poolSlots = prometheus.NewDesc("secbox_pool_slots", "Containers without a job now, by state.", []string{"state"}, nil)
	poolTaken = prometheus.NewDesc("secbox_pool_requests_total",
		"Execs that ran, by whether a container had been started ahead (hit) or not (miss).", []string{"result"}, nil)
	poolStarts = prometheus.NewDesc("secbox_pool_refills_total", "Containers started ahead, by how that went.", []string{"result"}, nil)
	poolShared = prometheus.NewDesc("secbox_pool_shared", "1 if waiting containers serve any project, 0 if each serves its own.", nil,
		nil)
	poolUnattached = prometheus.NewDesc("secbox_pool_unattached_total",
		"Execs that started a container of their own because the project's directories could not be attached to a waiting one.", nil, nil)
	poolGone = prometheus.NewDesc("secbox_pool_dropped_total", "Containers that went without a job, by reason.", []string{"reason"}, nil)
)

func (c poolCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{poolSlots, poolTaken, poolStarts, poolGone, poolShared, poolUnattached} {
		out <- d
	}
}

func (c poolCollector) Collect(out chan<- prometheus.Metric) {
	s := c.pool.Stats()
	emit := func(desc *prometheus.Desc, kind prometheus.ValueType, value int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, kind, float64(value), labels...)
	}
	shared := int64(0)
	if s.Shared {
		shared = 1
	}
	emit(poolShared, prometheus.GaugeValue, shared)
	emit(poolUnattached, prometheus.CounterValue, s.Unattached)
	emit(poolSlots, prometheus.GaugeValue, int64(s.Waiting), "waiting")
	emit(poolSlots, prometheus.GaugeValue, int64(s.Starting), "starting")
	emit(poolTaken, prometheus.CounterValue, s.Hits, "hit")
	emit(poolTaken, prometheus.CounterValue, s.Misses, "miss")
	emit(poolStarts, prometheus.CounterValue, s.Refills, "ready")
	emit(poolStarts, prometheus.CounterValue, s.Failures, "failed")
	for _, d := range s.Dropped.Reasons() {
		emit(poolGone, prometheus.CounterValue, d.N, d.Reason)
	}
}

// watchRunner adds the gauges of the runner.
func (m *metrics) watchRunner(r *runner.Runner) {
	gauge(m.registry, "secbox_execs_running", "Execs that run now.", func() int { running, _ := r.Load(); return running })
	gauge(m.registry, "secbox_execs_queued", "Execs that wait for a place.", func() int { _, waiting := r.Load(); return waiting })
	gauge(m.registry, "secbox_sessions", "Sessions that run or start on this node.", r.Sessions)
	counter(m.registry, "secbox_sessions_started_total", "Sessions whose container has started.",
		func() int64 { return r.SessionTotals().Started })
	counter(m.registry, "secbox_session_contexts_lost_total", "Interpreters that ended, neither by request nor with their session.",
		func() int64 { return r.SessionTotals().ContextsLost })
}

// gauge registers a gauge whose value is counted when it is read.
func gauge(registry *prometheus.Registry, name, help string, value func() int) {
	promauto.With(registry).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
}

// counter registers a counter whose value is read when it is asked for.
func counter(registry *prometheus.Registry, name, help string, value func() int64) {
	promauto.With(registry).NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
}

// Ended implements runner.Observer.
func (m *metrics) Ended(r audit.Record) {
	warm := strconv.FormatBool(r.Warm)
	m.ended.WithLabelValues(string(r.Status), string(r.ErrorReason), warm).Inc()
	switch {
	case r.IsSession():
		m.sessions.WithLabelValues(runner.EndReason(r)).Inc()
	case r.SessionID != "":
		m.inside.WithLabelValues(string(r.Status)).Inc()
	}
	m.endedExecs.Add(1)
	switch r.Status {
	case audit.Failed, audit.Errored, audit.Timeout, audit.OOMKilled, audit.Lost:
		m.failedExecs.Add(1)
	}
	if r.Status != audit.Rejected && !r.StartedAt.IsZero() {
		m.duration.WithLabelValues(warm).Observe(r.EndedAt.Sub(r.StartedAt).Seconds())
	}
	m.output.WithLabelValues("stdout").Add(float64(r.StdoutBytes))
	m.output.WithLabelValues("stderr").Add(float64(r.StderrBytes))
}

// watchSkills adds the gauges of the catalog.
func (m *metrics) watchSkills(catalog *skills.Catalog) {
	gauge(m.registry, "secbox_skills_loaded", "Skills that can be invoked.", func() int { return len(catalog.Now().Skills()) })
	gauge(m.registry, "secbox_skills_broken", "Folders that are meant to be skills and cannot be used.",
		func() int { return len(catalog.Now().Broken()) })
}
