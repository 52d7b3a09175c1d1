package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote"
	"secbox/sandbox/remote/wire"
)

// TestManyRequestsAtOnce: more requests than a runner takes at once wait, and each gets its own
// answer.
func TestManyRequestsAtOnce(t *testing.T) {
	t.Parallel()
	const many = wire.MaxInFlight + 200
	s := serve(t)
	r := s.laptop()
	answers := make(chan error, many)
	for i := range many {
		go func() {
			name := fmt.Sprintf("f%d", i)
			info, err := s.Stat(t.Context(), "/workspace/"+name, user)
			if err == nil && info.Name != name {
				err = fmt.Errorf("%s got the answer of %s", name, info.Name)
			}
			answers <- err
		}()
	}
	asked := map[string]string{}
	for len(asked) < wire.MaxInFlight {
		m := r.expect(wire.TypeStat)
		if asked[m.ID] != "" {
			t.Fatal("an id was used twice")
		}
		asked[m.ID] = strings.TrimPrefix(m.Body.(*wire.Path).Path, "/workspace/")
	}
	if n := s.Runners()[0].InFlight; n != wire.MaxInFlight {
		t.Fatalf("%d in flight", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Stat(ctx, "/workspace/x", user); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for id, name := range asked {
		r.send(id, wire.TypeFileInfo, &wire.FileInfo{Name: name})
	}
	for left := many - len(asked); left > 0; {
		m, err := r.next()
		if err != nil {
			t.Fatal(err)
		}
		if m.Type == wire.TypeStat {
			r.send(m.ID, wire.TypeFileInfo, &wire.FileInfo{Name: strings.TrimPrefix(m.Body.(*wire.Path).Path, "/workspace/")})
			left--
		}
	}
	for range many {
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	}
}

// TestSlowOutputReader: a caller that does not take a command's output delays neither the command
// nor other calls, and gets all of it.
func TestSlowOutputReader(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	out, in := io.Pipe()
	exec := begin(func() (*sandbox.ExecResult, error) {
		return s.ExecTo(t.Context(), sandbox.ExecSpec{Command: "c", ExecID: "e", User: user}, in, nil)
	})
	r.expect(wire.TypeExec)
	piece := bytes.Repeat([]byte("x"), wire.MaxOutput)
	const pieces = 64 // 4 MiB
	for i := range pieces {
		copy(piece, fmt.Sprintf("%d;", i))
		r.send("e", wire.TypeOutput, &wire.Output{Stream: "stdout", Offset: int64(i) * wire.MaxOutput, Data: piece})
	}
	r.send("e", wire.TypeExecResult, &wire.ExecResult{Stdout: "end", StdoutAt: pieces * wire.MaxOutput, StdoutBytes: pieces*wire.MaxOutput + 3})
	if m := r.expect(wire.TypeAck); m.ID != "e" {
		t.Fatal(m)
	}
	stat := begin(func() (*sandbox.FileInfo, error) { return s.Stat(t.Context(), "/workspace", user) })
	r.send(r.expect(wire.TypeStat).ID, wire.TypeFileInfo, &wire.FileInfo{Name: "workspace"})
	if got := <-stat; got.err != nil {
		t.Fatal(got.err)
	}
	all := begin(func() ([]byte, error) {
		buf := make([]byte, pieces*wire.MaxOutput+3)
		_, err := io.ReadFull(out, buf)
		return buf, err
	})
	got := <-all
	if got.err != nil {
		t.Fatal(got.err)
	}
	for i := range pieces {
		if !bytes.HasPrefix(got.value[i*wire.MaxOutput:], fmt.Appendf(nil, "%d;", i)) {
			t.Fatalf("piece %d is not where it should be", i)
		}
	}
	if !bytes.HasSuffix(got.value, []byte("end")) {
		t.Fatal("the end is missing")
	}
	if e := <-exec; e.err != nil || e.value.Stdout != "" || e.value.StdoutBytes != pieces*wire.MaxOutput+3 {
		t.Fatal(e.value, e.err)
	}
}

// TestOutputOnFullDisk: a command whose output cannot be kept has an unknown outcome.
func TestOutputOnFullDisk(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	t.Setenv("TMP", filepath.Join(t.TempDir(), "none")) // for Windows
	s := serve(t)
	r := s.laptop()
	out, in := io.Pipe()
	exec := begin(func() (*sandbox.ExecResult, error) {
		return s.ExecTo(t.Context(), sandbox.ExecSpec{Command: "c", ExecID: "e", User: user}, in, nil)
	})
	r.expect(wire.TypeExec)
	const pieces = 16 // 1 MiB
	for i := range pieces {
		r.send("e", wire.TypeOutput, &wire.Output{Stream: "stdout", Offset: int64(i) * wire.MaxOutput, Data: make([]byte, wire.MaxOutput)})
	}
	r.send("e", wire.TypeExecResult, &wire.ExecResult{StdoutAt: pieces * wire.MaxOutput, StdoutBytes: pieces * wire.MaxOutput})
	r.expect(wire.TypeAck)
	out.Close()
	if got := <-exec; !fault.Is(got.err, fault.OutcomeUnknown) {
		t.Fatal(got.err)
	}
}

// TestContextEndsSlowReader: when ctx ends while the caller's writer blocks, ExecTo returns as soon
// as the writer does.
func TestContextEndsSlowReader(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	exec := begin(func() (*sandbox.ExecResult, error) {
		return s.ExecTo(ctx, sandbox.ExecSpec{Command: "c", ExecID: "e", User: user}, in, nil)
	})
	r.expect(wire.TypeExec)
	r.send("e", wire.TypeExecResult, &wire.ExecResult{Stdout: "end", StdoutBytes: 3})
	r.expect(wire.TypeAck)
	cancel()
	out.Close()
	if got := <-exec; got.err != nil && !errors.Is(got.err, context.Canceled) {
		t.Fatal(got.err)
	}
}

// TestRunnerDoesNotRead: a runner that reads nothing does not keep callers from leaving.
func TestRunnerDoesNotRead(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *remote.Config) { c.Grace = 50 * time.Millisecond })
	r := s.laptop()
	ctx, cancel := context.WithCancel(t.Context())
	const many = 30 // of 4 MiB: more than the buffers hold, and than is sent at once
	results := make(chan error, many)
	data := make([]byte, wire.InlineBytes)
	for i := range many {
		go func() { results <- s.WriteFile(ctx, fmt.Sprintf("/workspace/%d", i), data, 0o644, user) }()
	}
	await(t, "as much as is let out to be on its way", func() bool { return s.Runners()[0].InFlight >= 8 })
	stuck, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if _, err := s.Stat(stuck, "/workspace", user); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if n := s.Runners()[0].InFlight; n >= many/2 {
		t.Errorf("%d writes are in flight, with %d MiB", n, 4*n)
	}
	cancel()
	for range many {
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	r.cut()
}

// TestRunnerDoesNotReadMemory: abandoned requests are not kept in memory for a runner that reads
// nothing.
func TestRunnerDoesNotReadMemory(t *testing.T) {
	s := serve(t, func(c *remote.Config) { c.Grace = 50 * time.Millisecond }) // not parallel: it measures memory
	r := s.laptop()
	data := make([]byte, wire.InlineBytes)
	before := heap()
	for range 40 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := s.WriteFile(ctx, "/workspace/a", data, 0o644, user); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
	}
	if n := s.Runners()[0].InFlight; n != 0 {
		t.Errorf("%d are in flight", n)
	}
	if grown := heap() - before; grown > 64<<20 {
		t.Errorf("%d MiB are kept", grown>>20)
	}
	r.cut()
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestTooManyRequestsAreRefused: the queue of a runner is bounded.
func TestTooManyRequestsAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	refused := make(chan error, 1)
	for range 6000 {
		work.Go(func() {
			if _, err := s.Stat(ctx, "/workspace", user); fault.Is(err, fault.SandboxBusy) {
				select {
				case refused <- err:
				default:
				}
			}
		})
	}
	<-refused
	cancel()
	work.Wait()
	r.cut()
}

