package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote"
	"secbox/sandbox/remote/wire"
)

func TestInvalidFirstMessage(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for name, c := range map[string]struct {
		frame  string
		status websocket.StatusCode
		reason string
	}{
		"garbage":         {"\x00\x01 not JSON", wire.StatusProtocol, "not a JSON object"},
		"an unknown type": {`{"id":"x","type":"reboot"}`, wire.StatusProtocol, `\"reboot\"`},
		"no hello":        {`{"id":"x","type":"ok"}`, wire.StatusProtocol, "must be hello"},
		"an old runner":   {`{"type":"hello","protocol":0}`, wire.StatusProtocol, "no protocol version"},
		"a new runner":    {`{"type":"hello","protocol":2}`, wire.StatusVersion, "update core-api"},
		"a bad name": {
			`{"type":"hello","protocol":1,"session":"` + session + `","name":"a/b","version":"1","os":"o","arch":"a","shell":"s","allow":[]}`,
			wire.StatusProtocol, "the name must be",
		},
	} {
		r := s.dial("token/u")
		r.sendRaw(c.frame)
		if reason := r.expectClosed(c.status); !strings.Contains(reason, strings.ReplaceAll(c.reason, `\"`, `"`)) || len(reason) > 123 {
			t.Errorf("%s: %q", name, reason)
		}
	}
	if all := s.Runners(); len(all) != 0 {
		t.Fatal(all)
	}
}

// TestProtocolViolations: each violation, with a command and a list in flight, closes the link, and
// the requests end as after any break.
func TestProtocolViolations(t *testing.T) {
	t.Parallel()
	for name, lie := range map[string]func(r *raw, exec, list string){
		"garbage":                    func(r *raw, _, _ string) { r.sendRaw("{{{") },
		"an unknown type":            func(r *raw, _, _ string) { r.sendRaw(`{"id":"x","type":"reboot"}`) },
		"a second hello":             func(r *raw, _, _ string) { r.send("", wire.TypeHello, helloOf(session, "laptop")) },
		"an answer to nothing":       func(r *raw, _, _ string) { r.send("unknown", wire.TypeOK, nil) },
		"output of nothing":          func(r *raw, _, _ string) { r.output("unknown", 0, "a") },
		"output of a list":           func(r *raw, _, list string) { r.output(list, 0, "a") },
		"a file for a command":       func(r *raw, exec, _ string) { r.send(exec, wire.TypeFileContent, &wire.FileContent{}) },
		"a command's end for a list": func(r *raw, _, list string) { r.send(list, wire.TypeExecResult, &wire.ExecResult{}) },
		"output with a hole":         func(r *raw, exec, _ string) { r.output(exec, 1, "a") },
		"a result with a hole": func(r *raw, exec, _ string) {
			r.send(exec, wire.TypeExecResult, &wire.ExecResult{StdoutAt: 5, StdoutBytes: 5})
		},
		"more output than asked for": func(r *raw, exec, _ string) { r.output(exec, 0, "0123456789a") },
		"output that was not written": func(r *raw, exec, _ string) {
			r.output(exec, 0, "0123456789")
			r.send(exec, wire.TypeExecResult, &wire.ExecResult{StdoutAt: 0, StdoutBytes: 3})
		},
		"base64 that is none": func(r *raw, exec, _ string) {
			r.sendRaw(`{"id":"` + exec + `","type":"output","stream":"stdout","offset":0,"data":"*"}`)
		},
		"a directory without end": func(r *raw, _, list string) {
			entries := make([]wire.DirEntry, wire.MaxEntries)
			for n := range sandbox.MaxDirEntries/wire.MaxEntries + 1 {
				for i := range entries {
					entries[i].Name = fmt.Sprint(n, ".", i)
				}
				r.send(list, wire.TypeDirEntries, &wire.DirEntries{Entries: entries, More: true})
			}
		},
		"a binary message": func(r *raw, _, _ string) {
			if err := r.conn.Write(r.t.Context(), websocket.MessageBinary, []byte(`{"id":"x","type":"ok"}`)); err != nil {
				r.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(c *remote.Config) { c.Grace = 50 * time.Millisecond })
			r := s.laptop()
			exec := begin(func() (*sandbox.ExecResult, error) {
				return s.Exec(t.Context(), sandbox.ExecSpec{Command: "c", User: user, MaxStdout: 10})
			})
			execID := r.expect(wire.TypeExec).ID
			list := begin(func() ([]sandbox.DirEntry, error) { return s.ReadDir(t.Context(), "/workspace", user) })
			listID := r.expect(wire.TypeReadDir).ID
			lie(r, execID, listID)
			r.expectClosed(wire.StatusProtocol)
			if got := <-exec; !fault.Is(got.err, fault.OutcomeUnknown) || !strings.Contains(got.err.Error(), "broke the protocol (") {
				t.Errorf("the command: %v, %v", got.value, got.err)
			}
			if got := <-list; !fault.Is(got.err, fault.RunnerOffline) && !fault.Is(got.err, fault.TreeTooLarge) {
				t.Errorf("the list: %v, %v", len(got.value), got.err)
			}
		})
	}
}

