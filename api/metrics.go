package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"secbox/api/inflight"
	"secbox/fault"
)

// metrics are the HTTP metrics. Their labels come from the contract only, so that a client cannot
// create new ones.
type metrics struct {
	inFlight prometheus.Gauge
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(registry *prometheus.Registry, memory *inflight.Quota) (*metrics, error) {
	m := &metrics{
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "secbox_http_requests_in_flight", Help: "HTTP requests that are being answered now.",
		}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "secbox_http_requests_total", Help: "HTTP requests answered, by route, method and status code.",
		}, []string{"route", "method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "secbox_http_request_duration_seconds", Help: "Time from a request's header to the end of its answer.",
			// An exec takes from about 0.1 s to its timeout, all other requests far less.
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		}, []string{"route", "method"}),
	}
	held := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "secbox_http_memory_bytes",
		Help: "Bytes that the bodies and answers of requests take now, as http.max_memory_bytes counts them.",
	}, memory.Bytes)
	for _, c := range []prometheus.Collector{m.inFlight, m.requests, m.seconds, held} {
		if err := registry.Register(c); err != nil {
			return nil, fault.Wrap(fault.Internal, err, "cannot register the HTTP metrics")
		}
	}
	return m, nil
}

func (m *metrics) count(route, method string, status int, took time.Duration) {
	if route == "" {
		route = "none"
	}
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		method = "other"
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route, method).Observe(took.Seconds())
}
