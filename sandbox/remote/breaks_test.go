package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote"
	"secbox/sandbox/remote/wire"
)

func (s *server) exec(ctx context.Context, id string) <-chan result[*sandbox.ExecResult] {
	return begin(func() (*sandbox.ExecResult, error) {
		return s.Exec(ctx, sandbox.ExecSpec{Command: "c", ExecID: id, User: user})
	})
}

// gone waits until the hub has noticed that nobody is connected.
func (s *server) gone() {
	s.t.Helper()
	await(s.t, "the runner to be gone", func() bool { return len(s.Runners()) == 0 })
}

// again is the hello of the same session, which holds some requests.
func again(held ...string) *wire.Hello {
	h := helloOf(session, "laptop")
	h.Held = held
	return h
}

func TestWhatWasNotSentHasNotHappened(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	r.cut()
	s.gone()
	if err := s.Remove(t.Context(), "/workspace/a", user); !fault.Is(err, fault.RunnerOffline) {
		t.Fatal(err)
	}
}

func TestAHeldCommandGoesOnFromItsOffsets(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	exec := s.exec(t.Context(), "e")
	r.expect(wire.TypeExec)
	r.output("e", 0, "abc")
	stat := begin(func() (*sandbox.FileInfo, error) { return s.Stat(t.Context(), "/workspace", user) })
	r.expect(wire.TypeStat) // so the output has been read
	r.cut()
	s.gone()
	if _, err := s.Stat(t.Context(), "/workspace", user); !fault.Is(err, fault.RunnerOffline) {
		t.Fatal(err)
	}
	r = s.connect(again("e"))
	if len(r.wel.Expects) != 1 || r.wel.Expects[0].ID != "e" || r.wel.Expects[0].Stdout > 3 {
		t.Fatalf("%+v", r.wel)
	}
	m := r.expect(wire.TypeStat) // never taken, so sent again
	r.send(m.ID, wire.TypeFileInfo, &wire.FileInfo{Name: "workspace", IsDir: true})
	if got := <-stat; got.err != nil || !got.value.IsDir {
		t.Fatal(got)
	}
	r.output("e", 0, "abcdef")
	r.send("e", wire.TypeExecResult, &wire.ExecResult{Stdout: "ghi", StdoutAt: 6, StdoutBytes: 9})
	if got := <-exec; got.err != nil || got.value.Stdout != "abcdefghi" {
		t.Fatal(got.value, got.err)
	}
}

func TestARequestThatWasNeverTakenIsSentAgainOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	mkdir := doing(func() error { return s.MkdirAll(t.Context(), "/workspace/d", 0o755, user) })
	id := r.expect(wire.TypeMkdirAll).ID
	r.cut()
	s.gone()
	r = s.connect(again())
	if m := r.expect(wire.TypeMkdirAll); m.ID != id || len(r.wel.Expects) != 0 {
		t.Fatal(m, r.wel)
	}
	r.send(id, wire.TypeOK, nil)
	if got := <-mkdir; got.err != nil {
		t.Fatal(got.err)
	}
}

// A runner that has begun a command and says later that it does not hold it cannot be asked to do it again.
func TestACommandThatHasBegunIsNotSentAgain(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	exec := s.exec(t.Context(), "e")
	r.expect(wire.TypeExec)
	r.output("e", 0, "abc")
	stat := begin(func() (*sandbox.FileInfo, error) { return s.Stat(t.Context(), "/workspace", user) })
	m := r.expect(wire.TypeStat)
	r.send(m.ID, wire.TypeFileInfo, &wire.FileInfo{Name: "workspace"})
	<-stat // so the output before it was read
	r.cut()
	s.gone()
	s.connect(again())
	if got := <-exec; !fault.Is(got.err, fault.OutcomeUnknown) {
		t.Fatal(got.value, got.err)
	}
}

