package otlp_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"secbox/internal/traces"
	"secbox/internal/traces/otlp"
	"secbox/internal/traces/otlp/otlptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func config(endpoint string) otlp.Config {
	return otlp.Config{Endpoint: endpoint, Ratio: 1, Service: "core-api", Version: "1", Node: "node-1", Logger: slog.New(slog.DiscardHandler)}
}

// TestSpansReachTheCollector: with their parents, attributes and errors, after Close at the latest.
func TestSpansReachTheCollector(t *testing.T) {
	t.Parallel()
	c := otlptest.Start(t)
	cfg := config(c.URL + "/")
	cfg.Headers = map[string]string{"X-Key": "k"}
	e := otlp.New(cfg)
	parent, _ := traces.Parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	ctx, root := e.Tracer().Serve(traces.With(t.Context(), parent), "root")
	id := traces.Of(ctx)
	_, stage := e.Tracer().Start(ctx, "stage\xff"+strings.Repeat("n", 1000))
	stage.Set(traces.Text("text", "a\xffb"+strings.Repeat("é", 500)), traces.Int("number", 7), traces.Bool("truth", true))
	stage.End("some_code")
	root.End("")
	e.Close(t.Context())
	e.Close(t.Context()) // again

	spans := c.Spans()
	if len(spans) != 2 {
		t.Fatalf("%+v", spans)
	}
	s, r := spans[0], spans[1]
	if r.Trace != parent.Trace || r.Parent != parent.Span || r.ID != id.Span || r.Error != "" || s.Trace != parent.Trace || s.Parent != r.ID ||
		s.Error != "some_code" {
		t.Errorf("%+v", spans)
	}
	text, _ := s.Attributes["text"].(string)
	if !strings.HasPrefix(text, "abéé") || len(text) > 255 || s.Attributes["number"] != int64(7) || s.Attributes["truth"] != true ||
		s.Attributes["error.type"] != "some_code" || len(s.Name) > 255 {
		t.Errorf("%q %v", s.Name, s.Attributes)
	}
	if got := c.Resource(); got["service.name"] != "core-api" || got["service.version"] != "1" || got["service.instance.id"] != "node-1" {
		t.Errorf("%v", got)
	}
	if h := c.Headers(); len(h) != 1 || h[0].Get("X-Key") != "k" {
		t.Errorf("%v", h)
	}
	if ended, sent := e.Spans(); ended != 2 || sent != 2 {
		t.Errorf("%d ended, %d sent", ended, sent)
	}
}

// TestSampling: the client's decision counts, and otherwise the ratio. What is not exported is
// passed on all the same.
func TestSampling(t *testing.T) {
	t.Parallel()
	c := otlptest.Start(t)
	cfg := config(c.URL)
	cfg.Ratio = 0
	e := otlp.New(cfg)
	for _, sent := range []string{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-5bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", ""} {
		id, _ := traces.Parse(sent)
		ctx, span := e.Tracer().Start(traces.With(t.Context(), id), "root")
		if now := traces.Of(ctx); now.Span == id.Span || now.Sampled != id.Sampled || sent != "" && now.Trace != id.Trace || now.Trace == "" ||
			span.Recording() != id.Sampled {
			t.Errorf("%s: %s, recorded %v", sent, now, span.Recording())
		}
		span.End("")
	}
	e.Close(t.Context())
	if spans := c.Spans(); len(spans) != 1 || !strings.HasPrefix(spans[0].Trace, "4bf9") {
		t.Errorf("%+v", spans)
	}
}

// TestCollectorAway: spans are dropped and counted, no caller waits for the collector, and the log
// has one warning.
func TestCollectorAway(t *testing.T) {
	t.Parallel()
	held, release := make(chan struct{}, 1), make(chan struct{})
	refusals := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refusals++; refusals > 1 { // requests come one after the other
			select {
			case held <- struct{}{}:
			default:
			}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	defer close(release)
	var log syncBuffer
	cfg := config(server.URL)
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	e := otlp.New(cfg)
	const spans = 20_000 // more than wait
	for range spans {
		_, span := e.Tracer().Start(t.Context(), "s")
		span.End("")
	}
	<-held // a request hangs, and the first was refused
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e.Close(ctx) // does not wait for the request
	if ended, sent := e.Spans(); ended != spans || sent != 0 {
		t.Errorf("%d ended, %d sent", ended, sent)
	}
	if text := log.String(); strings.Count(text, "takes no spans") != 1 || !strings.Contains(text, "403") || strings.Count(text, "\n") != 1 {
		t.Errorf("the log: %s", text)
	}
}

// TestCollectorRestarts: an answer that may pass is no loss.
func TestCollectorRestarts(t *testing.T) {
	t.Parallel()
	c := otlptest.Start(t)
	first := true
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if first {
			first = false
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		c.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	e := otlp.New(config(proxy.URL))
	_, span := e.Tracer().Start(t.Context(), "s")
	span.End("")
	e.Close(t.Context())
	if ended, sent := e.Spans(); ended != 1 || sent != 1 || len(c.Spans()) != 1 {
		t.Errorf("%d ended, %d sent, %d came", ended, sent, len(c.Spans()))
	}
}

// TestHeadersStayWithTheCollector: a redirect is refused.
func TestHeadersStayWithTheCollector(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s with %v", r.URL, r.Header) }))
	defer elsewhere.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	cfg := config(server.URL)
	cfg.Headers = map[string]string{"X-Key": "k"}
	e := otlp.New(cfg)
	_, span := e.Tracer().Start(t.Context(), "s")
	span.End("")
	e.Close(t.Context())
	if _, sent := e.Spans(); sent != 0 {
		t.Errorf("%d sent", sent)
	}
}

// TestOffCostsNothing: without a tracer, stages allocate nothing.
func TestOffCostsNothing(t *testing.T) {
	var off *traces.Tracer
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { stage(ctx, off) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func stage(ctx context.Context, tracer *traces.Tracer) (err error) {
	ctx, span := tracer.Start(ctx, "stage")
	defer span.Done(&err)
	if span.Recording() || ctx.Err() != nil {
		span.Set(traces.Text("a", "b"))
	}
	return nil
}

// BenchmarkStage measures a stage, off and on.
func BenchmarkStage(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	e := otlp.New(config(server.URL))
	defer e.Close(context.Background())
	for name, tracer := range map[string]*traces.Tracer{"off": nil, "on": e.Tracer()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = stage(b.Context(), tracer)
			}
		})
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
