package userservers

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"secbox/mcp/tools"
	"secbox/sandbox"
	"secbox/sandbox/none"
	"secbox/sandbox/sandboxtest"
)

const project = "a1~ann"

// fixture is a Manager whose servers run by sandbox none in one directory.
type fixture struct {
	*Manager
	t       *testing.T
	box     *none.Sandbox
	dir     string
	changes chan struct{} // one for each call of OnChange, as far as there is room

	mu      sync.Mutex
	now     time.Time
	revoked map[string]error
	started []sandbox.ExecSpec
	ended   []*sandbox.ExecResult
	seen    []string // outcomes
}

// server is a server of servers_test.go.
func server(mode string, args ...string) Server {
	program, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return Server{
		Agent: AllAgents, Name: "srv", Command: program, Args: append([]string{serverArg, mode}, args...), StartTimeout: time.Minute, CallTimeout: time.Minute,
		Idle: time.Hour,
	}
}

func start(t *testing.T, change func(*Config), servers ...Server) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: t.TempDir(), changes: make(chan struct{}, 100), now: time.Now(), revoked: map[string]error{}}
	f.box = none.New(none.Config{Directories: sandboxtest.Directory(f.dir), Environ: os.Environ()})
	var ids atomic.Int64
	cfg := Config{
		Servers: servers, Sandbox: f, Version: "test", Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Sweep: 5 * time.Millisecond,
		Bounds: func() (time.Duration, int64) { return time.Hour, sandbox.MaxOutputBytes },
		NewID:  func() string { return fmt.Sprint("exec-", ids.Add(1)) },
		Valid: func(_ context.Context, token string) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.revoked[token]
		},
		Observe: func(_, outcome string, _ time.Duration) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.seen = append(f.seen, outcome)
		},
		Now: func() time.Time {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.now
		},
	}
	if change != nil {
		change(&cfg)
	}
	f.Manager = New(cfg)
	f.OnChange(func(string) {
		select {
		case f.changes <- struct{}{}:
		default:
		}
	})
	t.Cleanup(func() {
		f.Close()
		if n := f.Running(); n != 0 {
			t.Errorf("%d processes are counted after Close", n)
		}
		_ = f.box.Close()
	})
	return f
}

// advance moves the clock.
func (f *fixture) advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

// ExecTo implements sandbox.Streamer.
func (f *fixture) ExecTo(ctx context.Context, spec sandbox.ExecSpec, stdout, stderr io.Writer) (*sandbox.ExecResult, error) {
	f.mu.Lock()
	f.started = append(f.started, spec)
	f.mu.Unlock()
	r, err := f.box.ExecTo(ctx, spec, stdout, stderr)
	f.mu.Lock()
	f.ended = append(f.ended, r)
	f.mu.Unlock()
	return r, err
}

// ReadFileTo implements sandbox.Streamer.
func (f *fixture) ReadFileTo(context.Context, string, io.Writer, sandbox.User) (int64, error) {
	panic("not used")
}

// WriteFileFrom implements sandbox.Streamer.
func (f *fixture) WriteFileFrom(context.Context, string, io.Reader, fs.FileMode, sandbox.User) (int64, error) {
	panic("not used")
}

// starts is how many processes were started.
func (f *fixture) starts() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.started)
}

// names returns the names of the offered tools.
func (f *fixture) names() (names []string) {
	for _, one := range f.Offered(project) {
		names = append(names, one.Name)
	}
	slices.Sort(names)
	return names
}

func (f *fixture) tool(name string) *tools.Tool {
	f.t.Helper()
	for _, one := range f.Offered(project) {
		if one.Name == name {
			return one
		}
	}
	f.t.Fatalf("there is no tool %s: %q", name, f.names())
	return nil
}

// call calls a tool as mcpserver does.
func (f *fixture) call(ctx context.Context, name, arguments string) (*tools.Result, error) {
	f.t.Helper()
	ctx = sandbox.WithRequest(ctx, sandbox.Request{RequestedBy: "tok"})
	return f.tool(name).Call(ctx, tools.NewSession(f.box, sandbox.User{AgentID: "a1", ID: "ann"}, nil), []byte(arguments))
}

// text calls a tool that must answer, and returns the text.
func (f *fixture) text(name, arguments string) string {
	f.t.Helper()
	r, err := f.call(f.t.Context(), name, arguments)
	if err != nil || r.Failed {
		f.t.Fatalf("%s: %+v %v", name, r, err)
	}
	return strings.TrimSuffix(r.Text, "\n")
}

// list starts the servers and waits for them, or for what they make of it.
func (f *fixture) list() []string {
	f.t.Helper()
	f.Ensure(f.t.Context(), project, "tok")
	f.await("the start has ended", func() bool {
		for _, s := range f.slotsOf(project) {
			s.mu.Lock()
			starting := s.starting != nil
			s.mu.Unlock()
			if starting {
				return false
			}
		}
		return true
	})
	return f.names()
}

// await waits for a condition; it fails the test after a minute.
func (f *fixture) await(what string, holds func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(deadline) {
			f.t.Fatalf("still not: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
