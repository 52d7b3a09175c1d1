package userservers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/fault"
	"secbox/mcp/offload"
	"secbox/mcp/tools"
	"secbox/sandbox"
)

// TestToolsOfAServer: a server of the SDK is started by the first listing, and its tools are called
// in one process.
func TestToolsOfAServer(t *testing.T) { // 004 l11, 23
	t.Parallel()
	f := start(t, nil, server("good"))
	if got := f.names(); !slices.Equal(got, []string{"srv.status"}) || f.starts() != 0 {
		t.Errorf("before: %q, %d starts", got, f.starts())
	}
	if got := f.list(); !slices.Contains(got, "srv.echo") || slices.Contains(got, "srv.status") {
		t.Fatalf("%q", got)
	}
	if got := f.text("srv.echo", `{"text":"hi"}`); got != "hi" {
		t.Errorf("%q", got)
	}
	if one, two := f.text("srv.pid", ""), f.text("srv.pid", ""); one != two || f.starts() != 1 {
		t.Errorf("%s, %s, %d starts", one, two, f.starts())
	}
}

// TestServerWithoutTools: a tool is left that starts the server again.
func TestServerWithoutTools(t *testing.T) {
	t.Parallel()
	one := server("good")
	one.Tools = []string{"no-such-tool"}
	f := start(t, nil, one)
	if got := f.list(); !slices.Equal(got, []string{"srv.status"}) ||
		!strings.Contains(f.tool("srv.status").Description, "it lists none that the settings offer") {
		t.Fatalf("%q: %s", got, f.tool("srv.status").Description)
	}
	f.advance(time.Hour) // it ends when it is idle
	f.nothingLeft()
	if _, err := f.call(t.Context(), "srv.status", ""); err != nil || f.starts() != 2 {
		t.Errorf("%d starts: %v", f.starts(), err)
	}
}

