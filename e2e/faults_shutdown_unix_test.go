//go:build unix

package e2e

import (
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"secbox/settings"
)

// TestShutdownDrains lets a running exec finish while new ones are refused.
func TestShutdownDrains(t *testing.T) {
	t.Parallel()
	s := start(t, noPool)
	s.inside().DrainTimeout = answerTimeout
	running := s.post(shell("demo", waiting("echo finished; echo x > /workspace/artifacts/x")))
	s.awaitStart("demo")
	closed := make(chan error, 1)
	go func() { closed <- s.app.Close() }()
	eventually(t, "not ready", func() bool { return s.send(http.MethodGet, "/readyz", nil).Code == http.StatusServiceUnavailable })
	if problem := s.send(http.MethodGet, "/readyz", nil).json(t); problem.str("code") != "shutting_down" {
		t.Errorf("/readyz: %v", problem)
	}
	s.refused(http.StatusServiceUnavailable, "shutting_down", shell("other", "true"))
	s.letGo("demo")
	result := running.result()
	result.wants(t, object{"status": "succeeded", "stdout": "finished\n", "audit": "stored"})
	if len(result.list("artifacts")) != 1 {
		t.Errorf("artifacts: %v", result.list("artifacts"))
	}
	if err := <-closed; err != nil {
		t.Errorf("close: %v", err)
	}
	if left := s.containers(); len(left) > 0 {
		t.Errorf("containers after the end: %v", left)
	}
}

// TestShutdownKills ends execs that take longer than the drain, the waiting one too; each has its
// answer and its row.
func TestShutdownKills(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startIn(t, dir, noPool, func(s *settings.Settings) { s.Sandbox.MaxConcurrentExecs = 1 })
	s.inside().DrainTimeout = 300 * time.Millisecond
	running := s.post(shell("running", "touch started; trap '' TERM; sleep 60"))
	runningID := s.awaitStart("running")
	queued := s.post(shell("queued", "touch /workspace/work/ran"))
	queuedID := ""
	eventually(t, "one waits", func() bool {
		if items := s.get("/sandbox/execs?status=queued").list("items"); len(items) == 1 {
			queuedID = items[0].str("exec_id")
		}
		return queuedID != ""
	})
	if err := s.app.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	killed := object{"status": "canceled", "error_reason": "shutting_down", "audit": "stored"}
	running.result().wants(t, killed)
	queued.result().wants(t, killed)
	if left := s.containers(); len(left) > 0 {
		t.Errorf("containers after the end: %v", left)
	}
	s = startIn(t, dir, noPool)
	s.get("/sandbox/execs/"+runningID).wants(t, object{"status": "canceled", "error_reason": "shutting_down"})
	s.get("/sandbox/execs/"+queuedID).wants(t, object{"status": "canceled", "error_reason": "shutting_down", "started_at": nil})
}

// TestSignals ends a server process by one signal, which drains, and by a second one, which kills.
func TestSignals(t *testing.T) {
	t.Parallel()
	t.Run("one while idle", func(t *testing.T) {
		t.Parallel()
		p := serve(t, t.TempDir())
		p.terminate()
		if code := p.exitCode(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
	t.Run("one while an exec runs", func(t *testing.T) {
		t.Parallel()
		p := serve(t, t.TempDir())
		running := p.post(shell("demo", waiting("echo finished")))
		p.awaitStart("demo")
		p.terminate()
		eventually(t, "not ready", func() bool { return p.send(http.MethodGet, "/readyz", nil).Code == http.StatusServiceUnavailable })
		p.letGo("demo")
		running.result().wants(t, object{"status": "succeeded", "stdout": "finished\n"})
		if code := p.exitCode(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
	t.Run("two hangups while an exec runs", func(t *testing.T) {
		t.Parallel()
		hangups := make(chan os.Signal, 1)
		signal.Notify(hangups, syscall.SIGHUP) // the process inherits no ignored SIGHUP where this test runs under nohup
		defer signal.Stop(hangups)
		p := serve(t, t.TempDir())
		running := p.post(shell("demo", waiting("echo finished")))
		p.awaitStart("demo")
		_ = p.cmd.Process.Signal(syscall.SIGHUP)
		eventually(t, "not ready", func() bool { return p.send(http.MethodGet, "/readyz", nil).Code == http.StatusServiceUnavailable })
		_ = p.cmd.Process.Signal(syscall.SIGHUP)
		p.letGo("demo")
		running.result().wants(t, object{"status": "succeeded", "stdout": "finished\n"})
		if code := p.exitCode(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
	t.Run("a second", func(t *testing.T) {
		t.Parallel()
		p := serve(t, t.TempDir())
		running := p.post(shell("demo", "touch started; trap '' TERM; sleep 60"))
		p.awaitStart("demo")
		p.terminate()
		eventually(t, "not ready", func() bool { return p.send(http.MethodGet, "/readyz", nil).Code == http.StatusServiceUnavailable })
		begun := time.Now()
		p.terminate()
		running.result().wants(t, object{"status": "canceled", "error_reason": "shutting_down"})
		if code := p.exitCode(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		t.Logf("it ended %v after the second signal", time.Since(begun).Round(time.Millisecond))
		if left := p.containers(); len(left) > 0 {
			t.Errorf("containers after the end: %v", left)
		}
	})
}
