package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"secbox/fault"
	"secbox/internal/buildinfo"
	"secbox/internal/traces/otlp"
)

// flushTimeout is how long Shutdown waits for the collector of traces.
const flushTimeout = 3 * time.Second

// makeTracer makes the exporter of spans if the settings name a collector. It connects to nothing
// yet. shutdown closes it.
func (s *Server) makeTracer(context.Context) error {
	cfg := s.settings.Traces
	if cfg.Endpoint == "" {
		return nil
	}
	headers, err := cfg.HeaderMap()
	if err != nil {
		return fault.Wrap(fault.InvalidSettings, err, "CORE_API_TRACES_HEADERS: %s", err)
	}
	s.spans = otlp.New(otlp.Config{
		Endpoint: cfg.Endpoint, Headers: headers, Ratio: cfg.SampleRatio, Service: cfg.ServiceName, Version: buildinfo.Version,
		Node: s.state.NodeID(), Logger: s.log,
	})
	s.tracer = s.spans.Tracer()
	for name, c := range map[string]struct {
		help string
		of   func(ended, sent int64) int64
	}{
		"secbox_trace_spans_ended_total": {"Spans that ended and are to be exported.", func(ended, _ int64) int64 { return ended }},
		"secbox_trace_spans_sent_total": {
			"Spans that the collector has taken. The others wait for the next request, or were dropped.",
			func(_, sent int64) int64 { return sent },
		},
	} {
		s.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: c.help},
			func() float64 { return float64(c.of(s.spans.Spans())) }))
	}
	return nil
}

// flushSpans sends the spans that wait for the collector.
func (s *Server) flushSpans() {
	if s.spans == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	s.spans.Close(ctx)
}