// TestResults: texts with escapes, the first image, and the names of other parts; long texts are
// cut; a failure is a result.
func TestResults(t *testing.T) {
	t.Parallel()
	f := start(t, nil, server("good"))
	f.list()
	r, err := f.call(t.Context(), "srv.image", "")
	if err != nil || r.Text != "look\\x1b[2J\n(a sound of type audio/wav, 2 bytes, is not shown)\n" || string(r.Image) != "GIF89a" || r.MIME != "image/gif" ||
		r.Meta["exec_id"] != "exec-1" {
		t.Errorf("%+v %v", r, err)
	}
	if r, err := f.call(t.Context(), "srv.big", ""); err != nil || len(r.Text) > offload.MaxInline+100 || !strings.Contains(r.Text, "bytes in all") {
		t.Errorf("%d bytes, %v", len(r.Text), err)
	}
	if r, err := f.call(t.Context(), "srv.fail", ""); err != nil || !r.Failed || r.Text != "no such city\n" {
		t.Errorf("%+v %v", r, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.seen, []string{Answered, Answered, Failed}) {
		t.Errorf("%q", f.seen)
	}
}

// TestProgressAndCancellationPassThrough: the caller sees the server's progress, and the server is
// told that the caller has gone.
func TestProgressAndCancellationPassThrough(t *testing.T) {
	t.Parallel()
	f := start(t, nil, server("good"))
	f.list()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var shown string
	ctx = tools.WithCaller(ctx, tools.Caller{Progress: func(text string) {
		shown = text
		cancel()
	}})
	file := filepath.Join(f.dir, "canceled")
	if _, err := f.call(ctx, "srv.wait", `{"text":`+strconv.Quote(file)+`}`); !errors.Is(err, context.Canceled) || shown != "half (1 of 2)\n" {
		t.Errorf("%q %v", shown, err)
	}
	f.await("the server knows", func() bool {
		_, err := os.Stat(file)
		return err == nil
	})
	if got := f.text("srv.echo", `{"text":"still here"}`); got != "still here" || f.starts() != 1 {
		t.Errorf("%q, %d starts", got, f.starts())
	}
}

// TestIdleServersEnd: an idle process ends by itself, its tools stay, and the next call starts
// another.
func TestIdleServersEnd(t *testing.T) {
	t.Parallel()
	f := start(t, nil, server("good"))
	f.list()
	one := f.text("srv.pid", "")
	f.advance(time.Hour)
	f.nothingLeft()
	f.mu.Lock()
	if r := f.ended[0]; r == nil || r.ExitCode != 0 {
		t.Errorf("%+v", r) // the end of its input is enough
	}
	f.mu.Unlock()
	if got := f.list(); !slices.Contains(got, "srv.pid") || f.starts() != 1 {
		t.Errorf("%q, %d starts", got, f.starts())
	}
	if two := f.text("srv.pid", ""); two == one || f.starts() != 2 {
		t.Errorf("%s, %s, %d starts", one, two, f.starts())
	}
	f.advance(2 * time.Hour) // forgotten after its end
	f.nothingLeft()
	f.advance(2 * time.Hour)
	f.await("it is forgotten", func() bool { return slices.Equal(f.names(), []string{"srv.status"}) })
}

// TestWornProcessesAreReplaced: before a process reaches the time or the output that the policy
// allows, calls go to another one.
func TestWornProcessesAreReplaced(t *testing.T) {
	t.Parallel()
	f := start(t, func(c *Config) {
		c.Bounds = func() (time.Duration, int64) { return time.Hour, 3 << 20 }
	}, server("good"))
	f.list()
	one := f.text("srv.pid", "")
	f.advance(59*time.Minute + time.Second) // its idle time is not over
	two := f.text("srv.pid", "")
	if one == two {
		t.Error("an old process was used")
	}
	f.text("srv.big", "") // 1.1 MB, less than half of the bound
	if got := f.text("srv.pid", ""); got != two {
		t.Error("a process was replaced early")
	}
	f.text("srv.big", "")
	if got := f.text("srv.pid", ""); got == two {
		t.Error("a process was used that has given back much")
	}
	f.await("the others have ended", func() bool { return f.Running() == 1 })
	if f.mu.Lock(); f.started[0].Timeout != time.Hour || f.started[0].MaxStdout != 3<<20 {
		t.Errorf("%+v", f.started[0])
	}
	f.mu.Unlock()
}

// TestARevokedTokenEndsItsServers: at once, with a call in progress; another token starts it again.
func TestARevokedTokenEndsItsServers(t *testing.T) {
	t.Parallel()
	f := start(t, nil, server("good"))
	f.list()
	ctx := tools.WithCaller(t.Context(), tools.Caller{Progress: func(string) {
		f.mu.Lock()
		f.revoked["tok"] = fault.New(fault.TokenRevoked, "")
		f.mu.Unlock()
	}})
	if _, err := f.call(ctx, "srv.wait", `{"text":"none"}`); !fault.Is(err, fault.OutcomeUnknown) || !strings.Contains(err.Error(), "token") {
		t.Error(err)
	}
	f.nothingLeft()
}

// TestTheEndOfTheSandboxIsNotAFailure: when the user's sandbox is closed, as when the user is moved
// to another backend, the next call starts the server there.
func TestTheEndOfTheSandboxIsNotAFailure(t *testing.T) {
	t.Parallel()
	f := start(t, nil, server("good"))
	f.list()
	for n := 1; n < 4; n++ {
		f.text("srv.pid", "")
		if f.starts() != n {
			t.Errorf("%d starts, want %d", f.starts(), n)
		}
		if err := f.box.CloseForUser(sandbox.User{ID: "ann"}); err != nil {
			t.Fatal(err)
		}
		f.await("it has ended", func() bool { return f.Running() == 0 })
	}
}

// TestListChanged: tools that a server adds are offered, and announced.
func TestListChanged(t *testing.T) {
	t.Parallel()
	f := start(t, nil, server("good"))
	f.list()
	f.text("srv.more", "")
	f.await("the new tool is offered", func() bool { return slices.Contains(f.names(), "srv.late") })
	if got := f.text("srv.late", ""); got != "late" {
		t.Errorf("%q", got)
	}
	for range 2 { // the start and the change
		<-f.changes
	}
}

// TestSlowServersDoNotHoldUpTheList: the listing returns without them, and OnChange tells when they
// are there.
func TestSlowServersDoNotHoldUpTheList(t *testing.T) {
	t.Parallel()
	quick, slow := server("good"), server("silent")
	slow.Name, slow.StartTimeout = "slow", time.Hour
	f := start(t, nil, quick, slow)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // a client that does not wait for long
		<-f.changes
		cancel()
	}()
	f.Ensure(ctx, project, "tok")
	f.await("the quick server's tools are offered", func() bool { return slices.Contains(f.names(), "srv.echo") })
	if got := f.names(); !slices.Contains(got, "slow.status") {
		t.Errorf("%q", got)
	}
}