func (r *raw) output(id string, offset int64, data string) {
	r.t.Helper()
	r.send(id, wire.TypeOutput, &wire.Output{Stream: "stdout", Offset: offset, Data: []byte(data)})
}

// TestDuplicateName: a name is listed once. It is no violation: names that are not UTF-8 may become
// equal in JSON, and a file may be renamed while the runner reads its directory.
func TestDuplicateName(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	list := begin(func() ([]sandbox.DirEntry, error) { return s.ReadDir(t.Context(), "/workspace", user) })
	id := r.expect(wire.TypeReadDir).ID
	r.send(id, wire.TypeDirEntries, &wire.DirEntries{Entries: []wire.DirEntry{{Name: "b", Size: 1}, {Name: "a"}, {Name: "b", Size: 2}}, More: true})
	r.send(id, wire.TypeDirEntries, &wire.DirEntries{Entries: []wire.DirEntry{{Name: "a"}, {Name: "c"}}})
	got := <-list
	if got.err != nil || len(got.value) != 3 || got.value[0].Name != "a" || got.value[1].Name != "b" || got.value[1].Size != 1 || got.value[2].Name != "c" {
		t.Errorf("%+v, %v", got.value, got.err)
	}
}

// TestDuplicateAnswer: a second answer, after the acknowledged first one, is a protocol violation.
func TestDuplicateAnswer(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	mkdir := doing(func() error { return s.MkdirAll(t.Context(), "/workspace/d", 0o755, user) })
	id := r.expect(wire.TypeMkdirAll).ID
	r.send(id, wire.TypeOK, nil)
	if got := <-mkdir; got.err != nil {
		t.Fatal(got.err)
	}
	r.send(id, wire.TypeOK, nil)
	r.expectClosed(wire.StatusProtocol)
}

func TestOversizedFrame(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	go func() { // the server may close before all is written
		_ = r.conn.Write(t.Context(), websocket.MessageText, []byte(`{"id":"`+strings.Repeat("a", wire.MaxMessage+1)))
	}()
	for {
		if _, err := r.next(); err != nil {
			break
		}
	}
	await(t, "the runner to be gone", func() bool { return len(s.Runners()) == 0 })
}

// TestUnfinishedFrame: closing a link does not wait for the rest of a frame.
func TestUnfinishedFrame(t *testing.T) {
	t.Parallel()
	s := serve(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /ws HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token/u\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	_, _ = conn.Write([]byte{0x82, 0xff, 0x0f, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 'x'}) // a binary frame, and the first byte of very many
	_ = conn.SetReadDeadline(time.Now().Add(15 * time.Second))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the link has not ended")
	}
}

// await polls until is() is true, for two minutes.
func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(2 * time.Minute)
	for !is() {
		select {
		case <-late:
			t.Fatalf("still waiting for %s", what)
		case <-tick.C:
		}
	}
}

