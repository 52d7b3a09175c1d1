package remote_test

import (
	"errors"
	"io/fs"
	"testing"

	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

func TestRequestAndAnswer(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	if r.wel.UserID != "u" || r.wel.Protocol != wire.Version || len(r.wel.Expects) != 0 {
		t.Fatalf("%+v", r.wel)
	}
	read := begin(func() ([]byte, error) { return s.ReadFile(t.Context(), "/workspace/a", user) })
	m := r.expect(wire.TypeReadFile)
	if p := m.Body.(*wire.Path); p.Path != "/workspace/a" || p.UserID != "u" || len(p.Transfer) != 32 {
		t.Fatalf("%+v", p)
	}
	r.send(m.ID, wire.TypeFileContent, &wire.FileContent{Data: []byte("abc"), Size: 3})
	if got := <-read; got.err != nil || string(got.value) != "abc" {
		t.Fatal(got)
	}
	if ack := r.expect(wire.TypeAck); ack.ID != m.ID {
		t.Fatal(ack)
	}

	stat := begin(func() (*sandbox.FileInfo, error) { return s.Stat(t.Context(), "/workspace/b", user) })
	r.send(r.expect(wire.TypeStat).ID, wire.TypeError, &wire.Error{Code: wire.CodeNotExist})
	var p *fs.PathError
	if got := <-stat; !errors.Is(got.err, fs.ErrNotExist) || !errors.As(got.err, &p) || p.Path != "/workspace/b" {
		t.Fatal(got.err)
	}
	r.expect(wire.TypeAck)

	exec := begin(func() (*sandbox.ExecResult, error) {
		return s.Exec(t.Context(), sandbox.ExecSpec{Command: "sh", ExecID: "e-1", User: user, MaxStdout: 6})
	})
	m = r.expect(wire.TypeExec)
	if m.ID != "e-1" {
		t.Fatal(m.ID)
	}
	r.send("e-1", wire.TypeOutput, &wire.Output{Stream: "stdout", Data: []byte("abc")})
	r.send("e-1", wire.TypeOutput, &wire.Output{Stream: "stdout", Offset: 1, Data: []byte("bcd")})
	r.send("e-1", wire.TypeExecResult, &wire.ExecResult{Stdout: "def", StdoutAt: 3, StdoutBytes: 9, ExitCode: 3})
	got := <-exec
	if got.err != nil || got.value.Stdout != "abcdef" || got.value.ExitCode != 3 || got.value.Runner != "laptop" || got.value.ExecID != "e-1" {
		t.Fatal(got.value, got.err)
	}
}
