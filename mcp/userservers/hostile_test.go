package userservers

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/fault"
	"secbox/sandbox"
)

// nothingLeft checks that no process of the fixture runs, and that each command has ended.
func (f *fixture) nothingLeft() {
	f.t.Helper()
	f.await("all processes have ended", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.ended) == len(f.started)
	})
	f.await("none is counted", func() bool { return f.Running() == 0 })
}

// TestServersThatDoNotStart: a start that fails says why, leaves nothing, and is not repeated at
// once for the second time.
func TestServersThatDoNotStart(t *testing.T) { // 004 l11, 23
	t.Parallel()
	const secret = "hunter2-hunter2"
	for _, c := range []struct {
		mode string
		want []string
		slow bool
	}{
		{"exits", []string{"ended (exit code 3)", `no such database: (TEST_PASSWORD)\x1b[2J`}, false},
		{"silent", []string{"did not answer within", "start_timeout_seconds"}, true},
		{"garbage", []string{"did not answer within", "standard output, which is for messages only:\nWelcome to the server!"}, true},
		{"endless", []string{"wrote something other than messages", "log to standard error", "xxx"}, false},
		{"spaces", []string{"wrote something other than messages of at most 4 MiB"}, false},
		{"refuses", []string{`refused to begin: no license\x1b`}, false},
		{"version", []string{"does not understand", "1999-01-01"}, false},
		{"description", []string{"messages of at most 4 MiB"}, false},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			one := server(c.mode)
			one.Env = []string{"TEST_PASSWORD=" + secret}
			if c.slow {
				one.StartTimeout = 300 * time.Millisecond
			}
			last := c.want[len(c.want)-1]
			var f *fixture
			var err error
			for {
				f = start(t, nil, one)
				if got := f.list(); !slices.Equal(got, []string{"srv.status"}) {
					t.Fatalf("%q", got)
				}
				_, err = f.call(t.Context(), "srv.status", "")
				if !c.slow || one.StartTimeout > time.Minute || err == nil || strings.Contains(err.Error(), last) {
					break
				}
				one.StartTimeout *= 4 // on a busy machine it had not written that yet
			}
			for _, word := range c.want {
				if !fault.Is(err, fault.UpstreamFailed) || !strings.Contains(fault.From(err).Message, word) ||
					!strings.Contains(f.tool("srv.status").Description, word) {
					t.Errorf("%q is not in %v", word, err)
				}
			}
			if strings.Contains(err.Error(), secret) || strings.Contains(fault.From(err).Message, "\x1b") {
				t.Errorf("%q", err)
			}
			f.nothingLeft()
			before := f.starts()
			if _, err := f.call(t.Context(), "srv.status", ""); before != 2 || f.starts() != 2 || fault.From(err).RetryAfter <= 0 {
				t.Errorf("%d starts, then %d: %v", before, f.starts(), err)
			}
			f.advance(time.Minute)
			if _, err := f.call(t.Context(), "srv.status", ""); err == nil || f.starts() != 3 {
				t.Errorf("%d starts: %v", f.starts(), err)
			}
		})
	}
}

// TestACommandThatIsNotThere: the shell's exit code tells it.
func TestACommandThatIsNotThere(t *testing.T) {
	t.Parallel()
	one := server("good")
	one.Command = "no-such-program"
	f := start(t, nil, one)
	f.list()
	if _, err := f.call(t.Context(), "srv.status", ""); !fault.Is(err, fault.UpstreamFailed) || !strings.Contains(err.Error(), "exit code 127") {
		t.Error(err)
	}
}

// TestHostileCalls: each call ends with a clear error or a bounded result. The server goes on, or
// is started again.
func TestHostileCalls(t *testing.T) { // 004 l11, 23
	t.Parallel()
	for _, c := range []struct {
		mode string
		code fault.Code // "": the call is answered
		want string
		dead bool // the process has ended
	}{
		{"never", fault.OutcomeUnknown, "did not answer within", false},
		{"hangs", fault.OutcomeUnknown, "did not answer within", true},
		{"dies", fault.OutcomeUnknown, "during the call, the MCP server srv ended (exit code 7); the end of its standard error:\na bug", true},
		{"half", fault.OutcomeUnknown, "ended (exit code 7)", true},
		{"wrongids", "", "right\n", false},
		{"flood", "", "after the flood\n", false},
		{"asks", "", "asked\n", false},
		{"asksmuch", fault.OutcomeUnknown, "sends more requests than it reads answers", true},
		{"huge", fault.OutcomeUnknown, "at most 4 MiB", true},
		{"notaresult", fault.OutcomeUnknown, "not a result", false},
		{"nested", "", "n\n", false},
		{"parts", "", "(19000 more parts are not shown)\n", false},
		{"error", "", `the MCP server srv refused the call: no such tool\x1b[2J (code -32602)`, false},
		{"output", fault.OutcomeUnknown, "has written as much as the policy allows", true},
		{"stderr", "", "done\n", false},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			one := server(c.mode)
			if c.mode == "never" || c.mode == "hangs" {
				one.CallTimeout = 300 * time.Millisecond
			}
			f := start(t, nil, one)
			if got := f.list(); !slices.Equal(got, []string{"srv.t"}) {
				t.Fatalf("%q %v", got, f.slotsOf(project)[0].failure)
			}
			if c.mode == "hangs" {
				f.cfg.patience = 200 * time.Millisecond // now that it has started
			}
			r, err := f.call(t.Context(), "srv.t", "{}")
			switch {
			case c.code == "" && (err != nil || !strings.HasSuffix(r.Text, c.want) && !strings.HasPrefix(r.Text, c.want)):
				t.Errorf("%.300v %v", r, err)
			case c.code != "" && (!fault.Is(err, c.code) || !strings.Contains(fault.From(err).Message, c.want) || fault.From(err).ExecID == ""):
				t.Errorf("%.300v %v", r, err)
			}
			if c.dead {
				f.nothingLeft()
			} else if f.Running() != 1 {
				t.Errorf("%d processes", f.Running())
			}
			if c.mode == "dies" || c.mode == "half" {
				if _, err := f.call(t.Context(), "srv.t", "{}"); !fault.Is(err, fault.OutcomeUnknown) || f.starts() != 2 {
					t.Errorf("the next call: %v, %d starts", err, f.starts())
				}
				if _, err := f.call(t.Context(), "srv.t", "{}"); !fault.Is(err, fault.UpstreamFailed) || fault.From(err).RetryAfter <= 0 || f.starts() != 2 {
					t.Errorf("the one after it: %v, %d starts", err, f.starts())
				}
			}
		})
	}
}