func TestRunnerNameInUse(t *testing.T) {
	t.Parallel()
	s := serve(t)
	first := s.laptop()
	go func() { // answers pings
		for {
			if _, err := first.next(); err != nil {
				return
			}
		}
	}()
	second := s.dial("token/u")
	second.send("", wire.TypeHello, helloOf(another, "laptop"))
	if reason := second.expectClosed(wire.StatusNameInUse); !strings.Contains(reason, "--name") {
		t.Fatal(reason)
	}
	s.connectAs("other/v", helloOf(another, "laptop")) // of another user
	s.connect(helloOf(another, "tower"))
	if all := s.Runners(); len(all) != 3 || all[0].Name != "laptop" || all[1].Name != "tower" || all[2].UserID != "v" {
		t.Fatalf("%+v", all)
	}
	if _, err := s.Locate(t.Context(), user); err == nil || !strings.Contains(fault.From(err).Message, "laptop, tower") {
		t.Fatal(err)
	}
	tower := user
	tower.Runner = "tower"
	if l, err := s.Locate(t.Context(), tower); err != nil || l.User.Runner != "tower" || l.Backend != sandbox.Remote {
		t.Fatal(l, err)
	}
	first.cut()
	await(t, "the first to be gone", func() bool { return len(s.Runners()) == 2 })
	if l, err := s.Locate(t.Context(), user); err != nil || l.User.Runner != "tower" {
		t.Fatal(l, err)
	}
	if _, err := s.Locate(t.Context(), sandbox.User{ID: "u", Runner: "laptop"}); !fault.Is(err, fault.RunnerOffline) {
		t.Fatal(err)
	}
	if _, err := s.Exec(t.Context(), sandbox.ExecSpec{Command: "c", User: sandbox.User{ID: "w"}}); !fault.Is(err, fault.RunnerOffline) {
		t.Fatal(err)
	}
}

// TestSilentRunnerLosesItsName: a machine that crashed without hanging up connects again.
func TestSilentRunnerLosesItsName(t *testing.T) { fakeTime(t, testSilentRunnerLosesItsName) }

func testSilentRunnerLosesItsName(t *testing.T) {
	s := serveInMemory(t) // whose heartbeat would notice after an hour
	first := s.laptop()
	first.silent = true
	read := doing(func() error { _, err := s.ReadFile(t.Context(), "/workspace/a", user); return err })
	first.expect(wire.TypeReadFile)
	write := doing(func() error { return s.WriteFile(t.Context(), "/workspace/a", nil, 0o644, user) })
	first.expect(wire.TypeWriteFile)
	s.connect(helloOf(another, "laptop"))
	if r := <-read; !fault.Is(r.err, fault.RunnerOffline) {
		t.Error(r.err)
	}
	if r := <-write; !fault.Is(r.err, fault.OutcomeUnknown) {
		t.Error(r.err)
	}
	if all := s.Runners(); len(all) != 1 || all[0].InFlight != 0 {
		t.Errorf("%+v", all)
	}
	first.cut()
}

func TestRevokedToken(t *testing.T) { fakeTime(t, testRevokedToken) }

func testRevokedToken(t *testing.T) {
	s := serveInMemory(t, func(c *remote.Config) { c.Heartbeat = time.Second; c.Grace = time.Hour })
	r := s.laptop()
	write := doing(func() error { return s.WriteFile(t.Context(), "/workspace/a", nil, 0o644, user) })
	r.expect(wire.TypeWriteFile)
	stat := begin(func() (*sandbox.FileInfo, error) { return s.Stat(t.Context(), "/workspace", user) })
	r.expect(wire.TypeStat)
	s.mu.Lock()
	s.revoked["token"] = fault.New(fault.TokenRevoked, "revoked")
	s.mu.Unlock()
	r.expectClosed(wire.StatusRevoked)
	if got := <-write; !fault.Is(got.err, fault.OutcomeUnknown) {
		t.Error(got.err)
	}
	if got := <-stat; !fault.Is(got.err, fault.RunnerOffline) {
		t.Error(got.err)
	}
	again := s.dial("token/u")
	again.send("", wire.TypeHello, helloOf(session, "laptop"))
	again.expectClosed(wire.StatusRevoked)
}

