package api_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"secbox/api"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
)

// taker is a command's standard input that takes so many bytes.
type taker struct {
	got    bytes.Buffer
	most   int
	closed bool
}

func (t *taker) Write(p []byte) (int, error) {
	if t.got.Len()+len(p) > t.most {
		return 0, fault.New(fault.ExecEnded, "it has ended")
	}
	return t.got.Write(p)
}

func (t *taker) Close() error { t.closed = true; return nil }

func TestSendStdin(t *testing.T) {
	t.Parallel()
	f := start(t)
	running := f.record(func(r *audit.Record) { r.Status, r.EndedAt, r.ExitCode = audit.Running, time.Time{}, nil })
	to := &taker{most: 6}
	f.runner.stdin = func(execID string) (io.WriteCloser, error) {
		if execID != running.ExecID {
			t.Errorf("asked for %s", execID)
		}
		return to, nil
	}
	send := func(execID, body string) reply {
		return f.do(request{method: "PUT", path: "/sandbox/execs/" + execID + "/stdin", body: body, header: map[string]string{"Content-Type": "text/plain"}})
	}
	got := decodeAs[wire.StdinSent](t, send(running.ExecID, "\xff\x00ab"), 200)
	if got.Bytes != 4 || got.Ended || to.got.String() != "\xff\x00ab" || !to.closed {
		t.Errorf("%+v, %q", got, to.got.String())
	}
	to = &taker{most: 6}
	if got := decodeAs[wire.StdinSent](t, send(running.ExecID, "of a command that ends"), 200); !got.Ended || got.Bytes != 0 {
		t.Errorf("%+v", got)
	}
	send(f.record(nil).ExecID, "late").wants(t, fault.ExecEnded)
	send("0190aaaa-7c1e-7d35-9a52-0f4f3a1b2c3d", "x").wants(t, fault.UnknownExec)
	f.runner.stdin = func(string) (io.WriteCloser, error) { return nil, fault.BadField("exec_id", "takes none") }
	send(running.ExecID, "x").wants(t, fault.InvalidRequest, "exec_id")

	for _, other := range []string{`, "stdin": "x"`, `, "context": "main"`, `, "tty": {"cols": 80, "rows": 24}`} {
		body := `{"project_id": "demo", "exec": {"script": "cat", "stdin_stream": true` + other + `}}`
		f.do(request{method: "POST", path: "/sandbox/execs", body: body}).wants(t, fault.InvalidRequest, "exec.stdin_stream")
	}
	body := `{"project_id": "demo", "exec": {"script": "cat", "stdin_stream": true}}`
	f.do(request{method: "POST", path: "/sandbox/execs", body: body, header: map[string]string{"Prefer": "respond-async"}}).
		wants(t, fault.InvalidRequest, "exec.stdin_stream")
}

// TestPausedStdin: a body that pauses ends with its exec, whose end is the answer; an error of the
// database is no end; and a body that is no HTTP is the client's fault.
func TestPausedStdin(t *testing.T) {
	t.Parallel()
	f := start(t)
	rec := f.record(func(r *audit.Record) { r.Status, r.EndedAt, r.ExitCode = audit.Running, time.Time{}, nil })
	to := &taker{most: 6}
	asked := make(chan struct{}, 4)
	f.runner.stdin = func(string) (io.WriteCloser, error) {
		asked <- struct{}{}
		return to, nil
	}
	waits := make(chan struct{}, 10)
	f.runner.ended = make(chan struct{})
	f.runner.waiting = func() error {
		waits <- struct{}{}
		if len(waits) == 1 {
			return errors.New("the database is away")
		}
		return nil
	}
	conn := f.beginStdin(rec.ExecID, "")
	go func() {
		for len(waits) < 2 && t.Context().Err() == nil {
			runtime.Gosched()
		}
		_, _ = io.WriteString(conn, "3\r\ndef\r\n0\r\n\r\n")
	}()
	if status, body := answerOf(t, conn); status != 200 || body != `{"bytes":6,"ended":false}`+"\n" || !to.closed {
		t.Errorf("after an error of the database: %d %s", status, body)
	}

	to = &taker{most: 6}
	conn = f.beginStdin(rec.ExecID, "")
	if _, err := io.WriteString(conn, "no length\r\n"); err != nil {
		t.Fatal(err)
	}
	if status, body := answerOf(t, conn); status != 400 || !strings.Contains(body, "the exec is canceled") || to.closed {
		t.Errorf("no chunk: %d %s", status, body)
	}

	to = &taker{most: 2}
	conn = f.beginStdin(rec.ExecID, "")
	if status, body := answerOf(t, conn); status != 200 || !strings.Contains(body, `"ended":true`) {
		t.Errorf("of an exec that has ended, and reads no more: %d %s", status, body)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection stays: %v", err)
	}

	to = &taker{most: 6}
	conn = f.beginStdin(rec.ExecID, "")
	for range 4 {
		<-asked
	}
	rec.Status, rec.EndedAt, rec.ExitCode = audit.Succeeded, rec.StartedAt, new(int)
	if _, err := f.runner.store.Close(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	close(f.runner.ended)
	if status, body := answerOf(t, conn); status != 200 || !strings.Contains(body, `"ended":true`) {
		t.Errorf("of an exec that has ended: %d %s", status, body)
	}
}

// TestForwardedStdin: another node may answer before the end of the body, and a request that is
// forwarded counts as a stream.
func TestForwardedStdin(t *testing.T) {
	t.Parallel()
	f, p, id, secret := startWithPeer(t, func(c *api.Config) { c.Bounds.StreamsPerToken = 1 })
	p.during = func() {
		p.during = nil
		if status, body := answerOf(t, f.beginStdin(id, secret)); status != 503 {
			t.Errorf("a second one: %d %s", status, body)
		}
	}
	conn := f.beginStdin(id, secret)
	if status, body := answerOf(t, conn); status != 200 || body != "there" || p.took() != "PUT /stdin -1" {
		t.Errorf("%d %s", status, body)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection stays: %v", err)
	}
}

// beginStdin sends the beginning of a standard input.
func (f *fixture) beginStdin(execID, secret string) net.Conn {
	f.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil { // a hang is a failure
		f.t.Fatal(err)
	}
	if secret != "" {
		secret = "Authorization: Bearer " + secret + "\r\n"
	}
	fmt.Fprintf(conn, "PUT /sandbox/execs/%s/stdin HTTP/1.1\r\nHost: %s\r\n%sContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		execID, strings.TrimPrefix(f.url, "http://"), secret)
	return conn
}

func answerOf(t *testing.T, conn net.Conn) (status int, body string) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(content)
}
