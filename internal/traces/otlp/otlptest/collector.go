// Package otlptest is a collector of spans for tests.
package otlptest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"secbox/internal/traces"
	"secbox/internal/traces/otlp"
)

// Collector takes spans by OTLP over HTTP.
type Collector struct {
	URL string
	t   testing.TB

	mu       sync.Mutex
	received []byte
	headers  []http.Header
	spans    []Span
	resource map[string]any
}

// Span is a span as it came.
type Span struct {
	Trace, ID, Parent string // in hexadecimal
	Name              string
	Kind              tracepb.Span_SpanKind
	Start, End        time.Time
	Error             string // the description of its status; empty unless it is an error
	Attributes        map[string]any
}

// Start starts a collector.
func Start(t testing.TB) *Collector {
	c := &Collector{t: t}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

// ServeHTTP implements http.Handler.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := c.take(r); err != nil {
		c.t.Errorf("%s %s: %v", r.Method, r.URL, err)
		w.WriteHeader(http.StatusBadRequest)
	}
}

// Tracer returns a tracer whose spans go to the collector, and flush, which ends it and waits for
// them.
func (c *Collector) Tracer(t testing.TB) (tracer *traces.Tracer, flush func()) {
	e := otlp.New(otlp.Config{
		Endpoint: c.URL, Ratio: 1, Service: "test", Version: "1", Node: "n",
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	flush = func() { e.Close(context.WithoutCancel(t.Context())) }
	t.Cleanup(flush)
	return e.Tracer(), flush
}

func (c *Collector) take(r *http.Request) error {
	if r.URL.Path != "/v1/traces" || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/x-protobuf" {
		return http.ErrNotSupported
	}
	unzipped, err := gzip.NewReader(r.Body)
	if err != nil {
		return err
	}
	content, err := io.ReadAll(unzipped)
	if err != nil {
		return err
	}
	var data tracepb.TracesData
	if err := proto.Unmarshal(content, &data); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received, c.headers = append(c.received, content...), append(c.headers, r.Header)
	for _, resource := range data.ResourceSpans {
		c.resource = map[string]any{}
		for _, a := range resource.Resource.Attributes {
			c.resource[a.Key] = a.Value.GetStringValue()
		}
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, spanOf(s))
			}
		}
	}
	return nil
}

func spanOf(s *tracepb.Span) Span {
	out := Span{
		Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId), Name: s.Name,
		Kind:  s.Kind,
		Start: time.Unix(0, int64(s.StartTimeUnixNano)), End: time.Unix(0, int64(s.EndTimeUnixNano)), Attributes: map[string]any{},
	}
	if s.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR {
		out.Error = s.Status.Message
	}
	for _, a := range s.Attributes {
		switch v := a.Value.Value.(type) {
		case *commonpb.AnyValue_StringValue:
			out.Attributes[a.Key] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			out.Attributes[a.Key] = v.IntValue
		case *commonpb.AnyValue_BoolValue:
			out.Attributes[a.Key] = v.BoolValue
		}
	}
	return out
}

// Spans returns the spans that came until now.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Contains reports whether any message has the text.
func (c *Collector) Contains(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Contains(c.received, []byte(text))
}

// Headers returns the headers of the requests.
func (c *Collector) Headers() []http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]http.Header(nil), c.headers...)
}

// Resource returns the attributes of the resource that the last spans came from.
func (c *Collector) Resource() map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resource
}
