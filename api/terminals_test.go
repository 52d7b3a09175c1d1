package api_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/audit"
	"secbox/engine/initproto"
	"secbox/fault"
	"secbox/runner"
	"secbox/runner/terminal"
)

// inTerminal makes the row of an exec with a terminal, whose job the test plays.
func (f *fixture) inTerminal() (audit.Record, *terminal.Terminal) {
	f.t.Helper()
	cast := terminal.Record(filepath.Join(f.t.TempDir(), "cast"), "", terminal.Size{Cols: 80, Rows: 24}, true, 1<<20)
	f.runner.terminal, f.runner.ended = terminal.New(cast), make(chan struct{})
	f.t.Cleanup(func() {
		f.runner.terminal.End()
		_ = cast.Remove()
	})
	return f.record(func(r *audit.Record) {
		r.Status, r.EndedAt, r.ExitCode, r.TTYRecord = audit.Running, time.Time{}, nil, audit.RecordAll
	}), f.runner.terminal
}

// attach opens the terminal of an exec as a client.
func (f *fixture) attach(execID, query, token string, header http.Header) (*websocket.Conn, *http.Response, error) {
	if header == nil {
		header = http.Header{}
	}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	return websocket.Dial(f.t.Context(), f.url+"/sandbox/execs/"+execID+"/tty"+query, &websocket.DialOptions{HTTPHeader: header})
}