// TestLimitsOfProcesses: at a limit the process that has been idle longest makes room; processes in
// use do not.
func TestLimitsOfProcesses(t *testing.T) {
	t.Parallel()
	var all []Server
	for _, name := range []string{"a", "b", "c"} {
		one := server("good")
		one.Name = name
		all = append(all, one)
	}
	f := start(t, func(c *Config) { c.MaxUser = 2 }, all...)
	f.list()
	f.await("two run", func() bool { return f.Running() == 2 })
	for _, name := range []string{"a", "b", "c", "a"} {
		if _, err := f.call(t.Context(), name+"."+map[bool]string{true: "pid", false: "status"}[slices.Contains(f.names(), name+".pid")], ""); err != nil {
			t.Error(name, err)
		}
		f.advance(time.Second)
		if n := f.Running(); n > 2 {
			t.Errorf("%d processes", n)
		}
	}
	begun := make(chan struct{}, 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ctx = tools.WithCaller(ctx, tools.Caller{Progress: func(string) { begun <- struct{}{} }})
	var calls sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		calls.Go(func() { _, _ = f.call(ctx, name+".wait", `{"text":"none"}`) })
	}
	<-begun
	<-begun
	if _, err := f.call(t.Context(), "c.pid", ""); !fault.Is(err, fault.SandboxBusy) {
		t.Error(err)
	}
	cancel()
	calls.Wait()
}

// TestUsersAndAgentsAreApart: each user has own processes, and only the servers of the agent.
func TestUsersAndAgentsAreApart(t *testing.T) {
	t.Parallel()
	both, own := server("good"), server("good")
	own.Agent, own.Name = "a2", "own"
	f := start(t, nil, both, own)
	for _, project := range []string{"a1~ann", "a1~ben", "a2~ann"} {
		f.Ensure(t.Context(), project, "tok")
	}
	f.await("four run", func() bool { return f.Running() == 4 && f.starts() == 4 })
	for project, want := range map[string]bool{"a1~ann": false, "a2~ann": true} {
		has := slices.ContainsFunc(f.Offered(project), func(t *tools.Tool) bool { return strings.HasPrefix(t.Name, "own.") })
		if has != want {
			t.Errorf("%s: %v", project, has)
		}
	}
	if got := f.Offered("no-workspace"); got != nil {
		t.Errorf("%v", got)
	}
}

// TestVariables: the values reach the server, and neither rows nor logs.
func TestVariables(t *testing.T) { // 004 l337–339, 645
	t.Parallel()
	one := server("good")
	one.Env = []string{"CITY=Ulm"}
	f := start(t, nil, one)
	f.list()
	if got := f.text("srv.env", `{"text":"CITY"}`); got != "Ulm" {
		t.Errorf("%q", got)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if spec := f.started[0]; slices.ContainsFunc(spec.Args, func(arg string) bool { return strings.Contains(arg, "Ulm") }) || !slices.Equal(spec.Env, one.Env) {
		t.Errorf("%+v", spec)
	}
}

// TestAllowedTools: only those that the settings name are offered.
func TestAllowedTools(t *testing.T) {
	t.Parallel()
	one := server("good")
	one.Tools = []string{"pid", "missing"}
	f := start(t, nil, one)
	if got := f.list(); !slices.Equal(got, []string{"srv.pid"}) {
		t.Errorf("%q", got)
	}
}

// TestDrainWaitsForCalls: idle servers end at once, a call in progress ends first, and nothing
// starts any more.
func TestDrainWaitsForCalls(t *testing.T) {
	t.Parallel()
	f := start(t, nil, server("good"))
	f.list()
	begun := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ctx = tools.WithCaller(ctx, tools.Caller{Progress: func(string) { begun <- struct{}{} }})
	called, drained := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := f.call(ctx, "srv.wait", `{"text":"none"}`)
		called <- err
	}()
	<-begun
	pid := f.tool("srv.pid")
	go func() {
		f.Drain(t.Context())
		close(drained)
	}()
	f.await("nothing starts", func() bool {
		_, err := pid.Call(t.Context(), tools.NewSession(f.box, sandbox.User{AgentID: "a1", ID: "ann"}, nil), nil)
		return fault.Is(err, fault.ShuttingDown)
	})
	select {
	case <-drained:
		t.Error("it did not wait for the call")
	default:
	}
	cancel()
	if err := <-called; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-drained
	f.nothingLeft()
}