func TestAnotherSessionIsAnotherLife(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	exec := s.exec(t.Context(), "e")
	r.expect(wire.TypeExec)
	read := begin(func() ([]byte, error) { return s.ReadFile(t.Context(), "/workspace/a", user) })
	r.expect(wire.TypeReadFile)
	r.cut()
	s.gone()
	r = s.connect(helloOf(another, "laptop"))
	if len(r.wel.Expects) != 0 {
		t.Fatal(r.wel)
	}
	if got := <-exec; !fault.Is(got.err, fault.OutcomeUnknown) || !strings.Contains(fault.From(got.err).Message, "laptop") {
		t.Error(got.err)
	}
	if got := <-read; !fault.Is(got.err, fault.RunnerOffline) {
		t.Error(got.err)
	}
}

func TestNobodyWaitsLongerThanTheGraceOrTheirContext(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *remote.Config) { c.Grace = 50 * time.Millisecond })
	r := s.laptop()
	exec := s.exec(t.Context(), "e")
	r.expect(wire.TypeExec)
	r.cut()
	if got := <-exec; !fault.Is(got.err, fault.OutcomeUnknown) {
		t.Error(got.err)
	}

	s = serve(t, func(c *remote.Config) { c.Grace = time.Hour })
	r = s.laptop()
	ctx, cancel := context.WithCancel(t.Context())
	exec = s.exec(ctx, "e")
	r.expect(wire.TypeExec)
	r.cut()
	s.gone()
	cancel()
	if got := <-exec; !fault.Is(got.err, fault.OutcomeUnknown) || !errors.Is(got.err, context.Canceled) {
		t.Error(got.err)
	}
}

func TestTheSameSessionReplacesItsLink(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	exec := s.exec(t.Context(), "e")
	r.expect(wire.TypeExec)
	old := begin(func() (string, error) { return r.expectClosed(wire.StatusReplaced), nil })
	next := s.connect(again("e"))
	<-old
	next.send("e", wire.TypeExecResult, &wire.ExecResult{})
	if got := <-exec; got.err != nil {
		t.Fatal(got.err)
	}
	if all := s.Runners(); len(all) != 1 {
		t.Fatal(all)
	}
}

func TestACancelIsSentAndConfirmed(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	ctx, cancel := context.WithCancel(t.Context())
	exec := s.exec(ctx, "e")
	r.expect(wire.TypeExec)
	cancel()
	if m := r.expect(wire.TypeCancel); m.ID != "e" {
		t.Fatal(m)
	}
	select {
	case got := <-exec:
		t.Fatalf("it has returned before the command was dead: %v", got.err)
	default:
	}
	r.send("e", wire.TypeExecResult, &wire.ExecResult{ExitCode: 137, Canceled: true})
	if got := <-exec; !errors.Is(got.err, context.Canceled) || fault.Is(got.err, fault.OutcomeUnknown) {
		t.Fatal(got.err)
	}
	r.expect(wire.TypeAck)

	ctx, cancel = context.WithCancel(t.Context())
	mkdir := doing(func() error { return s.MkdirAll(ctx, "/workspace/d", 0o755, user) })
	m := r.expect(wire.TypeMkdirAll)
	cancel()
	r.expect(wire.TypeCancel)
	r.send(m.ID, wire.TypeError, &wire.Error{Code: wire.CodeCanceled})
	if got := <-mkdir; !errors.Is(got.err, context.Canceled) || fault.Is(got.err, fault.OutcomeUnknown) {
		t.Fatal(got.err)
	}
	r.expect(wire.TypeAck)

	ctx, cancel = context.WithCancel(t.Context())
	mkdir = doing(func() error { return s.MkdirAll(ctx, "/workspace/d", 0o755, user) })
	m = r.expect(wire.TypeMkdirAll)
	cancel()
	r.expect(wire.TypeCancel)
	r.send(m.ID, wire.TypeOK, nil) // it was done before
	if got := <-mkdir; got.err != nil {
		t.Fatal(got.err)
	}
}

