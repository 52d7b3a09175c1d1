package remote_test

import (
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote"
	"secbox/sandbox/remote/wire"
)

// withInput is a hello of a runner that takes input.
func withInput() *wire.Hello {
	h := helloOf(session, "laptop")
	h.Can = []string{wire.CanInput}
	return h
}

func (r *raw) ack(id string, stdin, signals int64) {
	r.t.Helper()
	r.send(id, wire.TypeInputAck, &wire.InputAck{Stdin: stdin, Signals: signals})
}

// stdin expects a piece of input.
func (r *raw) stdin(id string, offset int64, data string, end bool) {
	r.t.Helper()
	m := r.expect(wire.TypeStdin)
	if in := m.Body.(*wire.Stdin); m.ID != id || in.Offset != offset || string(in.Data) != data || in.End != end {
		r.t.Fatalf("%s got %d %.20q %t, not %d %.20q %t", m.ID, in.Offset, in.Data, in.End, offset, data, end)
	}
}

func (r *raw) signal(number int64, name string) {
	r.t.Helper()
	if s := r.expect(wire.TypeSignal).Body.(*wire.Signal); s.Number != number || s.Signal != name {
		r.t.Fatalf("%+v, not %d %s", s, number, name)
	}
}

// start starts a command with input, and returns the id of its request.
func (s *server) start(r *raw) (*sandbox.Process, string) {
	p := sandbox.Start(s.t.Context(), s.Hub, sandbox.ExecSpec{Command: "c", User: user, MaxStdout: 10})
	m := r.expect(wire.TypeExec)
	if e := m.Body.(*wire.Exec); !e.Input || e.Stdin != "" {
		s.t.Fatalf("%+v", e)
	}
	return p, m.ID
}

// TestOlderRunnerGetsNoInput: an unknown field would end its link.
func TestOlderRunnerGetsNoInput(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.laptop()
	for _, spec := range []sandbox.ExecSpec{
		{Command: "c", User: user, StdinFrom: strings.NewReader("x")},
		{Command: "c", User: user, Signals: make(chan syscall.Signal)},
	} {
		if _, err := s.Exec(t.Context(), spec); !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "update secbox") {
			t.Error(err)
		}
	}
}

// TestInputIsSentAgain: what was not acknowledged, on the next link.
func TestInputIsSentAgain(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.connect(withInput())
	p, id := s.start(r)
	for at, word := range []string{"a", "b", "c"} {
		if _, err := io.WriteString(p.Stdin, word); err != nil {
			t.Fatal(err)
		}
		r.stdin(id, int64(at), word, false)
	}
	for i, name := range []string{"INT", "TERM"} {
		if err := p.Signal(wire.SignalNames[name]); err != nil {
			t.Fatal(err)
		}
		r.signal(int64(i)+1, name)
	}
	r.ack(id, 1, 1)
	stat := begin(func() (*sandbox.FileInfo, error) { return s.Stat(t.Context(), "/workspace", user) })
	m := r.expect(wire.TypeStat)
	r.send(m.ID, wire.TypeFileInfo, &wire.FileInfo{Name: "workspace"})
	<-stat // the acknowledgment has been read then
	r.cut()
	s.gone()
	hello := withInput()
	hello.Held = []string{id}
	r = s.connect(hello)
	r.stdin(id, 1, "bc", false)
	r.signal(2, "TERM")
	r.ack(id, 3, 2)
	if err := p.Stdin.Close(); err != nil {
		t.Fatal(err)
	}
	r.stdin(id, 3, "", true)
	r.cut()
	s.gone()
	r = s.connect(hello)
	r.stdin(id, 3, "", true)
	r.send(id, wire.TypeExecResult, &wire.ExecResult{ExitCode: 5})
	if got, err := p.Wait(); err != nil || got.ExitCode != 5 {
		t.Error(got, err)
	}
}

// TestInputWindow: no more is sent than may be on the way.
func TestInputWindow(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.connect(withInput())
	p, id := s.start(r)
	wrote := doing(func() error {
		_, err := io.WriteString(p.Stdin, strings.Repeat("x", wire.StdinWindow+1))
		return err
	})
	got := int64(0)
	for got < wire.StdinWindow {
		got += int64(len(r.expect(wire.TypeStdin).Body.(*wire.Stdin).Data))
	}
	// Another request goes through, and no input before it.
	stat := begin(func() (*sandbox.FileInfo, error) { return s.Stat(t.Context(), "/workspace", user) })
	m := r.expect(wire.TypeStat)
	r.send(m.ID, wire.TypeFileInfo, &wire.FileInfo{Name: "workspace"})
	<-stat
	r.expect(wire.TypeAck)
	r.ack(id, 1<<10, 0)
	r.stdin(id, wire.StdinWindow, "x", false)
	if res := <-wrote; res.err != nil {
		t.Error(res.err)
	}
	r.send(id, wire.TypeExecResult, &wire.ExecResult{})
	if _, err := p.Wait(); err != nil {
		t.Error(err)
	}
}

func TestLiesAboutInput(t *testing.T) {
	t.Parallel()
	for name, lie := range map[string]func(r *raw, id string){
		"stdin that was not sent":     func(r *raw, id string) { r.ack(id, 2, 0) },
		"a signal that was not sent":  func(r *raw, id string) { r.ack(id, 0, 1) },
		"less than before":            func(r *raw, id string) { r.ack(id, 1, 0); r.ack(id, 0, 0) },
		"input of an unknown command": func(r *raw, _ string) { r.ack("unknown", 0, 0) },
		"input of a request without": func(r *raw, _ string) {
			go func() { _, _ = r.s.Stat(r.t.Context(), "/workspace", user) }()
			r.ack(r.expect(wire.TypeStat).ID, 0, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(c *remote.Config) { c.Grace = 50 * time.Millisecond })
			s.t = t
			r := s.connect(withInput())
			p, id := s.start(r)
			if _, err := io.WriteString(p.Stdin, "a"); err != nil {
				t.Fatal(err)
			}
			r.stdin(id, 0, "a", false)
			lie(r, id)
			r.expectClosed(wire.StatusProtocol)
			if got, err := p.Wait(); !fault.Is(err, fault.OutcomeUnknown) {
				t.Error(got, err)
			}
		})
	}
}
