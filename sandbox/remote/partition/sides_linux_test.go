package partition

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"secbox/sandbox"
	"secbox/sandbox/process"
	"secbox/sandbox/remote"
	"secbox/sandbox/remote/machine"
	"secbox/sandbox/remote/wire"
)

// asRunner, as the first argument, runs this program as a runner; the server's address and the
// workspace follow.
const asRunner = "as-runner"

const token = "a-token-of-the-test"

var user = sandbox.User{AgentID: "a", ID: "u"}

func TestMain(m *testing.M) {
	process.Main()
	if len(os.Args) == 4 && os.Args[1] == asRunner {
		os.Exit(serveAsRunner(os.Args[2], os.Args[3]))
	}
	goleak.VerifyTestMain(m)
}

func serveAsRunner(server, workspace string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	m, err := machine.New(machine.Config{
		Server: server, Token: token, Workspace: workspace, Name: "laptop", Allow: []string{machine.AllowExec, machine.AllowWrite},
		Version: "test", Insecure: true, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err == nil {
		err = m.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// side is core-api's side: a Hub behind a listener in a namespace.
type side struct {
	*remote.Hub
	url string
}

func serve(t *testing.T, where *namespace, cfg remote.Config) *side {
	t.Helper()
	cfg.Log, cfg.Version = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})), "test"
	var listener net.Listener
	if err := where.do(func() (err error) { // accepted connections belong to the listener's namespace
		listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", hereAddress+":0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s := &side{Hub: remote.NewHub(cfg), url: "http://" + listener.Addr().String()}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "another token", http.StatusUnauthorized)
			return
		}
		caller := remote.Caller{TokenID: "t", UserID: user.ID}
		if id, ok := strings.CutPrefix(r.URL.Path, wire.TransferPath); ok {
			s.ServeTransfer(w, r, id, caller)
		} else {
			s.ServeLink(w, r, caller)
		}
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		server.Close()
		serving.Wait()
	})
	return s
}

// runner is a runner's process in a namespace.
type runner struct {
	cmd   *exec.Cmd
	log   lines
	ended chan struct{}
	err   error // set when ended is closed
}

func startRunner(t *testing.T, where *namespace, server, workspace string) *runner {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{cmd: exec.Command(program, asRunner, server, workspace), ended: make(chan struct{})}
	r.cmd.Stderr = &r.log
	if err := where.start(r.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		r.err = r.cmd.Wait()
		close(r.ended)
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Signal(syscall.SIGTERM)
		<-r.ended
		if log := r.log.String(); t.Failed() || strings.Contains(log, "DATA RACE") {
			t.Errorf("the runner's log:\n%s", log)
		}
	})
	return r
}

func (r *runner) alive() bool {
	select {
	case <-r.ended:
		return false
	default:
		return true
	}
}

// lines is a locked buffer for a log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// timeout bounds every wait; it is long for slow machines.
const timeout = 2 * time.Minute

func await(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for end := time.Now().Add(timeout); !happened(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out after %v waiting for %s", timeout, what)
		}
	}
}