// What nobody waits for any more goes on record, and is acknowledged when it is there.
func TestLateResultsGoOnRecord(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *remote.Config) { c.Grace = 50 * time.Millisecond })
	r := s.laptop()
	exec := s.exec(t.Context(), "lost")
	r.expect(wire.TypeExec)
	r.cut()
	<-exec // after the grace

	s.mu.Lock()
	s.lateErr = errTest
	s.mu.Unlock()
	r = s.connect(again("lost", "of-another-node", "a-file"))
	if len(r.wel.Expects) != 0 {
		t.Fatal(r.wel)
	}
	r.output("lost", 0, "nobody hears this")
	r.send("a-file", wire.TypeOK, nil)
	r.send("lost", wire.TypeExecResult, &wire.ExecResult{ExitCode: 7, Canceled: true})
	if m := r.expect(wire.TypeAck); m.ID != "a-file" {
		t.Fatal("acknowledged before it was on record:", m)
	}
	stat := begin(func() (*sandbox.FileInfo, error) { return s.Stat(t.Context(), "/workspace", user) })
	m := r.expect(wire.TypeStat) // and not an ack
	r.send(m.ID, wire.TypeFileInfo, &wire.FileInfo{Name: "workspace"})
	<-stat
	r.expect(wire.TypeAck)
	r.cut()
	s.gone()

	s.mu.Lock()
	s.lateErr = nil
	s.mu.Unlock()
	r = s.connect(again("lost", "of-another-node"))
	r.send("lost", wire.TypeExecResult, &wire.ExecResult{ExitCode: 7, Canceled: true, StdoutBytes: 17})
	if m := r.expect(wire.TypeAck); m.ID != "lost" {
		t.Fatal(m)
	}
	got := <-s.late
	if got.id != "lost" || got.result.ExitCode != 7 || got.result.StdoutBytes != 17 || got.user.ID != "u" || got.user.Runner != "laptop" {
		t.Fatalf("%+v", got)
	}
	r.send("of-another-node", wire.TypeExecResult, &wire.ExecResult{})
	if got := <-s.late; got.id != "of-another-node" {
		t.Fatal(got)
	}
}

func TestCloseForUserCancelsWhatIsTheirs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	theirs := s.exec(t.Context(), "theirs")
	r.expect(wire.TypeExec)
	other := begin(func() (*sandbox.ExecResult, error) {
		return s.Exec(t.Context(), sandbox.ExecSpec{Command: "c", ExecID: "other", User: sandbox.User{AgentID: "b", ID: "u"}})
	})
	r.expect(wire.TypeExec)
	closed := doing(func() error { return s.CloseForUser(user) })
	if m := r.expect(wire.TypeCancel); m.ID != "theirs" {
		t.Fatal(m)
	}
	r.send("theirs", wire.TypeExecResult, &wire.ExecResult{ExitCode: 137, Canceled: true})
	if got := <-theirs; !fault.Is(got.err, fault.ShuttingDown) {
		t.Fatal(got.err)
	}
	if got := <-closed; got.err != nil {
		t.Fatal(got.err)
	}
	r.expect(wire.TypeAck)
	r.send("other", wire.TypeExecResult, &wire.ExecResult{})
	if got := <-other; got.err != nil {
		t.Fatal(got.err)
	}
}

// More requests than a runner takes at once wait for a place, and each gets its own answer.
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

// A caller that does not take a command's output stops neither the command nor others, and gets all of it in the end.
func TestASlowReaderOfOutput(t *testing.T) {
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

// When the context ends while the caller's writer waits, ExecTo returns as soon as the writer does.
func TestAContextEndsASlowReader(t *testing.T) {
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

// A runner that takes nothing from its connection stops nobody: callers leave when they want to, and its link is given up.
func TestARunnerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *remote.Config) { c.Grace = 50 * time.Millisecond })
	r := s.laptop()
	ctx, cancel := context.WithCancel(t.Context())
	const many = 30 // of 4 MiB: more than waits on the way, and than is let out at once
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

// So many that wait are no work any more but an attack, or a mistake.
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

// The server's own time limits are for requests of clients: neither a link nor a transfer ends with them.
func TestTheServersTimeLimitsEndNoLink(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const limit = 300 * time.Millisecond
	web := httptest.NewUnstartedServer(s.web.Config.Handler)
	web.Config.ReadTimeout, web.Config.WriteTimeout = limit, limit
	web.Start()
	defer web.Close()
	s.url = web.URL
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
	time.Sleep(2 * limit)
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