// TestHostileLists: the offered tools are bounded.
func TestHostileLists(t *testing.T) { // 004 l11
	t.Parallel()
	for mode, check := range map[string]func(t *testing.T, f *fixture, names []string){
		"manytools": func(t *testing.T, f *fixture, names []string) {
			if says := f.tool("srv.status").Description; len(names) != maxTools+1 || !strings.Contains(says, "\"t128\": it is beyond the first 128\n") ||
				!strings.Contains(says, "\n9852 more\n") {
				t.Errorf("%d tools, %s", len(names), says)
			}
		},
		"pages": func(t *testing.T, _ *fixture, names []string) {
			if len(names) != maxPages {
				t.Errorf("%d tools", len(names))
			}
		},
		"names": func(t *testing.T, f *fixture, names []string) {
			if !slices.Equal(names, []string{"srv.a_b", "srv.ok", "srv.status"}) || f.tool("srv.ok").Description != `fine\x1b[2J` {
				t.Errorf("%q", names)
			}
			for _, word := range []string{
				`"a.b": another tool has this name`, `"a\x00b": its name must be`, `"../x": `, `"with space": `,
				`"` + strings.Repeat("n", 65) + `": `, `"": `,
			} {
				if says := f.tool("srv.status").Description; !strings.Contains(says, word) {
					t.Errorf("%s is not in %s", word, says)
				}
				if says := f.text("srv.status", ""); !strings.Contains(says, word) || !strings.HasPrefix(says, "It runs. Its tools: srv_ok, srv_a_b\n") {
					t.Errorf("%s is not in %s", word, says)
				}
			}
		},
		"schemas": func(t *testing.T, f *fixture, names []string) {
			if len(names) != 10 { // the SDK leaves out s8
				t.Errorf("%q", names)
			}
			for _, name := range names {
				got := string(f.tool(name).Schema)
				if used := got != anyArguments; used != (name == "srv.s0") {
					t.Errorf("%s: %.300s", name, got)
				}
			}
			if got := string(f.tool("srv.s0").Schema); got != `{"properties":{"n":{"type":"integer"}},"type":"object"}` {
				t.Error(got)
			}
		},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			f := start(t, nil, server(mode))
			check(t, f, f.list())
		})
	}
}

// TestAServerThatDoesNotRead: a call whose arguments it does not read does not hang.
func TestAServerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	f := start(t, nil, server("deaf"))
	if got := f.list(); !slices.Equal(got, []string{"srv.t"}) {
		t.Fatalf("%q", got)
	}
	f.slotsOf(project)[0].current.transport.patience = 200 * time.Millisecond // now that it has started
	_, err := f.call(t.Context(), "srv.t", `{"a":"`+strings.Repeat("a", 1<<20)+`"}`)
	if !fault.Is(err, fault.UpstreamFailed) || !strings.Contains(err.Error(), "does not read its input") {
		t.Error(err)
	}
	f.nothingLeft()
}

// TestTheSandboxsOwnErrorsAreNotTheServers: they come as they are, and the next use tries again at
// once.
func TestTheSandboxsOwnErrorsAreNotTheServers(t *testing.T) {
	t.Parallel()
	offline := fault.New(fault.RunnerOffline, "the machine is not connected")
	f := start(t, func(c *Config) { c.Sandbox = failing{c.Sandbox, offline} }, server("good"))
	for range 3 {
		f.list()
		if _, err := f.call(t.Context(), "srv.status", ""); !fault.Is(err, fault.RunnerOffline) {
			t.Error(err)
		}
	}
}

type failing struct {
	sandbox.Streamer
	err error
}

func (s failing) ExecTo(context.Context, sandbox.ExecSpec, io.Writer, io.Writer) (*sandbox.ExecResult, error) {
	return nil, s.err
}
