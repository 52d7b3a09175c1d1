package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// client sends spans over HTTP. The client of OpenTelemetry does too, but brings gRPC into the
// program, 5 MB of it.
type client struct {
	endpoint string
	headers  map[string]string
	http     *http.Client
	log      *slog.Logger
	pauses   []time.Duration // before a failed request is sent again
	running  context.Context // ends with stop
	stop     context.CancelFunc
	sent     atomic.Int64

	mu     sync.Mutex
	warned time.Time
	lost   int // spans since then
}

// warnEvery is how often a collector that takes no spans is logged.
const warnEvery = time.Minute

// maxAnswer is how much of an answer is read, in bytes, so that the connection can be used again.
const maxAnswer = 64 << 10

// Start implements otlptrace.Client.
func (c *client) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *client) Stop(context.Context) error { return nil }

// UploadTraces implements otlptrace.Client. It logs its errors itself, and returns none:
// OpenTelemetry would print them.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	n := 0
	for _, ofResource := range spans {
		for _, ofScope := range ofResource.ScopeSpans {
			n += len(ofScope.Spans)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.running, cancel)()
	if err := c.send(ctx, spans); err != nil {
		c.warn(n, err)
		return nil
	}
	c.sent.Add(int64(n))
	return nil
}

// send sends spans, and sends them again while the collector may only be restarting.
func (c *client) send(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	if err := c.running.Err(); err != nil {
		return err
	}
	content, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans}) // has the encoding of a request
	if err != nil {
		return err
	}
	var body bytes.Buffer
	zip := gzip.NewWriter(&body)
	_, _ = zip.Write(content) // a Buffer takes all
	_ = zip.Close()
	for _, pause := range c.pauses {
		again, err := c.post(ctx, body.Bytes())
		if err == nil || !again {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
	_, err = c.post(ctx, body.Bytes())
	return err
}

// post makes one request. again says that its error may pass.
func (c *client) post(ctx context.Context, body []byte) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(c.endpoint, "/")+"/v1/traces", bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	for name, value := range c.headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Content-Encoding", "gzip")
	resp, err := c.http.Do(req)
	if err != nil {
		return true, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode/100 == 2 {
		return false, nil
	}
	return resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500, fmt.Errorf("the collector answers %s", resp.Status)
}

// warn logs that spans are lost, once in warnEvery.
func (c *client) warn(n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost += n
	if now := time.Now(); now.Sub(c.warned) >= warnEvery {
		c.log.Warn("the collector of traces takes no spans; check traces.endpoint, and that the collector runs", "endpoint", c.endpoint,
			"lost", c.lost, "error", err)
		c.warned, c.lost = now, 0
	}
}
