package none_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/none"
	"secbox/sandbox/sandboxtest"
)

// counted counts the open directories.
type counted struct {
	sandbox.Directories
	open atomic.Int32
	err  error
}

func (c *counted) Open(ctx context.Context, user sandbox.User) (*sandbox.Directory, error) {
	if c.err != nil {
		return nil, c.err
	}
	p, err := c.Directories.Open(ctx, user)
	if err == nil {
		c.open.Add(1)
		closed := p.Close
		p.Close = func() {
			c.open.Add(-1)
			closed()
		}
	}
	return p, err
}

var alice = sandbox.User{AgentID: "agent", ID: "alice"}

func newSandbox(t *testing.T, cfg none.Config) *none.Sandbox {
	t.Helper()
	if cfg.Directories == nil {
		cfg.Directories = sandboxtest.Directory(t.TempDir())
	}
	cfg.Environ = os.Environ()
	s := none.New(cfg)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// signal is a writer that reports the first write.
type signal chan struct{}

func (s signal) Write(p []byte) (int, error) {
	close(s)
	return len(p), nil
}

// start runs a command until it is killed, and returns when it is up.
func start(t *testing.T, s *none.Sandbox, user sandbox.User) <-chan error {
	t.Helper()
	up, ended := make(signal), make(chan error, 1)
	go func() {
		_, err := s.ExecTo(t.Context(), sandbox.ExecSpec{Command: "echo up; sleep 100000", Shell: true, User: user, Timeout: time.Hour}, up, nil)
		ended <- err
	}()
	select {
	case <-up:
	case err := <-ended:
		t.Fatal(err)
	}
	return ended
}

func TestConcurrencyLimit(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, none.Config{Commands: 1})
	_ = start(t, s, alice)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const queue, more = 8, 20 // the length of the queue behind the command that runs; more are refused
	answers := make(chan error)
	for range queue + more {
		go func() {
			_, err := s.Exec(ctx, sandbox.ExecSpec{Command: "true", User: alice})
			answers <- err
		}()
	}
	for range more {
		if err := <-answers; !fault.Is(err, fault.SandboxBusy) || fault.From(err).RetryAfter <= 0 {
			t.Errorf("%v", err)
		}
	}
	cancel()
	for range queue {
		if err := <-answers; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	// File operations have a separate limit.
	if _, err := s.Stat(t.Context(), sandbox.Root, alice); err != nil {
		t.Error(err)
	}
}

func TestTimeoutCeiling(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, none.Config{MaxTimeout: 50 * time.Millisecond})
	for _, asked := range []time.Duration{0, time.Hour} {
		r, err := s.Exec(t.Context(), sandbox.ExecSpec{Command: "sleep", Args: []string{"100000"}, User: alice, Timeout: asked})
		if err != nil || !r.TimedOut {
			t.Errorf("%+v %v", r, err)
		}
	}
}

func TestCloseForUserLeavesOthers(t *testing.T) {
	t.Parallel()
	p := &counted{Directories: sandboxtest.Directory(t.TempDir())}
	s := newSandbox(t, none.Config{Directories: p})
	bob, other := sandbox.User{AgentID: "agent", ID: "bob"}, sandbox.User{AgentID: "other", ID: "alice"}
	hers, elsewhere, his := start(t, s, alice), start(t, s, other), start(t, s, bob)
	if p.open.Load() != 3 {
		t.Errorf("%d workspaces are held", p.open.Load())
	}
	if err := s.CloseForUser(alice); err != nil {
		t.Fatal(err)
	}
	if err := <-hers; !fault.Is(err, fault.ShuttingDown) || errors.Is(err, context.Canceled) {
		t.Errorf("what her command ended with: %v", err)
	}
	if p.open.Load() != 2 {
		t.Errorf("%d workspaces are held", p.open.Load())
	}
	if err := s.CloseForUser(sandbox.User{ID: "alice"}); err != nil { // of all agents
		t.Fatal(err)
	}
	if err := <-elsewhere; !fault.Is(err, fault.ShuttingDown) {
		t.Error(err)
	}
	select {
	case err := <-his:
		t.Errorf("another user's command ended: %v", err)
	default:
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-his; !fault.Is(err, fault.ShuttingDown) || p.open.Load() != 0 {
		t.Errorf("%v, %d workspaces are held", err, p.open.Load())
	}
}

func TestWorkspaceOpenError(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, none.Config{Directories: &counted{err: fault.New(fault.DiskFull, "no room to unpack it")}})
	if _, err := s.Exec(t.Context(), sandbox.ExecSpec{Command: "true", User: alice}); !fault.Is(err, fault.DiskFull) {
		t.Error(err)
	}
	if _, err := s.WriteFileFrom(t.Context(), sandbox.Root+"/x", strings.NewReader(""), 0o600, alice); !fault.Is(err, fault.DiskFull) {
		t.Error(err)
	}
}

func TestWorkspacesAreClosed(t *testing.T) {
	t.Parallel()
	p := &counted{Directories: sandboxtest.Directory(t.TempDir())}
	s := newSandbox(t, none.Config{Directories: p})
	_, _ = s.Exec(t.Context(), sandbox.ExecSpec{Command: "false", User: alice})
	_, _ = s.Exec(t.Context(), sandbox.ExecSpec{Command: "true", Dir: sandbox.Root + "/no", User: alice})
	_, _ = s.ReadFileTo(t.Context(), sandbox.Root+"/no", io.Discard, alice)
	_ = s.WriteFile(t.Context(), "/etc/passwd", nil, 0o600, alice)
	if n := p.open.Load(); n != 0 {
		t.Errorf("%d workspaces are held", n)
	}
}
