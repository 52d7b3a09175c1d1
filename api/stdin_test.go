package api_test

import (
	"bytes"
	"io"
	"testing"
	"time"

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