func (f *fixture) attached(execID, query, token string) *websocket.Conn {
	f.t.Helper()
	conn, _, err := f.attach(execID, query, token, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

// hears reads one message of a terminal.
func (f *fixture) hears(conn *websocket.Conn, want string) {
	f.t.Helper()
	kind, got, err := conn.Read(f.t.Context())
	if err != nil || !strings.HasPrefix(string(got), want) || (kind == websocket.MessageText) != strings.HasPrefix(want, "{") {
		f.t.Errorf("%v %.200q %v, want %q", kind, got, err, want)
	}
}

// TestTerminal: keys, sizes and signals reach the job, its output and end reach the clients, and a
// client that comes again has a gap only where nothing is kept.
func TestTerminal(t *testing.T) {
	t.Parallel()
	f := start(t)
	rec, term := f.inTerminal()
	one := f.attached(rec.ExecID, "", "")
	f.hears(one, `{"type":"attached","offset":0}`)
	_, _ = term.Write([]byte("$ \xe2"))
	f.hears(one, "$ \xe2")
	frames := initproto.NewReader(term, initproto.ToTerminal)
	for _, c := range []struct{ send, want string }{
		{"ls\r\x03", "Ils\r\x03"},
		{`{"type":"resize","cols":500,"rows":1}`, "Z\x01\xf4\x00\x01"},
		{`{"type":"signal","signal":"SIGTERM"}`, "N\x0f"},
	} {
		kind := websocket.MessageBinary
		if c.send[0] == '{' {
			kind = websocket.MessageText
		}
		if err := one.Write(t.Context(), kind, []byte(c.send)); err != nil {
			t.Fatal(err)
		}
		got, payload, err := frames.Next()
		if err != nil || string(byte(got))+string(payload) != c.want {
			t.Errorf("%q: %c %q %v", c.send, got, payload, err)
		}
	}
	again := f.attached(rec.ExecID, "?offset=2", "")
	f.hears(again, `{"type":"attached","offset":2}`)
	f.hears(again, "\xe2")
	ahead := f.attached(rec.ExecID, "?offset=999", "")
	f.hears(ahead, `{"type":"attached","offset":3}`)
	_, _ = term.Write(bytes.Repeat([]byte("x"), 3*terminal.Kept))
	late := f.attached(rec.ExecID, "?offset=3", "")
	f.hears(late, `{"type":"attached","offset":3}`)
	f.hears(late, `{"type":"lost","bytes":`)
	f.hears(late, "xxx")

	term.End()
	rec.Status, rec.EndedAt, rec.ExitCode = audit.Succeeded, time.Now(), new(int)
	if _, err := f.db.Audit().Close(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	close(f.runner.ended)
	for {
		kind, got, err := ahead.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if kind == websocket.MessageText && bytes.HasPrefix(got, []byte(`{"type":"end","exec":{`)) && bytes.Contains(got, []byte(`"status":"succeeded"`)) {
			break
		}
	}
	if _, _, err := ahead.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Error(err)
	}
	f.runner.terminal = nil
	_, resp, err := f.attach(rec.ExecID, "", "", nil)
	if err == nil || resp.StatusCode != http.StatusConflict {
		t.Error(err)
	}
	f.runner.terminal = term
}

// TestTerminalRefuses: other clients, other sites and messages that are none.
func TestTerminalRefuses(t *testing.T) {
	t.Parallel()
	f := start(t)
	_, mine := f.token(tokens.Spec{Role: tokens.Worker})
	_, other := f.token(tokens.Spec{Role: tokens.Worker})
	_, auditor := f.token(tokens.Spec{Role: tokens.Auditor})
	_, admin := f.token(tokens.Spec{Role: tokens.Admin})
	rec, _ := f.inTerminal()
	for _, c := range []struct {
		token, query, origin string
		status               int
	}{
		{"", "", "", 401},
		{other, "", "", 404},
		{mine, "", "", 404},
		{auditor, "", "", 403},
		{admin, "?offset=-1", "", 400},
		{admin, "?offset=x", "", 400},
		{admin, "?more=1", "", 400},
		{admin, "", "https://evil.example", 403},
	} {
		header := http.Header{}
		if c.origin != "" {
			header.Set("Origin", c.origin)
		}
		if _, resp, err := f.attach(rec.ExecID, c.query, c.token, header); err == nil || resp.StatusCode != c.status {
			t.Errorf("%+v: %v", c, err)
		}
	}
	f.do(request{path: "/sandbox/execs/" + rec.ExecID + "/tty", token: admin, header: map[string]string{"Connection": "close"}})
	for _, message := range []string{
		`{"type":"resize","cols":0,"rows":24}`, `{"type":"resize","cols":80,"rows":501}`, `{"type":"resize","cols":1e9,"rows":24}`, `{}`, `[]`, `x`,
		`{"type":"signal","signal":"SIGSTOP"}`, `{"type":"signal","signal":9}`, `{"type":"resize","cols":80,"rows":24,"more":1}`,
		`{"type":"` + strings.Repeat("x", 9000) + `"}`,
	} {
		conn := f.attached(rec.ExecID, "", admin)
		f.hears(conn, `{"type":"attached"`)
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(message)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			t.Errorf("%.80s: %v", message, err)
		}
	}
	conn := f.attached(rec.ExecID, "", admin)
	f.hears(conn, `{"type":"attached"`)
	if err := conn.Write(t.Context(), websocket.MessageBinary, make([]byte, terminal.MaxTyped+1)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusMessageTooBig {
		t.Error(err)
	}
}

// TestTerminalEndsWithItsToken: the token is verified while the terminal is open, and the end of
// the server ends it.
func TestTerminalEndsWithItsToken(t *testing.T) {
	t.Parallel()
	f := start(t, func(c *api.Config) { c.TokenInterval = 10 * time.Millisecond })
	id, secret := f.token(tokens.Spec{Role: tokens.Admin})
	_, another := f.token(tokens.Spec{Role: tokens.Admin})
	rec, term := f.inTerminal()
	conn, stays := f.attached(rec.ExecID, "", secret), f.attached(rec.ExecID, "", another)
	for _, c := range []*websocket.Conn{conn, stays} {
		f.hears(c, `{"type":"attached"`)
	}
	if _, err := f.tokens.Revoke(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	var end websocket.CloseError
	if _, _, err := conn.Read(t.Context()); !errors.As(err, &end) || end.Code != websocket.StatusPolicyViolation || !strings.Contains(end.Reason, "revoked") {
		t.Error(err)
	}
	_, _ = term.Write([]byte("on"))
	f.hears(stays, "on")
	f.server.Close()
	if _, _, err := stays.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Error(err)
	}
}

// TestExecWithTerminal: the request says what the runner is given, and is answered at once.
func TestExecWithTerminal(t *testing.T) {
	t.Parallel()
	f := start(t)
	body := `{"project_id": "demo", "exec": {"script": "vi", "tty": {"cols": 80, "rows": 24}, "tty_record": "output"}}`
	f.runner.run = func(ctx context.Context, req runner.Request) (runner.Result, error) {
		res, err := f.runner.succeed(ctx, req)
		req.OnOpen(res.Record.ExecID)
		return res, err
	}
	decodeAs[map[string]any](t, f.post("/sandbox/execs", body), 202)
	seen := f.runner.seen()
	if got := seen[len(seen)-1].Command.Terminal; got == nil || got.Size != (terminal.Size{Cols: 80, Rows: 24}) || got.Record != audit.RecordOutput {
		t.Errorf("%+v", got)
	}
	f.post("/sandbox/execs", strings.Replace(body, `"exec"`, `"stream": true, "exec"`, 1)).wants(t, fault.InvalidRequest, "stream")
	f.post("/sandbox/execs", `{"project_id": "demo", "exec": {"script": "vi", "tty_record": "output"}}`).wants(t, fault.InvalidRequest, "exec.tty_record")
}
