package wire_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"secbox/sandbox/remote/wire"
)

const (
	session  = "0123456789abcdef0123456789abcdef"
	transfer = "fedcba9876543210fedcba9876543210"
	sum      = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

func hello() *wire.Hello {
	return &wire.Hello{
		Protocol: wire.Version, Session: session, Name: "laptop", Version: "1.2.3", OS: "linux", Arch: "amd64", Shell: "/bin/bash",
		Allow: []string{"exec", "write"}, Held: []string{"a", "b"},
	}
}

type sample struct {
	id   string
	t    wire.Type
	body any
}

// ofRunner and ofServer have one message of every type and shape.
func ofRunner() []sample {
	binary := &wire.ExecResult{ExitCode: 137, StdoutBytes: 3, StderrBytes: 1, Detail: "killed", OOMKilled: true, Canceled: true}
	binary.SetOutput("\xff\x00a", "e")
	return []sample{
		{"", wire.TypeHello, hello()},
		{"7", wire.TypePong, nil},
		{"", wire.TypePong, nil},
		{"x", wire.TypeOK, nil},
		{"x", wire.TypeOutput, &wire.Output{Stream: "stderr", Offset: 5, Data: []byte{0, 255}}},
		{"x", wire.TypeInputAck, &wire.InputAck{Stdin: 5, Signals: 1}},
		{"x", wire.TypeExecResult, &wire.ExecResult{Stdout: "hi\n", StdoutAt: 2, StdoutBytes: 9, ExitCode: 3}},
		{"x", wire.TypeExecResult, &wire.ExecResult{ExitCode: -1, TimedOut: true}},
		{"x", wire.TypeExecResult, binary},
		{"x", wire.TypeFileContent, &wire.FileContent{Data: []byte("abc"), Size: 3}},
		{"x", wire.TypeFileContent, &wire.FileContent{Data: []byte{}, Size: 5 << 20, SHA256: sum}},
		{"x", wire.TypeFileInfo, &wire.FileInfo{Name: "a b", Size: 1, Mode: 0o644, ModTime: time.Date(2026, 3, 26, 0, 0, 0, 5, time.UTC)}},
		{"x", wire.TypeDirEntries, &wire.DirEntries{Entries: []wire.DirEntry{{Name: "d", IsDir: true, Mode: 1 << 31}}, More: true}},
		{"x", wire.TypeDirEntries, &wire.DirEntries{Entries: []wire.DirEntry{}}},
		{"x", wire.TypeError, &wire.Error{Code: wire.CodeNotExist, Message: "no such file"}},
	}
}

func ofServer() []sample {
	stdin := &wire.Exec{Command: "cat", Args: []string{}, Env: []string{}}
	stdin.SetStdin("\xff")
	return []sample{
		{"", wire.TypeWelcome, &wire.Welcome{
			Protocol: wire.Version, UserID: "u", Version: "1.2.3", HeartbeatMS: 1000,
			Expects: []wire.Expected{{ID: "x", Stdout: 5, Stderr: 16 << 20}},
		}},
		{"7", wire.TypePing, nil},
		{"x", wire.TypeCancel, nil},
		{"x", wire.TypeAck, nil},
		{"x", wire.TypeExec, &wire.Exec{
			Command: "echo hi", Args: []string{"-la"}, Shell: true, Dir: "/workspace", Env: []string{"A=b"}, Stdin: "in\n",
			Timeout: 1.5, MaxStdout: 5, UserID: "u",
		}},
		{"x", wire.TypeExec, stdin},
		{"x", wire.TypeExec, &wire.Exec{Command: "cat", Args: []string{}, Env: []string{}, Input: true}},
		{"x", wire.TypeStdin, &wire.Stdin{Offset: 3, Data: []byte("\xff\x00")}},
		{"x", wire.TypeStdin, &wire.Stdin{Offset: 5, Data: []byte{}, End: true}},
		{"x", wire.TypeSignal, &wire.Signal{Number: 2, Signal: "INT"}},
		{"x", wire.TypeReadFile, &wire.Path{Path: "/workspace/a", UserID: "u", Transfer: transfer}},
		{"x", wire.TypeWriteFile, &wire.Path{Path: "/workspace/a", UserID: "u", Perm: 0o600, Data: []byte{}}},
		{"x", wire.TypeWriteFile, &wire.Path{Path: "/workspace/a", UserID: "u", Perm: 0o600, Transfer: transfer}},
		{"x", wire.TypeWriteFile, &wire.Path{Path: "/workspace/a", UserID: "u", Transfer: transfer, Digest: wire.DigestGMAC}},
		{"x", wire.TypeWriteFile, &wire.Path{Path: "/workspace/a", UserID: "u", Perm: 0o600, Data: []byte{}, IfAbsent: true}},
		{"x", wire.TypeStat, &wire.Path{Path: "/workspace", UserID: "u"}},
		{"x", wire.TypeReadDir, &wire.Path{Path: "/workspace", UserID: "u"}},
		{"x", wire.TypeMkdirAll, &wire.Path{Path: "/workspace/d", UserID: "u", Perm: 0o755}},
		{"x", wire.TypeRemove, &wire.Path{Path: "/workspace/d", UserID: "u"}},
		{"x", wire.TypeRemoveAll, &wire.Path{Path: "/workspace/d", UserID: "u"}},
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for name, side := range map[string]struct {
		samples []sample
		decode  func([]byte) (wire.Message, error)
	}{"runner": {ofRunner(), wire.FromRunner}, "server": {ofServer(), wire.FromServer}} {
		for _, s := range side.samples {
			data, err := wire.Encode(s.id, s.t, s.body)
			if err != nil {
				t.Fatal(err)
			}
			m, err := side.decode(data)
			if err != nil {
				t.Errorf("%s: %s: %v", name, data, err)
				continue
			}
			again, err := wire.Encode(m.ID, m.Type, m.Body)
			if err != nil {
				t.Fatal(err)
			}
			if m.ID != s.id || m.Type != s.t || reflect.TypeOf(m.Body) != reflect.TypeOf(s.body) {
				t.Errorf("%s became %+v", data, m)
			}
			if string(again) != string(data) && !strings.Contains(string(data), "base64") {
				t.Errorf("%s became %s", data, again)
			}
		}
	}
}
