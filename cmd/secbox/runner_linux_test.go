package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"secbox/fault"
	"secbox/sandbox"
	remotes "secbox/sandbox/remote"
	"secbox/sandbox/remote/wire"
)

var ann = sandbox.User{AgentID: "agent", ID: "ann"}

// hub is core-api's side of the link behind an HTTP server that accepts the token "right".
type hub struct {
	*remotes.Hub
	web     *httptest.Server
	mu      sync.Mutex
	revoked bool
}

func newHub(t *testing.T, start func(http.Handler) *httptest.Server) *hub {
	t.Helper()
	h := &hub{}
	h.Hub = remotes.NewHub(remotes.Config{
		Log: slog.New(slog.DiscardHandler), Version: "test", Heartbeat: 500 * time.Millisecond, Grace: time.Minute,
		Valid: func(context.Context, string) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.revoked {
				return fault.New(fault.TokenRevoked, "the token was revoked")
			}
			return nil
		},
	})
	h.web = start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer right" {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"code":"unauthenticated","detail":"the token is not known"}`)
			return
		}
		caller := remotes.Caller{TokenID: "1", UserID: ann.ID}
		if id, ok := strings.CutPrefix(r.URL.Path, wire.TransferPath); ok {
			h.ServeTransfer(w, r, id, caller)
			return
		}
		h.ServeLink(w, r, caller)
	}))
	t.Cleanup(func() {
		_ = h.Close()
		h.web.Close()
	})
	return h
}

// connected waits for so many runners.
func (h *hub) connected(t *testing.T, n int) {
	t.Helper()
	for len(h.Runners()) != n {
		select {
		case <-t.Context().Done():
			t.Fatal("not connected")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// child is a secbox process.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	dir    string
	stderr bytes.Buffer // to be read when it has ended
	done   chan struct{}
}

func startRunner(t *testing.T, server, token string, more ...string) *child {
	t.Helper()
	return startTrusting(t, "/nothing", server, token, more...)
}

// startTrusting starts a runner that trusts the authority in a file.
func startTrusting(t *testing.T, authority, server, token string, more ...string) *child {
	t.Helper()
	c := &child{t: t, dir: t.TempDir(), done: make(chan struct{})}
	args := append([]string{"runner", "--server", server, "--workspace", c.dir, "--name", "laptop", "--allow", "exec,write"}, more...)
	c.cmd = exec.Command(os.Args[0], args...)
	c.cmd.Env = append(os.Environ(), asSecbox+"=1", envToken+"="+token, "SSL_CERT_FILE="+authority, "SSL_CERT_DIR=/nothing")
	c.cmd.Stderr = &c.stderr
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.done)
		_ = c.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.done
		if strings.Contains(c.stderr.String(), "right") {
			t.Error("the token is in the log")
		}
		if t.Failed() {
			t.Log(c.stderr.String())
		}
	})
	return c
}

// ended waits for the end and returns the exit code.
func (c *child) ended() int {
	c.t.Helper()
	select {
	case <-c.done:
		return c.cmd.ProcessState.ExitCode()
	case <-c.t.Context().Done():
		c.t.Fatal("it goes on")
		return 0
	}
}