func TestUncheckedTokenStaysValid(t *testing.T) { fakeTime(t, testUncheckedTokenStaysValid) }

func testUncheckedTokenStaysValid(t *testing.T) {
	checks := make(chan struct{}, 100)
	s := serveInMemory(t, func(c *remote.Config) {
		c.Heartbeat = time.Second
		c.Valid = func(context.Context, string) error {
			checks <- struct{}{}
			return fault.New(fault.DatabaseUnavailable, "down")
		}
	})
	r := s.laptop()
	r.listen()
	for range 3 { // the first for the hello
		<-checks
	}
	if len(s.Runners()) != 1 {
		t.Fatal(s.Runners())
	}
}

// listen answers pings and drops other messages until the link ends.
func (r *raw) listen() {
	go func() {
		for {
			if _, err := r.next(); err != nil {
				return
			}
		}
	}()
}

// TestSilentRunner: the name of a silent runner is free after three heartbeats.
func TestSilentRunner(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *remote.Config) { c.Heartbeat = 20 * time.Millisecond })
	s.laptop() // reads nothing
	await(t, "the silent runner to be given up", func() bool { return len(s.Runners()) == 0 })
	s.connect(helloOf(another, "laptop"))
}

func TestLatency(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *remote.Config) { c.Heartbeat = 500 * time.Millisecond })
	await(t, "a latency", func() bool {
		all := s.Runners()
		if len(all) == 0 { // the first one, or a busy machine made it miss its heartbeats
			s.laptop().listen()
		}
		return len(all) == 1 && all[0].Latency > 0
	})
	info := s.Runners()[0]
	if info.Version != "1" || info.OS != "linux" || info.Arch != "amd64" || info.ConnectedSince.IsZero() || len(info.Allow) != 2 {
		t.Fatalf("%+v", info)
	}
}