// TestServerTimeoutsEndNoLink: the HTTP server's timeouts are for requests of clients, and end
// neither a link nor a transfer.
func TestServerTimeoutsEndNoLink(t *testing.T) { fakeTime(t, testServerTimeouts) }

func testServerTimeouts(t *testing.T) {
	const limit = 8 * time.Second
	s := newServer(t, func(c *remote.Config) { c.Stall = time.Hour }) // the hub's own limit for a transfer
	s.listenInMemory(func(web *http.Server) { web.ReadTimeout, web.WriteTimeout = limit, limit })
	r := s.laptop()
	write := doing(func() error { return s.WriteFile(t.Context(), "/workspace/b", content(9<<20), 0o644, user) })
	wid := r.expect(wire.TypeWriteFile)
	read, id, transfer := s.reading(r)
	data := content(5 << 20)
	body, in := io.Pipe()
	put := begin(func() (*http.Response, error) {
		return r.transfer(http.MethodPut, transfer, body, contentRange(0, int64(len(data))))
	})
	get, err := r.transfer(http.MethodGet, wid.Body.(*wire.Path).Transfer, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer get.Body.Close()
	half := make([]byte, 4<<20)
	if _, err := io.ReadFull(get.Body, half); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(data[:1<<20]); err != nil {
		t.Fatal(err)
	}
	time.Sleep(limit + limit/4)
	if _, err := in.Write(data[1<<20:]); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if got := <-put; got.err != nil || got.value.StatusCode != http.StatusNoContent {
		t.Fatal(got.value, got.err)
	}
	if rest, err := io.ReadAll(get.Body); err != nil || len(rest) != 5<<20 {
		t.Fatal(len(rest), err)
	}
	r.send(id, wire.TypeFileContent, &wire.FileContent{Size: int64(len(data)), SHA256: sumOf(data)})
	if got := <-read; got.err != nil || !bytes.Equal(got.value, data) {
		t.Fatal(got.err)
	}
	r.send(wid.ID, wire.TypeOK, nil)
	if got := <-write; got.err != nil {
		t.Fatal(got.err)
	}
}

// TestSilenceAfterLongMessage: a runner falls silent after it has received 4 MiB, which would take
// longer on a slow line. Its link is closed as soon as any other.
func TestSilenceAfterLongMessage(t *testing.T) { fakeTime(t, testSilenceAfterLongMessage) }

func testSilenceAfterLongMessage(t *testing.T) {
	s := serveInMemory(t, func(c *remote.Config) { c.Heartbeat = 500 * time.Millisecond })
	r := s.laptop()
	write := doing(func() error { return s.WriteFile(t.Context(), "/workspace/a", content(wire.InlineBytes), 0o600, user) })
	m := r.expect(wire.TypeWriteFile)
	r.send(m.ID, wire.TypeOK, nil)
	if res := <-write; res.err != nil {
		t.Fatal(res.err)
	}
	for answered := 0; answered < 3; { // at most one before the message, and one after it
		_, data, err := r.conn.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if m, err := wire.FromServer(data); err != nil || m.Type == wire.TypePing {
			r.send(m.ID, wire.TypePong, nil)
			answered++
		}
	}
	allowed := time.After(20 * time.Second) // the allowance for the message alone is 43 s
	for len(s.Runners()) > 0 {
		select {
		case <-allowed:
			t.Fatal("a runner that is silent is still connected")
		case <-time.After(10 * time.Millisecond):
		}
	}
}