// busy starts a command that does not end by itself and has started a daemon; it returns the
// daemon's id, and the command's outcome through the channel.
func (c *child) busy(h *hub) (pid int, result <-chan error) {
	c.t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := h.Exec(c.t.Context(), sandbox.ExecSpec{
			User: ann, Shell: true, Timeout: 10 * time.Minute,
			Command: "setsid sh -c 'echo $$ > pid~; mv pid~ pid; exec sleep 600' < /dev/null > /dev/null 2>&1 & sleep 600",
		})
		ended <- err
	}()
	for {
		content, err := os.ReadFile(filepath.Join(c.dir, "pid"))
		if err == nil {
			if pid, err = strconv.Atoi(strings.TrimSpace(string(content))); err != nil {
				c.t.Fatal(err)
			}
			return pid, ended
		}
		select {
		case err := <-ended:
			c.t.Fatalf("the command has ended: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// endsInOrder sends a signal to a runner with a running command: the command is killed, and its
// result delivered before the end.
func (c *child) endsInOrder(h *hub, at syscall.Signal) {
	c.t.Helper()
	pid, ended := c.busy(h)
	if err := c.cmd.Process.Signal(at); err != nil {
		c.t.Fatal(err)
	}
	if code := c.ended(); code != 0 {
		c.t.Errorf("exit code %d", code)
	}
	dead(c.t, pid)
	if err := <-ended; err != nil {
		c.t.Errorf("%v", err)
	}
	h.connected(c.t, 0)
}

// dead waits until a process has ended.
func dead(t *testing.T, pid int) {
	t.Helper()
	for !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		select {
		case <-t.Context().Done():
			t.Fatalf("process %d lives on", pid)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestRunnerProcess(t *testing.T) {
	t.Parallel()
	h := newHub(t, httptest.NewServer)
	c := startRunner(t, strings.Replace(h.web.URL, "http", "ws", 1)+"/ws", "right")
	h.connected(t, 1)
	r := h.Runners()[0]
	if r.Name != "laptop" || r.UserID != ann.ID || r.OS != "linux" || r.Version != version || strings.Join(r.Allow, ",") != "exec,write" {
		t.Errorf("%+v", r)
	}
	ctx := t.Context()
	result, err := h.Exec(ctx, sandbox.ExecSpec{User: ann, Shell: true, Command: `echo "in $(pwd)"; env | grep -c TOKEN; exit 5`})
	if err != nil || result.ExitCode != 5 || result.Stdout != "in "+c.dir+"\n0\n" || result.Runner != "laptop" {
		t.Errorf("%+v, %v", result, err)
	}
	// More than a message holds, in both directions.
	content := bytes.Repeat([]byte("0123456789abcdef"), (wire.InlineBytes+1<<20)/16)
	if err := h.WriteFile(ctx, "/workspace/large", content, 0o640, ann); err != nil {
		t.Fatal(err)
	}
	got, err := h.ReadFile(ctx, "/workspace/large", ann)
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes of %d, %v", len(got), len(content), err)
	}
	if _, err := h.ReadFile(ctx, "/etc/passwd", ann); !errors.Is(err, os.ErrPermission) {
		t.Errorf("%v", err)
	}
	c.endsInOrder(h, syscall.SIGTERM)
}

// TestHangup: a closed terminal ends the runner like Ctrl-C, unless SIGHUP is ignored.
func TestHangup(t *testing.T) {
	t.Parallel()
	defer signal.Reset(syscall.SIGHUP)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // no longer ignored where this test runs under nohup
	h := newHub(t, httptest.NewServer)
	c := startRunner(t, h.web.URL, "right")
	h.connected(t, 1)
	c.endsInOrder(h, syscall.SIGHUP)

	signal.Ignore(syscall.SIGHUP) // inherited, as from nohup
	c = startRunner(t, h.web.URL, "right")
	h.connected(t, 1)
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM} {
		if r, err := h.Exec(t.Context(), sandbox.ExecSpec{User: ann, Shell: true, Command: "echo x"}); err != nil || r.Stdout != "x\n" {
			t.Errorf("before %s: %+v, %v", s, r, err)
		}
		if err := c.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	if code := c.ended(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestKilledRunner kills a runner, which cannot clean up its commands.
func TestKilledRunner(t *testing.T) {
	t.Parallel()
	h := newHub(t, httptest.NewServer)
	c := startRunner(t, h.web.URL, "right")
	h.connected(t, 1)
	pid, ended := c.busy(h)
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.ended()
	dead(t, pid)
	// Another session: the outcome of the command is unknown.
	startRunner(t, h.web.URL, "right")
	if err := <-ended; !fault.Is(err, fault.OutcomeUnknown) {
		t.Errorf("%v", err)
	}
}

func TestRunnerErrors(t *testing.T) {
	t.Parallel()
	h := newHub(t, httptest.NewServer)
	first := startRunner(t, h.web.URL, "right")
	h.connected(t, 1)
	same := startRunner(t, h.web.URL, "right")
	if code := same.ended(); code != fault.ExitCode(fault.RunnerNameInUse) || !strings.Contains(same.stderr.String(), "--name") {
		t.Errorf("exit code %d: %s", code, same.stderr.String())
	}
	wrong := startRunner(t, h.web.URL, "wrong", "--name", "another")
	if code := wrong.ended(); code != fault.ExitCode(fault.Unauthenticated) || !strings.Contains(wrong.stderr.String(), "the token is not known") {
		t.Errorf("exit code %d: %s", code, wrong.stderr.String())
	}
	h.mu.Lock()
	h.revoked = true
	h.mu.Unlock()
	if code := first.ended(); code != fault.ExitCode(fault.TokenRevoked) || !strings.Contains(first.stderr.String(), "revoked the token") {
		t.Errorf("exit code %d: %s", code, first.stderr.String())
	}
}

func TestRunnerOverTLS(t *testing.T) {
	t.Parallel()
	h := newHub(t, httptest.NewTLSServer)
	address := strings.Replace(h.web.URL, "https", "wss", 1)
	stranger := startRunner(t, address, "right")
	if code := stranger.ended(); code != fault.ExitCode(fault.RunnerOffline) || !strings.Contains(stranger.stderr.String(), "is not trusted here") {
		t.Errorf("exit code %d: %s", code, stranger.stderr.String())
	}
	plain := startRunner(t, strings.Replace(h.web.URL, "https", "ws", 1), "right")
	if code := plain.ended(); code != fault.ExitCode(fault.RunnerOffline) || !strings.Contains(plain.stderr.String(), "is not a core-api") {
		t.Errorf("exit code %d: %s", code, plain.stderr.String())
	}
	authority := filepath.Join(t.TempDir(), "authority.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.web.Certificate().Raw})
	if err := os.WriteFile(authority, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	trusted := startTrusting(t, authority, address, "right")
	h.connected(t, 1)
	content := bytes.Repeat([]byte("x"), wire.InlineBytes+1)
	if err := h.WriteFile(t.Context(), "/workspace/f", content, 0o600, ann); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(filepath.Join(trusted.dir, "f")); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