func TestCloseEndsLinksAndCalls(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *remote.Config) { c.Grace = 50 * time.Millisecond })
	r := s.laptop()
	remove := doing(func() error { return s.Remove(t.Context(), "/workspace/a", user) })
	r.expect(wire.TypeRemove)
	list := begin(func() ([]sandbox.DirEntry, error) { return s.ReadDir(t.Context(), "/workspace", user) })
	r.expect(wire.TypeReadDir)
	closed := doing(s.Close)
	r.expectClosed(wire.StatusGoingAway)
	if got := <-closed; got.err != nil {
		t.Fatal(got.err)
	}
	if got := <-remove; !fault.Is(got.err, fault.OutcomeUnknown) {
		t.Error(got.err)
	}
	if got := <-list; !fault.Is(got.err, fault.ShuttingDown) {
		t.Error(got.err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stat(t.Context(), "/workspace", user); !fault.Is(err, fault.ShuttingDown) {
		t.Fatal(err)
	}
	if _, resp, err := websocket.Dial(t.Context(), s.url+wire.LinkPath, nil); err == nil || resp == nil || resp.StatusCode != 503 {
		t.Fatal(resp, err)
	}
}

// TestCloseDoesNotWaitForSilentRunners: neither for one without a hello, nor for one whose name
// another one wants.
func TestCloseDoesNotWaitForSilentRunners(t *testing.T) {
	fakeTime(t, testCloseDoesNotWaitForSilentRunners)
}

func testCloseDoesNotWaitForSilentRunners(t *testing.T) {
	var log bytes.Buffer // read when all writers have ended
	s := serveInMemory(t, func(c *remote.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	s.dial("token/u")    // no hello
	laptop := s.laptop() // answers no ping
	other := s.dial("token/u")
	other.send("", wire.TypeHello, helloOf(another, "laptop"))
	for range 2 { // the first ping of the link, and isAlive's ping
		if _, _, err := laptop.conn.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	closed := doing(s.Close)
	other.expectClosed(wire.StatusGoingAway)
	if got := <-closed; got.err != nil {
		t.Fatal(got.err)
	}
	if strings.Contains(log.String(), "no hello:") { // the log of a timeout
		t.Error(log.String())
	}
}

func TestLocalRefusals(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.laptop()
	if _, err := s.ReadFile(t.Context(), "/opt/skill-creator/SKILL.md", user); !fault.Is(err, fault.Unsupported) {
		t.Error(err)
	}
	for _, path := range []string{
		"", "a", "/workspace/../etc/passwd", "/etc/passwd", "/workspace/\x00", "/workspace/\xff", "/workspace/" + strings.Repeat("a/", 2500),
	} {
		if _, err := s.Stat(t.Context(), path, user); err == nil || fault.Is(err, fault.RunnerOffline) {
			t.Errorf("%q: %v", path, err)
		}
	}
	for name, spec := range map[string]sandbox.ExecSpec{
		"no command":   {},
		"a hidden one": {Command: "c", Env: []string{"SECRET_A=1"}},
		"NUL":          {Command: "c", Args: []string{"\x00"}},
		"no UTF-8":     {Command: "c\xff"},
		"a bad id":     {Command: "c", ExecID: "a b"},
		"many args":    {Command: "c", Args: make([]string, wire.MaxArgs+1)},
		"too long":     {Command: "c", Stdin: strings.Repeat("\xff", wire.MaxMessage)},
	} {
		spec.User = user
		if _, err := s.Exec(t.Context(), spec); !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if shell, err := s.GetShell(t.Context(), user); err != nil || shell != "/bin/sh" {
		t.Error(shell, err)
	}
	if s.Name() != sandbox.Remote {
		t.Error("the name")
	}
}

var errTest = errors.New("the test's own error")

// TestLongHello: a hello is bounded, and so are the results of commands without a caller.
func TestLongHello(t *testing.T) { // not parallel: the hub waits ten seconds for a hello, which others could use up
	s := serve(t)
	hello := helloOf(session, "laptop")
	for i := range wire.MaxHeld { // the longest ids
		hello.Held = append(hello.Held, fmt.Sprintf("%0*d", wire.MaxID, i))
	}
	s.connect(hello)
	r := s.dial("token/u")
	_ = r.conn.Write(t.Context(), websocket.MessageText, []byte(`{"type":"hello","version":"`+strings.Repeat("x", wire.MaxHello)+`"}`))
	r.expectClosed(websocket.StatusMessageTooBig)
}

func TestLateResultsAreBounded(t *testing.T) {
	t.Parallel()
	const detail, most = 4 << 20, 16 << 20
	var told atomic.Int32
	on := make(chan struct{})
	s := serve(t, func(c *remote.Config) {
		c.Late = func(context.Context, sandbox.User, string, sandbox.ExecResult) error {
			<-on
			told.Add(1)
			return nil
		}
	})
	hello := helloOf(session, "laptop")
	for i := range most/detail + 1 {
		hello.Held = append(hello.Held, fmt.Sprint(i))
	}
	hello.Held = append(hello.Held, "file")
	r := s.connect(hello)
	for _, id := range hello.Held[:len(hello.Held)-1] {
		r.send(id, wire.TypeExecResult, &wire.ExecResult{Detail: strings.Repeat("x", detail)})
	}
	r.send("file", wire.TypeOK, nil)
	r.expect(wire.TypeAck) // all has been read then
	close(on)
	for range most / detail {
		r.expect(wire.TypeAck)
	}
	stat := begin(func() (*sandbox.FileInfo, error) { return s.Stat(t.Context(), "/workspace", user) })
	m := r.expect(wire.TypeStat)
	r.send(m.ID, wire.TypeFileInfo, &wire.FileInfo{Name: "workspace"})
	<-stat
	if n := told.Load(); n > most/detail {
		t.Errorf("%d results with %d MiB were kept", n, n*detail>>20)
	}
}
