package machine_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote/machine"
	"secbox/sandbox/remote/wire"
)

// TestGarbageEndsTheLink: an invalid message ends the link with a reason, and the runner dials
// again.
func TestGarbageEndsTheLink(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(l *serverLink){
		"no JSON":          func(l *serverLink) { l.raw("\x00\x01garbage") },
		"an array":         func(l *serverLink) { l.raw("[]") },
		"an unknown type":  func(l *serverLink) { l.raw(`{"id":"1","type":"format_disk"}`) },
		"an unknown field": func(l *serverLink) { l.raw(`{"id":"1","type":"stat","path":"/workspace","user_id":"","root":true}`) },
		"a runner's type":  func(l *serverLink) { l.raw(`{"id":"1","type":"ok"}`) },
		"no id":            func(l *serverLink) { l.raw(`{"type":"stat","path":"/workspace"}`) },
		"no base64": func(l *serverLink) {
			l.raw(`{"id":"1","type":"write_file","path":"/workspace/f","user_id":"","data":"%%%"}`)
		},
		"no base64 of input": func(l *serverLink) {
			l.raw(`{"id":"1","type":"exec","command":"true","args":[],"shell":true,"dir":"","env":[],"stdin":"%","encoding":"base64","timeout":0,"max_stdout":0,"max_stderr":0,"user_id":""}`)
		},
		"a second welcome": func(l *serverLink) { l.greet() },
		"a binary frame":   func(l *serverLink) { _ = l.conn.Write(l.t.Context(), websocket.MessageBinary, []byte("{}")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, l := both(t)
			send(l)
			if status := l.closed(); status != wire.StatusProtocol {
				t.Errorf("closed with %d", status)
			}
			l = s.welcome()
			l.send("1", wire.TypeStat, &wire.Path{Path: "/workspace"})
			if o := l.result("1"); o.typ != wire.TypeFileInfo {
				t.Errorf("%+v", o)
			}
		})
	}
}

func TestOversizedFrame(t *testing.T) {
	t.Parallel()
	s, _, l := both(t)
	written := make(chan struct{})
	go func() { // the runner does not read all of it
		defer close(written)
		_ = l.conn.Write(t.Context(), websocket.MessageText, bytes.Repeat([]byte(" "), wire.MaxMessage+2))
	}()
	l.closed()
	<-written
	l = s.welcome()
	l.send("1", wire.TypeStat, &wire.Path{Path: "/workspace"})
	if o := l.result("1"); o.typ != wire.TypeFileInfo {
		t.Errorf("%+v", o)
	}
}

func TestMessageBeforeWelcome(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	r := start(t, config(t, s))
	l := s.accept()
	l.send("1", wire.TypeRemoveAll, &wire.Path{Path: "/workspace/f"})
	if status := l.closed(); status != wire.StatusProtocol {
		t.Errorf("closed with %d", status)
	}
	s.welcome()
	until(t, "not connected", func() bool { return strings.Contains(r.log.String(), "msg=connected") })
}

