// Package otlp exports spans to a collector by the OpenTelemetry Protocol over HTTP. Nothing waits
// for it: spans that the collector does not take in time are dropped and counted. The package must
// not know what spans are about.
package otlp

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"secbox/internal/traces"
)

// Bounds of what waits for the collector. An exec has about ten spans of some 600 bytes.
const (
	maxWaiting = 8192            // spans; further ones are dropped
	maxBatch   = 512             // spans of one request
	every      = 2 * time.Second // between two requests, unless a batch is full
	timeout    = 10 * time.Second
)

// Config configures an Exporter. All fields are required unless they say otherwise.
type Config struct {
	Endpoint string            // http or https; /v1/traces is added
	Headers  map[string]string // of each request; may be nil
	// Ratio is the share of the traces that begin here and are exported, from 0 to 1. Of other
	// traces, the client decides.
	Ratio   float64
	Service string // the name of this service
	Version string
	Node    string // the id of this process
	Logger  *slog.Logger
}

// Exporter exports spans. It is safe for concurrent use.
type Exporter struct {
	provider  *trace.TracerProvider
	processor trace.SpanProcessor
	client    *client
	idle      chan struct{} // closed when nothing is sent any more
	ended     atomic.Int64
}

// New makes an Exporter. It connects to nothing yet. The caller must call Close.
func New(cfg Config) *Exporter {
	e := &Exporter{client: newClient(cfg), idle: make(chan struct{})}
	e.processor = counted{
		trace.NewBatchSpanProcessor(last{otlptrace.NewUnstarted(e.client), e.idle},
			trace.WithMaxQueueSize(maxWaiting), trace.WithMaxExportBatchSize(maxBatch), trace.WithBatchTimeout(every),
			trace.WithExportTimeout(timeout)),
		&e.ended,
	}
	limits := trace.NewSpanLimits()
	limits.AttributeCountLimit, limits.EventCountLimit, limits.LinkCountLimit = 64, 0, 8
	e.provider = trace.NewTracerProvider(
		trace.WithSampler(trace.ParentBased(trace.TraceIDRatioBased(cfg.Ratio))),
		trace.WithRawSpanLimits(limits),
		trace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", cfg.Service), attribute.String("service.version", cfg.Version),
			attribute.String("service.instance.id", cfg.Node),
		)),
		trace.WithSpanProcessor(e.processor),
	)
	return e
}

// Tracer returns the tracer whose spans are exported.
func (e *Exporter) Tracer() *traces.Tracer { return traces.New(e.provider) }

// Spans returns how many spans have ended until now, and how many of them the collector has taken.
func (e *Exporter) Spans() (ended, sent int64) { return e.ended.Load(), e.client.sent.Load() }

// Close sends the spans that wait, until ctx ends, and drops the others. Spans that end later are
// dropped.
func (e *Exporter) Close(ctx context.Context) {
	_ = e.processor.Shutdown(ctx) // it fails only with ctx
	e.client.stop()
	<-e.idle // soon: requests fail now
	e.client.http.CloseIdleConnections()
}

// last tells when the processor is done, for which its Shutdown does not wait after the end of its
// context.
type last struct {
	trace.SpanExporter
	idle chan struct{}
}

// Shutdown implements trace.SpanExporter. The processor calls it once.
func (l last) Shutdown(ctx context.Context) error {
	defer close(l.idle)
	return l.SpanExporter.Shutdown(ctx)
}

// counted counts the spans that end.
type counted struct {
	trace.SpanProcessor
	ended *atomic.Int64
}

// OnEnd implements trace.SpanProcessor.
func (c counted) OnEnd(s trace.ReadOnlySpan) {
	c.ended.Add(1)
	c.SpanProcessor.OnEnd(s)
}

func newClient(cfg Config) *client {
	c := &client{
		endpoint: cfg.Endpoint, headers: cfg.Headers, log: cfg.Logger, pauses: []time.Duration{time.Second, 3 * time.Second},
		http: &http.Client{
			Transport: http.DefaultTransport.(*http.Transport).Clone(),
			// another address must not get the headers
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	c.running, c.stop = context.WithCancel(context.Background())
	return c
}
