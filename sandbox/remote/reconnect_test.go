package remote_test

import (
	"context"
	"errors"
	"strings"
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

// gone waits until the hub has noticed that no runner is connected.
func (s *server) gone() {
	s.t.Helper()
	await(s.t, "the runner to be gone", func() bool { return len(s.Runners()) == 0 })
}

// lose cuts a link, and waits until the hub has noticed.
func (s *server) lose(r *raw) {
	s.t.Helper()
	r.cut()
	s.gone()
}

// synced returns when the hub has read what the runner has sent. The runner must not have unread
// messages.
func (s *server) synced(r *raw) {
	s.t.Helper()
	stat := begin(func() (*sandbox.FileInfo, error) { return s.Stat(s.t.Context(), "/workspace", user) })
	m := r.expect(wire.TypeStat)
	r.send(m.ID, wire.TypeFileInfo, &wire.FileInfo{Name: "workspace"})
	<-stat
}

// again returns the hello of the same session, with held requests.
func again(held ...string) *wire.Hello {
	h := helloOf(session, "laptop")
	h.Held = held
	return h
}

func TestUnsentRequest(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	s.lose(r)
	if err := s.Remove(t.Context(), "/workspace/a", user); !fault.Is(err, fault.RunnerOffline) {
		t.Fatal(err)
	}
}

func TestHeldCommandResumes(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	exec := s.exec(t.Context(), "e")
	r.expect(wire.TypeExec)
	r.output("e", 0, "abc")
	stat := begin(func() (*sandbox.FileInfo, error) { return s.Stat(t.Context(), "/workspace", user) })
	r.expect(wire.TypeStat) // the output has been read then
	s.lose(r)
	if _, err := s.Stat(t.Context(), "/workspace", user); !fault.Is(err, fault.RunnerOffline) {
		t.Fatal(err)
	}
	r = s.connect(again("e"))
	if len(r.wel.Expects) != 1 || r.wel.Expects[0].ID != "e" || r.wel.Expects[0].Stdout > 3 {
		t.Fatalf("%+v", r.wel)
	}
	m := r.expect(wire.TypeStat) // never received, so sent again
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

func TestUnreceivedRequestIsResent(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	mkdir := doing(func() error { return s.MkdirAll(t.Context(), "/workspace/d", 0o755, user) })
	id := r.expect(wire.TypeMkdirAll).ID
	s.lose(r)
	r = s.connect(again())
	if m := r.expect(wire.TypeMkdirAll); m.ID != id || len(r.wel.Expects) != 0 {
		t.Fatal(m, r.wel)
	}
	r.send(id, wire.TypeOK, nil)
	if got := <-mkdir; got.err != nil {
		t.Fatal(got.err)
	}
}

// TestBegunCommandIsNotResent: a command that the runner has begun and lost is not sent again.
func TestBegunCommandIsNotResent(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	exec := s.exec(t.Context(), "e")
	r.expect(wire.TypeExec)
	r.output("e", 0, "abc")
	s.synced(r)
	s.lose(r)
	s.connect(again())
	if got := <-exec; !fault.Is(got.err, fault.OutcomeUnknown) {
		t.Fatal(got.value, got.err)
	}
}

func TestNewSessionFailsRequests(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	exec := s.exec(t.Context(), "e")
	r.expect(wire.TypeExec)
	read := begin(func() ([]byte, error) { return s.ReadFile(t.Context(), "/workspace/a", user) })
	r.expect(wire.TypeReadFile)
	s.lose(r)
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

func TestGraceAndContext(t *testing.T) {
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
	s.lose(r)
	cancel()
	if got := <-exec; !fault.Is(got.err, fault.OutcomeUnknown) || !errors.Is(got.err, context.Canceled) {
		t.Error(got.err)
	}
}

func TestSessionReplacesLink(t *testing.T) {
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

func TestCancel(t *testing.T) {
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
	r.send(m.ID, wire.TypeOK, nil) // done before the cancel
	if got := <-mkdir; got.err != nil {
		t.Fatal(got.err)
	}
}

// TestRequestTimeoutOfCommand: a command killed for its request's timeout has an unknown outcome;
// it was not "never started".
func TestRequestTimeoutOfCommand(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *remote.Config) { c.RequestTimeout = 50 * time.Millisecond })
	r := s.laptop()
	exec := begin(func() (*sandbox.ExecResult, error) {
		return s.Exec(t.Context(), sandbox.ExecSpec{Command: "c", ExecID: "e", User: user, Timeout: time.Millisecond})
	})
	r.expect(wire.TypeExec)
	r.expect(wire.TypeCancel)
	r.send("e", wire.TypeExecResult, &wire.ExecResult{ExitCode: 137, Canceled: true})
	if got := <-exec; !fault.Is(got.err, fault.OutcomeUnknown) || !strings.Contains(fault.From(got.err).Message, "did not answer within") {
		t.Fatal(got.err)
	}
}

// TestCancelIsRepeated: a cancel that was lost with the link is sent again, and a canceled command
// that was never received is not sent.
func TestCancelIsRepeated(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	ctx, cancel := context.WithCancel(t.Context())
	held, lost := s.exec(ctx, "held"), s.exec(ctx, "lost")
	r.expect(wire.TypeExec)
	r.expect(wire.TypeExec)
	cancel()
	r.expect(wire.TypeCancel)
	r.expect(wire.TypeCancel)
	s.lose(r)

	r = s.connect(again("held"))
	if m := r.expect(wire.TypeCancel); m.ID != "held" || len(r.wel.Expects) != 1 || r.wel.Expects[0].ID != "held" {
		t.Fatal(m, r.wel)
	}
	if got := <-lost; !errors.Is(got.err, context.Canceled) || fault.Is(got.err, fault.OutcomeUnknown) {
		t.Error(got.err)
	}
	r.send("held", wire.TypeExecResult, &wire.ExecResult{ExitCode: 137, Canceled: true})
	if got := <-held; !errors.Is(got.err, context.Canceled) || fault.Is(got.err, fault.OutcomeUnknown) {
		t.Error(got.err)
	}
	r.expect(wire.TypeAck) // not the lost command
}

// TestLateResults: results without a caller are recorded, and then acknowledged.
func TestLateResults(t *testing.T) {
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
	r.output("lost", 0, "unheard")
	r.send("a-file", wire.TypeOK, nil)
	r.send("lost", wire.TypeExecResult, &wire.ExecResult{ExitCode: 7, Canceled: true})
	if m := r.expect(wire.TypeAck); m.ID != "a-file" {
		t.Fatal("acknowledged before it was on record:", m)
	}
	s.synced(r)
	r.expect(wire.TypeAck)
	s.lose(r)

	s.mu.Lock()
	s.lateErr = nil
	s.mu.Unlock()
	r = s.connect(again("lost", "of-another-node"))
	r.send("lost", wire.TypeExecResult, &wire.ExecResult{ExitCode: 7, Canceled: true, StdoutBytes: 17})
	if m := r.expect(wire.TypeAck); m.ID != "lost" {
		t.Fatal(m)
	}
	got := <-s.late
	if got.id != "lost" || got.result.ExitCode != 7 || !got.result.Canceled || got.result.StdoutBytes != 17 || got.user.ID != "u" ||
		got.user.Runner != "laptop" {
		t.Fatalf("%+v", got)
	}
	r.send("of-another-node", wire.TypeExecResult, &wire.ExecResult{})
	if got := <-s.late; got.id != "of-another-node" {
		t.Fatal(got)
	}
}

func TestCloseForUser(t *testing.T) {
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