// TestFinalErrors: after these answers the runner ends.
func TestFinalErrors(t *testing.T) {
	t.Parallel()
	problem := func(status int, code fault.Code, detail string) func(*server) {
		return func(s *server) {
			s.setDoor(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(status)
				fmt.Fprintf(w, `{"code":%q,"detail":%q}`, code, detail)
			})
		}
	}
	closing := func(status websocket.StatusCode, why string) func(*server) {
		return func(s *server) {
			go func() {
				l := <-s.links
				_, _, _ = l.conn.Read(s.t.Context())
				_ = l.conn.Close(status, why)
				l.cut()
			}()
		}
	}
	for name, c := range map[string]struct {
		prepare func(s *server)
		code    fault.Code
		says    string
	}{
		"unknown token": {problem(401, fault.Unauthenticated, "the token is not known"), fault.Unauthenticated, "the token is not known; core-api makes"},
		"revoked token": {problem(401, fault.TokenRevoked, "the token was revoked"), fault.TokenRevoked, "revoked"},
		"wrong role":    {problem(403, fault.Forbidden, "the role worker may not"), fault.Forbidden, "the role worker may not"},
		"a page": {func(s *server) {
			s.setDoor(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
		}, fault.RunnerOffline, "is not a core-api"},
		"no such route": {func(s *server) { s.setDoor(http.NotFound) }, fault.RunnerOffline, "is not a core-api"},
		"a redirect": {func(s *server) {
			s.setDoor(http.RedirectHandler("http://127.0.0.1:1/", http.StatusTemporaryRedirect).ServeHTTP)
		}, fault.RunnerOffline, "redirects"},
		"name in use":     {closing(wire.StatusNameInUse, "laptop"), fault.RunnerNameInUse, "--name"},
		"revoked":         {closing(wire.StatusRevoked, "revoked"), fault.TokenRevoked, "revoked the token"},
		"another version": {closing(wire.StatusVersion, "update secbox"), fault.RunnerProtocol, "update secbox"},
		"newer welcome": {func(s *server) {
			go func() {
				l := <-s.links
				_, _, _ = l.conn.Read(s.t.Context())
				_ = l.conn.Write(s.t.Context(), websocket.MessageText, fmt.Appendf(nil, `{"type":"welcome","protocol":%d,"anything":"else"}`, wire.Version+1))
				_, _, _ = l.conn.Read(s.t.Context())
				l.cut()
			}()
		}, fault.RunnerProtocol, "update secbox on this machine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			c.prepare(s)
			r := start(t, config(t, s))
			err := r.ended()
			if fault.CodeOf(err) != c.code || !strings.Contains(fault.From(err).Message, c.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestRetriedErrors: after these answers the runner dials again.
func TestRetriedErrors(t *testing.T) {
	t.Parallel()
	s, r, l := both(t)
	for _, status := range []websocket.StatusCode{
		wire.StatusNameInUse, wire.StatusReplaced, websocket.StatusGoingAway, wire.StatusProtocol, websocket.StatusInternalError,
	} {
		_ = l.conn.Close(status, "a reason")
		l.cut()
		l = s.welcome()
	}
	answers := make(chan int, 3)
	answers <- http.StatusNotFound
	answers <- http.StatusServiceUnavailable
	answers <- http.StatusTooManyRequests
	s.setDoor(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(<-answers)
		if len(answers) == 0 {
			s.setDoor(nil)
		}
	})
	l.cut()
	l = s.welcome()
	r.stop()
	l.closed() // answers the closing handshake
	if err := r.ended(); err != nil {
		t.Error(err)
	}
}

func TestSilentServer(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	r := start(t, config(t, s))
	l := s.accept()
	l.send("", wire.TypeWelcome, &wire.Welcome{Protocol: wire.Version, UserID: "ann", Version: "test", HeartbeatMS: 20})
	// The server is silent, and the connection stays open.
	s.welcome()
	if log := r.log.String(); !strings.Contains(log, "core-api is silent") || !strings.Contains(log, "retry_in") {
		t.Error(log)
	}
}

func TestServerUnreachable(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	cfg := config(t, s)
	s.http.Close()
	r := start(t, cfg)
	until(t, "nothing is said", func() bool { return strings.Contains(r.log.String(), "cannot be reached") })
	r.stop()
	if err := r.ended(); err != nil {
		t.Error(err)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*machine.Config)
		code   fault.Code
		says   string
	}{
		"no address":       {func(c *machine.Config) { c.Server = "core-api" }, fault.InvalidRequest, "--server"},
		"another scheme":   {func(c *machine.Config) { c.Server = "ftp://127.0.0.1" }, fault.InvalidRequest, "wss://"},
		"a user in it":     {func(c *machine.Config) { c.Server = "wss://a:b@127.0.0.1" }, fault.InvalidRequest, "without user"},
		"plain http":       {func(c *machine.Config) { c.Server = "ws://core-api.example.com" }, fault.InvalidRequest, "--insecure"},
		"no token":         {func(c *machine.Config) { c.Token = "" }, fault.Unauthenticated, "core-api token create --role runner"},
		"a token of lines": {func(c *machine.Config) { c.Token = "a\nb" }, fault.InvalidRequest, "one word"},
		"a name":           {func(c *machine.Config) { c.Name = "my laptop" }, fault.InvalidRequest, "--name"},
		"a long name":      {func(c *machine.Config) { c.Name = strings.Repeat("a", sandbox.MaxRunnerName+1) }, fault.InvalidRequest, "--name"},
		"a grant":          {func(c *machine.Config) { c.Allow = []string{"everything"} }, fault.InvalidRequest, "--allow"},
		"no workspace":     {func(c *machine.Config) { c.Workspace = "" }, fault.InvalidRequest, "--workspace"},
		"not there":        {func(c *machine.Config) { c.Workspace += "/nothing" }, fault.InvalidRequest, "mkdir -p"},
		"a file":           {func(c *machine.Config) { c.Workspace = file }, fault.InvalidRequest, "not a directory"},
		"the root":         {func(c *machine.Config) { c.Workspace = "/" }, fault.InvalidRequest, "the whole machine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := machine.Config{Server: "ws://127.0.0.1:1", Token: goodToken, Workspace: t.TempDir(), Name: "laptop"}
			c.change(&cfg)
			_, err := machine.New(cfg)
			if fault.CodeOf(err) != c.code || !strings.Contains(fault.From(err).Message, c.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestNameOf(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"laptop": "laptop", "ann-pc.example.com": "ann-pc", "Ann's MacBook": "Ann-s-MacBook", "": "machine", "--": "machine", "机器": "machine",
		strings.Repeat("a", 100): strings.Repeat("a", sandbox.MaxRunnerName),
	} {
		if got := machine.NameOf(host); got != want {
			t.Errorf("%q: %q", host, got)
		}
	}
}
