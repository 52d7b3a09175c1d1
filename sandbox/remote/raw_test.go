package remote_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"secbox/sandbox"
	"secbox/sandbox/remote"
	"secbox/sandbox/remote/wire"
)

var user = sandbox.User{AgentID: "a", ID: "u"}

const (
	session = "0123456789abcdef0123456789abcdef"
	another = "fedcba9876543210fedcba9876543210"
)

// server is a Hub behind an HTTP server that takes the caller from the token: "token/user".
type server struct {
	*remote.Hub
	t      testing.TB
	url    string
	client *http.Client
	late   chan late

	mu      sync.Mutex
	revoked map[string]error
	lateErr error
}

type late struct {
	user   sandbox.User
	id     string
	result sandbox.ExecResult
}

// serve starts a server.
func serve(t testing.TB, change ...func(*remote.Config)) *server {
	t.Helper()
	s := newServer(t, change...)
	s.started(httptest.NewServer(s.handler()))
	return s
}

func newServer(t testing.TB, change ...func(*remote.Config)) *server {
	t.Helper()
	s := &server{t: t, client: http.DefaultClient, late: make(chan late, 16), revoked: map[string]error{}}
	cfg := remote.Config{
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Version: "test", Heartbeat: time.Hour, // a scripted runner answers pings only while it reads
		Valid: func(_ context.Context, token string) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.revoked[token]
		},
		Late: func(_ context.Context, u sandbox.User, id string, r sandbox.ExecResult) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.lateErr != nil {
				return s.lateErr
			}
			s.late <- late{u, id, r}
			return nil
		},
		ReadOnlyRoots: []string{"/opt/skill-creator"},
	}
	for _, c := range change {
		c(&cfg)
	}
	s.Hub = remote.NewHub(cfg)
	return s
}

func (s *server) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, user, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), "/")
		caller := remote.Caller{TokenID: token, UserID: user}
		if id, ok := strings.CutPrefix(r.URL.Path, wire.TransferPath); ok {
			s.ServeTransfer(w, r, id, caller)
		} else {
			s.ServeLink(w, r, caller)
		}
	})
}

// started records the HTTP server of s, and ends both with the test.
func (s *server) started(web *httptest.Server) {
	s.url = web.URL
	s.t.Cleanup(func() {
		_ = s.Close()
		web.Close()
	})
}

// raw is a scripted runner.
type raw struct {
	t      testing.TB
	s      *server
	conn   *websocket.Conn
	token  string
	wel    *wire.Welcome
	silent bool // answers no ping
}

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

func helloOf(session, name string) *wire.Hello {
	return &wire.Hello{
		Protocol: wire.Version, Session: session, Name: name, Version: "1", OS: "linux", Arch: "amd64", Shell: "/bin/sh",
		Allow: []string{"exec", "write"},
	}
}

// dial opens a WebSocket.
func (s *server) dial(token string) *raw {
	s.t.Helper()
	conn, resp, err := websocket.Dial(s.t.Context(), s.url+wire.LinkPath, &websocket.DialOptions{HTTPHeader: bearer(token), HTTPClient: s.client})
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.Body != nil {
		resp.Body.Close()
	}
	conn.SetReadLimit(2 * wire.MaxMessage)
	s.t.Cleanup(func() { _ = conn.CloseNow() })
	return &raw{t: s.t, s: s, conn: conn, token: token}
}

// connect dials, sends the hello and reads the welcome.
func (s *server) connect(hello *wire.Hello) *raw {
	s.t.Helper()
	return s.connectAs("token/u", hello)
}

func (s *server) connectAs(token string, hello *wire.Hello) *raw {
	s.t.Helper()
	r := s.dial(token)
	r.send("", wire.TypeHello, hello)
	r.wel = r.expect(wire.TypeWelcome).Body.(*wire.Welcome)
	return r
}

func (s *server) laptop() *raw { s.t.Helper(); return s.connect(helloOf(session, "laptop")) }

func (r *raw) send(id string, t wire.Type, body any) {
	r.t.Helper()
	data, err := wire.Encode(id, t, body)
	if err != nil {
		r.t.Fatal(err)
	}
	r.sendRaw(string(data))
}

func (r *raw) sendRaw(frame string) {
	r.t.Helper()
	if err := r.conn.Write(r.t.Context(), websocket.MessageText, []byte(frame)); err != nil {
		r.t.Fatal(err)
	}
}

// next reads the next message that is not a ping.
func (r *raw) next() (wire.Message, error) {
	for {
		_, data, err := r.conn.Read(r.t.Context())
		if err != nil {
			return wire.Message{}, err
		}
		m, err := wire.FromServer(data)
		if err != nil || m.Type != wire.TypePing {
			return m, err
		}
		if r.silent {
			continue
		}
		frame, err := wire.Encode(m.ID, wire.TypePong, nil)
		if err != nil {
			return wire.Message{}, err
		}
		if err := r.conn.Write(r.t.Context(), websocket.MessageText, frame); err != nil {
			return wire.Message{}, err
		}
	}
}

func (r *raw) expect(t wire.Type) wire.Message {
	r.t.Helper()
	m, err := r.next()
	if err != nil {
		r.t.Fatalf("waiting for %s: %v", t, err)
	}
	if m.Type != t {
		r.t.Fatalf("%s came instead of %s", m.Type, t)
	}
	return m
}

// expectClosed reads until the link is closed, and returns the reason.
func (r *raw) expectClosed(status websocket.StatusCode) string {
	r.t.Helper()
	for {
		_, err := r.next()
		if err == nil {
			continue
		}
		var c websocket.CloseError
		if !errors.As(err, &c) || c.Code != status {
			r.t.Fatalf("the link ended with %v, not with %d", err, status)
		}
		return c.Reason
	}
}

// cut ends the connection without a close frame.
func (r *raw) cut() { _ = r.conn.CloseNow() }

// result is the outcome of a call in progress.
type result[T any] struct {
	value T
	err   error
}

// begin calls f concurrently.
func begin[T any](f func() (T, error)) <-chan result[T] {
	c := make(chan result[T], 1)
	go func() {
		v, err := f()
		c <- result[T]{v, err}
	}()
	return c
}

func doing(f func() error) <-chan result[struct{}] {
	return begin(func() (struct{}, error) { return struct{}{}, f() })
}
