package api

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"secbox/fault"
)

// metrics are the HTTP metrics. Labels come from the contract only, so that no client can make new ones.
type metrics struct {
	inFlight prometheus.Gauge
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(registry *prometheus.Registry, memory *quota) (*metrics, error) {
	m := &metrics{
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "secbox_http_requests_in_flight", Help: "HTTP requests that are being answered now.",
		}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "secbox_http_requests_total", Help: "HTTP requests answered, by route, method and status code.",
		}, []string{"route", "method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "secbox_http_request_duration_seconds", Help: "Time from a request's header to the end of its answer.",
			// An exec takes from some 0.1 s to its time-out, everything else far less.
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		}, []string{"route", "method"}),
	}
	held := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "secbox_http_memory_bytes", Help: "Bytes that the bodies and answers of requests take now, as http.max_memory_bytes counts them.",
	}, memory.total)
	for _, c := range []prometheus.Collector{m.inFlight, m.requests, m.seconds, held} {
		if err := registry.Register(c); err != nil {
			return nil, fault.Wrap(fault.Internal, err, "the HTTP metrics cannot be registered")
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

// GetMetrics shows the registry.
func (s *Server) GetMetrics(ctx context.Context, _ GetMetricsRequestObject) (GetMetricsResponseObject, error) {
	return metricsAnswer{
		handler: promhttp.HandlerFor(s.cfg.Registry, promhttp.HandlerOpts{DisableCompression: true}),
		request: callFrom(ctx).request,
	}, nil
}

type metricsAnswer struct {
	handler http.Handler
	request *http.Request
}

// VisitGetMetricsResponse writes the answer.
func (a metricsAnswer) VisitGetMetricsResponse(w http.ResponseWriter) error {
	a.handler.ServeHTTP(w, a.request)
	return nil
}
