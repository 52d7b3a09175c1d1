package machine_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"secbox/sandbox/process"
	"secbox/sandbox/remote/machine"
	"secbox/sandbox/remote/wire"
)

func TestMain(m *testing.M) {
	process.Main() // this program also runs the commands
	goleak.VerifyTestMain(m)
}

const goodToken = "the-token-of-ann"

// server is a scripted core-api.
type server struct {
	t     *testing.T
	http  *httptest.Server
	links chan *serverLink

	mu        sync.Mutex
	door      http.HandlerFunc // answers dials instead of a link, if not nil
	transfers http.HandlerFunc
	open      map[*serverLink]bool
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, links: make(chan *serverLink, 64), open: map[*serverLink]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc(wire.LinkPath, s.serveLink)
	mux.HandleFunc(wire.TransferPath, func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		serve := s.transfers
		s.mu.Unlock()
		if serve == nil || r.Header.Get("Authorization") != "Bearer "+goodToken {
			http.Error(w, "no", http.StatusNotFound)
			return
		}
		serve(w, r)
	})
	s.http = httptest.NewServer(mux)
	t.Cleanup(func() {
		s.setDoor(http.NotFound)
		s.mu.Lock()
		for l := range s.open {
			l.cut()
		}
		s.mu.Unlock()
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

func (s *server) setDoor(h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.door = h
}

func (s *server) setTransfers(h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.transfers = h
}

func (s *server) serveLink(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	door := s.door
	s.mu.Unlock()
	if door != nil {
		door(w, r)
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+goodToken {
		http.Error(w, "no", http.StatusUnauthorized)
		return
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		s.t.Error(err)
		return
	}
	conn.SetReadLimit(wire.MaxMessage)
	l := &serverLink{t: s.t, conn: conn, gone: make(chan struct{})}
	s.mu.Lock()
	s.open[l] = true
	s.mu.Unlock()
	s.links <- l
	<-l.gone
}

// serverLink is the server's side of one link.
type serverLink struct {
	t     *testing.T
	conn  *websocket.Conn
	hello *wire.Hello
	once  sync.Once
	gone  chan struct{}
}

// accept waits for the next link and its hello.
func (s *server) accept() *serverLink {
	s.t.Helper()
	select {
	case l := <-s.links:
		s.t.Cleanup(l.cut) // first, because stopping the runner waits for its close frame to be read
		hello, ok := l.receive().Body.(*wire.Hello)
		if !ok {
			s.t.Fatal("the first message is no hello")
		}
		l.hello = hello
		return l
	case <-s.t.Context().Done():
		s.t.Fatal("no link")
		return nil
	}
}

// welcome accepts the next link and sends the welcome with these expectations.
func (s *server) welcome(expects ...wire.Expected) *serverLink {
	s.t.Helper()
	l := s.accept()
	l.greet(expects...)
	return l
}

func (l *serverLink) greet(expects ...wire.Expected) {
	l.t.Helper()
	l.send("", wire.TypeWelcome, &wire.Welcome{Protocol: wire.Version, UserID: "ann", Version: "test", HeartbeatMS: 60_000, Expects: expects})
}

// cut ends the link without a close frame.
func (l *serverLink) cut() {
	l.once.Do(func() {
		_ = l.conn.CloseNow()
		close(l.gone)
	})
}

func (l *serverLink) send(id string, typ wire.Type, body any) {
	l.t.Helper()
	data, err := wire.Encode(id, typ, body)
	if err != nil {
		l.t.Fatal(err)
	}
	l.raw(string(data))
}

func (l *serverLink) raw(data string) {
	l.t.Helper()
	if err := l.conn.Write(l.t.Context(), websocket.MessageText, []byte(data)); err != nil {
		l.t.Fatal(err)
	}
}

func (l *serverLink) receive() wire.Message {
	l.t.Helper()
	_, data, err := l.conn.Read(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	m, err := wire.FromRunner(data)
	if err != nil {
		l.t.Fatalf("%.300s: %v", data, err)
	}
	return m
}

// closed reads until the link is closed, and returns the status.
func (l *serverLink) closed() websocket.StatusCode {
	l.t.Helper()
	for {
		if _, _, err := l.conn.Read(l.t.Context()); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

// result waits for a request's result, collecting output and parts of a list, and acknowledges it.
func (l *serverLink) result(id string) outcome {
	l.t.Helper()
	o := outcome{}
	l.finish(id, &o)
	l.send(id, wire.TypeAck, nil)
	return o
}

// finish waits for a result without acknowledging it.
func (l *serverLink) finish(id string, o *outcome) {
	l.t.Helper()
	for {
		m := l.receive()
		if m.ID != id {
			l.t.Fatalf("%s %s came while %s was waited for", m.Type, m.ID, id)
		}
		if o.add(l.t, m) {
			return
		}
	}
}

// outcome is the result of a request.
type outcome struct {
	typ            wire.Type
	body           any
	stdout, stderr []byte
	outputs        int // messages
	entries        []wire.DirEntry
}

// add reports whether this was the result.
func (o *outcome) add(t *testing.T, m wire.Message) bool {
	t.Helper()
	put := func(to *[]byte, at int64, data []byte) {
		if at != int64(len(*to)) {
			t.Fatalf("output begins at %d, %d have arrived", at, len(*to))
		}
		*to = append(*to, data...)
	}
	switch body := m.Body.(type) {
	case *wire.Output:
		o.outputs++
		if body.Stream == wire.Stdout {
			put(&o.stdout, body.Offset, body.Data)
		} else {
			put(&o.stderr, body.Offset, body.Data)
		}
		return false
	case *wire.DirEntries:
		o.entries = append(o.entries, body.Entries...)
		if body.More {
			return false
		}
	case *wire.ExecResult:
		put(&o.stdout, body.StdoutAt, []byte(body.Stdout))
		put(&o.stderr, body.StderrAt, []byte(body.Stderr))
	}
	o.typ, o.body = m.Type, m.Body
	return true
}

// code returns the code of an error, or "".
func (o outcome) code() string {
	if e, ok := o.body.(*wire.Error); ok {
		return e.Code
	}
	return ""
}

func (o outcome) exec(t *testing.T) *wire.ExecResult {
	t.Helper()
	e, ok := o.body.(*wire.ExecResult)
	if !ok {
		t.Fatalf("%s %+v", o.typ, o.body)
	}
	return e
}

// runner is a Machine that runs during the test.
type runner struct {
	t    *testing.T
	dir  string
	log  *logBuffer
	stop context.CancelFunc
	done chan struct{}
	err  error // valid when done is closed
}

func config(t *testing.T, s *server) machine.Config {
	return machine.Config{
		Server: strings.Replace(s.http.URL, "http", "ws", 1), Token: goodToken, Workspace: t.TempDir(), Name: "laptop", Version: "1.2.3",
		Allow:   []string{machine.AllowExec, machine.AllowWrite},
		Backoff: func(int) time.Duration { return 2 * time.Millisecond },
	}
}

// start runs a runner until the end of the test.
func start(t *testing.T, cfg machine.Config) *runner {
	t.Helper()
	r := &runner{t: t, dir: cfg.Workspace, log: &logBuffer{}, done: make(chan struct{})}
	cfg.Log = slog.New(slog.NewTextHandler(r.log, nil))
	m, err := machine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() {
		defer close(r.done)
		r.err = m.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.done
		if strings.Contains(r.log.String(), goodToken) {
			t.Error("the token is in the log")
		}
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
	return r
}

// ended waits for the end of the runner.
func (r *runner) ended() error {
	r.t.Helper()
	select {
	case <-r.done:
		return r.err
	case <-r.t.Context().Done():
		r.t.Fatal("the runner goes on")
		return nil
	}
}

func (r *runner) write(name, content string) {
	r.t.Helper()
	if err := os.WriteFile(r.dir+"/"+name, []byte(content), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// readIfThere returns the content of a file, or nothing.
func (r *runner) readIfThere(name string) string {
	content, _ := os.ReadFile(r.dir + "/" + name)
	return string(content)
}

func (r *runner) read(name string) string {
	r.t.Helper()
	content, err := os.ReadFile(r.dir + "/" + name)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(content)
}

// both returns a server, a runner with all permissions, and its first link.
func both(t *testing.T) (*server, *runner, *serverLink) {
	t.Helper()
	s := newServer(t)
	r := start(t, config(t, s))
	return s, r, s.welcome()
}

type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for !ok() {
		select {
		case <-t.Context().Done():
			t.Fatal(what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func shell(line string) *wire.Exec { return &wire.Exec{Command: line, Shell: true} }
