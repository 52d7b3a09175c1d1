package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// remote is an MCP server over HTTP, made with the official SDK, that can be restarted at its
// address. The end-to-end tests of e2e use a real core-api.
type remote struct {
	t    *testing.T
	addr string

	mu       sync.Mutex
	web      *http.Server
	protocol *mcp.Server
	gone     chan struct{} // closed at its end
	canceled int           // canceled calls of wait
	waiting  int
	queries  []string
	later    chan struct{} // ends calls of later
	resumed  int           // requests with Last-Event-ID that are open
	cuts     []func()      // end the open requests
}

// cut ends all open requests, and leaves what they asked for.
func (r *remote) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, end := range r.cuts {
		end()
	}
	r.cuts = nil
}

func newRemote(t *testing.T) *remote {
	r := &remote{t: t, addr: "127.0.0.1:0", later: make(chan struct{})}
	r.start()
	t.Cleanup(r.kill)
	return r
}

func (r *remote) start() {
	r.t.Helper()
	var listener net.Listener
	eventually(r.t, "the address is free", func() (ok bool) {
		var err error
		listener, err = new(net.ListenConfig).Listen(r.t.Context(), "tcp", r.addr)
		return err == nil
	})
	r.addr = listener.Addr().String()
	gone := make(chan struct{})
	protocol := mcp.NewServer(&mcp.Implementation{Name: "secbox", Version: "1"}, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}},
	})
	object := json.RawMessage(`{"type":"object"}`)
	protocol.AddTool(&mcp.Tool{Name: "echo", InputSchema: object}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(req.Params.Arguments)}}}, nil
	})
	protocol.AddTool(&mcp.Tool{Name: "wait", InputSchema: object}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if token := req.Params.GetProgressToken(); token != nil {
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1, Message: "waiting"})
		}
		r.count(&r.waiting, 1)
		select {
		case <-ctx.Done():
		case <-gone:
		}
		r.count(&r.waiting, -1)
		r.count(&r.canceled, 1)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "canceled"}}}, nil
	})
	protocol.AddTool(&mcp.Tool{Name: "later", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r.count(&r.waiting, 1)
		defer r.count(&r.waiting, -1)
		<-r.later
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "late"}}}, nil
	})
	sdk := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return protocol },
		&mcp.StreamableHTTPOptions{EventStore: mcp.NewMemoryEventStore(nil)})
	web := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.queries = append(r.queries, req.URL.RequestURI())
		r.mu.Unlock()
		if req.Header.Get("Authorization") != "Bearer right" {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"code":"unauthenticated","detail":"the token is not known"}`))
			return
		}
		ctx, end := context.WithCancel(req.Context())
		defer end()
		r.mu.Lock()
		r.cuts = append(r.cuts, end)
		r.mu.Unlock()
		if req.Header.Get("Last-Event-ID") != "" {
			r.count(&r.resumed, 1)
		}
		sdk.ServeHTTP(w, req.WithContext(ctx))
	})}
	go func() { _ = web.Serve(listener) }()
	r.mu.Lock()
	r.web, r.protocol, r.gone = web, protocol, gone
	r.mu.Unlock()
}

func (r *remote) count(n *int, by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n += by
}

func (r *remote) get(n *int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *n
}

func (r *remote) sessions() (n int) {
	for range r.protocol.Sessions() {
		n++
	}
	return n
}

// kill ends the server as a crash does: connections break, sessions are lost.
func (r *remote) kill() {
	_ = r.web.Close()
	close(r.gone)
	for session := range r.protocol.Sessions() {
		_ = session.Close()
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// host runs `secbox mcp` as a desktop host would, and speaks with it through the SDK's client.
type host struct {
	t       *testing.T
	session *mcp.ClientSession
	toBox   io.Closer
	ended   chan int // the exit code
	stderr  *lockedBuffer
	changed chan struct{}
	reports chan *mcp.ProgressNotificationParams
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func newHost(t *testing.T, args ...string) *host {
	t.Helper()
	return newHostOf(t, func(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) int {
		return run(ctx, append([]string{"mcp"}, args...), environment(envToken, "right"), stdin, stdout, stderr)
	})
}

// newHostOf is newHost with a function in place of secbox.
func newHostOf(t *testing.T, secbox func(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) int) *host {
	t.Helper()
	fromHost, toBox := io.Pipe()
	fromBox, toHost := io.Pipe()
	h := &host{
		t: t, toBox: toBox, ended: make(chan int, 1), stderr: &lockedBuffer{}, changed: make(chan struct{}, 100),
		reports: make(chan *mcp.ProgressNotificationParams, 100),
	}
	go func() {
		h.ended <- secbox(context.WithoutCancel(t.Context()), fromHost, toHost, h.stderr)
		toHost.Close()
	}()
	client := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { h.changed <- struct{}{} },
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) { h.reports <- req.Params },
	})
	var err error
	if h.session, err = client.Connect(t.Context(), &mcp.IOTransport{Reader: fromBox, Writer: toBox}, nil); err != nil {
		t.Fatalf("%v\n%s", err, h.stderr)
	}
	t.Cleanup(func() { h.close() })
	return h
}

// close ends the host and waits for secbox to end.
func (h *host) close() int {
	_ = h.session.Close()
	_ = h.toBox.Close()
	code := <-h.ended
	h.ended <- code
	return code
}

func (h *host) call(tool string) (string, error) {
	result, err := h.session.CallTool(h.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"x": 1}})
	if err != nil {
		return "", err
	}
	return result.Content[0].(*mcp.TextContent).Text, nil
}

func TestMessagesPassBothWays(t *testing.T) {
	t.Parallel()
	r := newRemote(t)
	h := newHost(t, "--server", "http://"+r.addr+"/", "--project", "a b", "--names", "dotted")
	if text, err := h.call("echo"); err != nil || text != `{"x":1}` {
		t.Errorf("%q, %v", text, err)
	}
	r.mu.Lock()
	for _, query := range r.queries {
		if query != "/mcp?names=dotted&project_id=a+b" {
			t.Errorf("asked for %s", query)
		}
	}
	r.mu.Unlock()
	var calls sync.WaitGroup
	for range 30 {
		calls.Go(func() {
			if text, err := h.call("echo"); err != nil || text != `{"x":1}` {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
	calls.Wait()

	ctx, cancel := context.WithCancel(t.Context())
	params := &mcp.CallToolParams{Name: "wait", Arguments: map[string]any{}}
	params.SetProgressToken("p")
	done := make(chan error, 1)
	go func() {
		_, err := h.session.CallTool(ctx, params)
		done <- err
	}()
	if p := <-h.reports; p.Message != "waiting" || p.ProgressToken != "p" {
		t.Errorf("progress: %+v", p)
	}
	cancel()
	<-done
	eventually(t, "the cancellation has arrived", func() bool { return r.get(&r.canceled) == 1 })

	// Once its stream is open, the server may send notifications.
	eventually(t, "the host hears that the tools have changed", func() bool {
		r.protocol.AddTool(&mcp.Tool{Name: "more", InputSchema: json.RawMessage(`{"type":"object"}`)}, nil)
		select {
		case <-h.changed:
			return true
		case <-time.After(50 * time.Millisecond):
			return false
		}
	})
	if code := h.close(); code != 0 {
		t.Errorf("exit code %d\n%s", code, h.stderr)
	}
	eventually(t, "the session has ended", func() bool { return r.sessions() == 0 })
	if strings.Contains(h.stderr.String(), "right") {
		t.Errorf("the token is in the log:\n%s", h.stderr)
	}
}

// TestImmediateCancel: a call is canceled even if the notification overtakes it.
func TestImmediateCancel(t *testing.T) {
	t.Parallel()
	r := newRemote(t)
	h := newHost(t, "--server", "http://"+r.addr)
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = h.session.CallTool(ctx, &mcp.CallToolParams{Name: "wait", Arguments: map[string]any{}})
		}()
		cancel()
		<-done
	}
	eventually(t, "none of them waits any more", func() bool { return r.get(&r.waiting) == 0 })
	if text, err := h.call("echo"); err != nil || text != `{"x":1}` {
		t.Errorf("%q, %v", text, err)
	}
	eventually(t, "none of them came later", func() bool { return r.get(&r.waiting) == 0 })
}

func TestRestartOfCoreAPI(t *testing.T) {
	t.Parallel()
	r := newRemote(t)
	h := newHost(t, "--server", "http://"+r.addr)
	inflight := make(chan error, 1)
	go func() {
		_, err := h.call("wait")
		inflight <- err
	}()
	eventually(t, "a call is in flight", func() bool { return r.get(&r.waiting) == 1 })
	r.kill()
	var wire *jsonrpc.Error
	if err := <-inflight; !errors.As(err, &wire) || wire.Code != codeBroken || !strings.Contains(wire.Message, "GET /sandbox/execs") {
		t.Errorf("the call in flight: %v", err)
	}
	r.start()
	r.protocol.AddTool(&mcp.Tool{Name: "new", InputSchema: json.RawMessage(`{"type":"object"}`)}, nil)
	if text, err := h.call("echo"); err != nil || text != `{"x":1}` {
		t.Errorf("a call after it: %q, %v", text, err)
	}
	<-h.changed // the new server cannot know that the host has not seen its tools
	tools, err := h.session.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 4 {
		t.Errorf("%v, %v", tools, err)
	}
	if n := r.sessions(); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

// TestRestartWhileHostIsSilent: reopening the stream of notifications detects the restart.
func TestRestartWhileHostIsSilent(t *testing.T) {
	t.Parallel()
	r := newRemote(t)
	h := newHost(t, "--server", "http://"+r.addr)
	r.kill()
	r.start()
	<-h.changed
	if text, err := h.call("echo"); err != nil || text != `{"x":1}` {
		t.Errorf("%q, %v", text, err)
	}
}

// TestEndOfInputLeavesAnswers: a script that writes its messages and closes its end gets all
// answers.
func TestEndOfInputLeavesAnswers(t *testing.T) {
	t.Parallel()
	r := newRemote(t)
	h := newHost(t, "--server", "http://"+r.addr)
	answers := make(chan string, 2)
	for range 2 {
		go func() {
			text, err := h.call("later")
			answers <- fmt.Sprint(text, err)
		}()
	}
	eventually(t, "the calls are in flight", func() bool { return r.get(&r.waiting) == 2 })
	_ = h.toBox.Close()
	close(r.later)
	for range 2 {
		if got := <-answers; got != "late<nil>" {
			t.Error(got)
		}
	}
	if code := <-h.ended; code != 0 {
		t.Errorf("exit code %d\n%s", code, h.stderr)
	}
	h.ended <- 0
}

// TestBrokenStreamResumes: a call whose connection breaks gets its answer over another one.
func TestBrokenStreamResumes(t *testing.T) {
	t.Parallel()
	r := newRemote(t)
	h := newHost(t, "--server", "http://"+r.addr)
	answer := make(chan string, 1)
	go func() {
		text, err := h.call("later")
		answer <- fmt.Sprint(text, err)
	}()
	eventually(t, "the call is in flight", func() bool { return r.get(&r.waiting) == 1 })
	for range 3 {
		r.cut()
		eventually(t, "it is asked for again", func() bool { return r.get(&r.resumed) > 0 })
		r.count(&r.resumed, -r.get(&r.resumed))
	}
	close(r.later)
	if got := <-answer; got != "late<nil>" {
		t.Error(got)
	}
}

func TestEndOfHostEndsCalls(t *testing.T) {
	t.Parallel()
	r := newRemote(t)
	signal := make(chan struct{})
	h := newHostOf(t, func(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) int {
		b := newBridge(&url.URL{Scheme: "http", Host: r.addr, Path: "/mcp"}, "right", stdout, slog.New(slog.NewTextHandler(stderr, nil)))
		b.closeTime = 50 * time.Millisecond
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		go func() {
			<-signal
			stop()
		}()
		if err := b.run(ctx, stdin); err != nil {
			t.Error(err)
		}
		return 0
	})
	go func() { _, _ = h.call("wait") }()
	eventually(t, "a call is in flight", func() bool { return r.get(&r.waiting) == 1 })
	_ = h.toBox.Close()
	close(signal)
	if code := <-h.ended; code != 0 {
		t.Errorf("exit code %d\n%s", code, h.stderr)
	}
	h.ended <- 0
}

// newPipe returns a standard input and its writer.
func newPipe(t *testing.T) (*io.PipeReader, *io.PipeWriter) {
	r, w := io.Pipe()
	t.Cleanup(func() { _ = w.Close() })
	return r, w
}
