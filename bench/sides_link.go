package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"secbox/sandbox"
	"secbox/sandbox/remote"
	linked "secbox/sandbox/remote/machine"
	"secbox/sandbox/remote/wire"
)

const (
	linkToken = "the-token-of-a-bench" // on loopback, for as long as the section lasts
	plainPath = "/plain"
)

var linkUser = sandbox.User{AgentID: "bench", ID: "bench"}

// HubTasks are what core-api's end of a link does: a Hub over HTTP, and a plain HTTP handler beside it.
type HubTasks struct {
	hub     *remote.Hub
	server  *http.Server
	serving sync.WaitGroup
	dir     string
}

// Serve listens on loopback and answers the address. Files lie in dir.
func (t *HubTasks) Serve(dir string, url *string) error {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	t.dir, t.hub = dir, remote.NewHub(remote.Config{Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), Version: "bench"})
	caller := remote.Caller{TokenID: "bench", UserID: linkUser.ID}
	mux := http.NewServeMux()
	mux.HandleFunc(wire.LinkPath, func(w http.ResponseWriter, r *http.Request) { t.hub.ServeLink(w, r, caller) })
	mux.HandleFunc(wire.TransferPath, func(w http.ResponseWriter, r *http.Request) {
		t.hub.ServeTransfer(w, r, strings.TrimPrefix(r.URL.Path, wire.TransferPath), caller)
	})
	mux.HandleFunc("GET "+plainPath, func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, t.path(sourceFile)) })
	mux.HandleFunc("PUT "+plainPath, func(w http.ResponseWriter, r *http.Request) {
		if err := writeFile(t.path(plainFile), r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	t.server = &http.Server{Handler: authorized(mux), ReadHeaderTimeout: 10 * time.Second}
	t.serving.Go(func() { _ = t.server.Serve(listener) })
	*url = "http://" + listener.Addr().String()
	return nil
}

// authorized keeps other programs of this machine away.
func authorized(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+linkToken {
			http.Error(w, "this is a bench", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// The files of a transfer in a side's directory.
const (
	sourceFile = "source" // what is sent
	ourFile    = "ours"   // what has come through the sandbox
	plainFile  = "plain"  // what has come by plain HTTP
)

func (t *HubTasks) path(name string) string { return filepath.Join(t.dir, name) }

// Connected waits for the runner.
func (t *HubTasks) Connected(patience time.Duration, _ *bool) error {
	for end := time.Now().Add(patience); len(t.hub.Runners()) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("no runner has connected within %v", patience)
		}
	}
	return nil
}

// Exec runs true on the runner.
func (t *HubTasks) Exec(_ bool, took *time.Duration) error {
	begun := time.Now()
	r, err := t.hub.Exec(context.Background(), sandbox.ExecSpec{Command: "true", User: linkUser})
	*took = time.Since(begun)
	if err == nil && r.ExitCode != 0 {
		err = fmt.Errorf("true ended with %d", r.ExitCode)
	}
	return err
}

// Start runs true as a child of this process.
func (t *HubTasks) Start(_ bool, took *time.Duration) error {
	begun := time.Now()
	err := exec.Command("true").Run()
	*took = time.Since(begun)
	return err
}

// Many is so many small files.
type Many struct {
	Files, Bytes, AtOnce int
}

func (m Many) name(i int) string { return fmt.Sprintf("%s/many/%d", sandbox.Root, i) }

// Fill writes them.
func (t *HubTasks) Fill(m Many, _ *bool) error {
	ctx := context.Background()
	if err := t.hub.MkdirAll(ctx, sandbox.Root+"/many", 0o755, linkUser); err != nil {
		return err
	}
	return several(ctx, m.Files, m.AtOnce, func(ctx context.Context, i int) error {
		return t.hub.WriteFile(ctx, m.name(i), []byte(strings.Repeat("x", m.Bytes)), 0o644, linkUser)
	})
}

// ReadMany reads each of them once.
func (t *HubTasks) ReadMany(m Many, took *time.Duration) error {
	begun := time.Now()
	err := several(context.Background(), m.Files, m.AtOnce, func(ctx context.Context, i int) error {
		content, err := t.hub.ReadFile(ctx, m.name(i), linkUser)
		if err == nil && len(content) != m.Bytes {
			err = fmt.Errorf("%s has %d bytes", m.name(i), len(content))
		}
		return err
	})
	*took = time.Since(begun)
	return err
}

// Read streams the runner's large file into one here.
func (t *HubTasks) Read(size int64, took *time.Duration) error {
	return t.timed(took, size, func(ctx context.Context) (n int64, err error) {
		f, err := os.Create(t.path(ourFile))
		if err != nil {
			return 0, err
		}
		n, err = t.hub.ReadFileTo(ctx, sandbox.Root+"/"+sourceFile, f, linkUser)
		return n, errors.Join(err, f.Close())
	})
}

// Write streams our large file into one on the runner.
func (t *HubTasks) Write(size int64, took *time.Duration) error {
	return t.timed(took, size, func(ctx context.Context) (int64, error) {
		f, err := os.Open(t.path(sourceFile))
		if err != nil {
			return 0, err
		}
		defer f.Close()
		return t.hub.WriteFileFrom(ctx, sandbox.Root+"/"+ourFile, f, 0o644, linkUser)
	})
}

func (t *HubTasks) timed(took *time.Duration, size int64, do func(context.Context) (int64, error)) error {
	begun := time.Now()
	n, err := do(context.Background())
	*took = time.Since(begun)
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes went over, %d were to", n, size)
	}
	return err
}

// Close ends the Hub and its server.
func (t *HubTasks) Close() error {
	if t.hub == nil {
		return nil
	}
	err := errors.Join(t.hub.Close(), t.server.Close())
	t.serving.Wait()
	return err
}

// writeFile writes what comes into a new file.
func writeFile(path string, from io.Reader) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// RunnerTasks are what the user's end does: a real runner, and a plain HTTP client beside it.
type RunnerTasks struct {
	url, dir string
	client   *http.Client
	stop     context.CancelFunc
	ended    chan error
}

// Dialled is where a runner dials, and what it serves.
type Dialled struct{ URL, Dir string }

// Run starts the runner.
func (t *RunnerTasks) Run(d Dialled, _ *bool) error {
	m, err := linked.New(linked.Config{
		Server: d.URL, Token: linkToken, Workspace: d.Dir, Name: "bench", Allow: []string{linked.AllowExec, linked.AllowWrite}, Version: "bench",
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	t.url, t.dir, t.stop, t.ended = d.URL+plainPath, d.Dir, stop, make(chan error, 1)
	t.client = &http.Client{Transport: &http.Transport{}} // no proxy
	go func() { t.ended <- m.Run(ctx) }()
	return nil
}

// Put sends our large file as one plain PUT.
func (t *RunnerTasks) Put(size int64, took *time.Duration) error {
	return t.timed(took, func() error {
		f, err := os.Open(filepath.Join(t.dir, sourceFile))
		if err != nil {
			return err
		}
		defer f.Close()
		return t.request(http.MethodPut, f, size, io.Discard)
	})
}

// Get fetches the other side's large file as one plain GET.
func (t *RunnerTasks) Get(_ int64, took *time.Duration) error {
	return t.timed(took, func() error {
		f, err := os.Create(filepath.Join(t.dir, plainFile))
		if err != nil {
			return err
		}
		return errors.Join(t.request(http.MethodGet, nil, 0, f), f.Close())
	})
}

func (t *RunnerTasks) timed(took *time.Duration, do func() error) error {
	begun := time.Now()
	err := do()
	*took = time.Since(begun)
	return err
}

func (t *RunnerTasks) request(method string, body io.Reader, size int64, into io.Writer) error {
	req, err := http.NewRequestWithContext(context.Background(), method, t.url, body)
	if err != nil {
		return err
	}
	req.ContentLength = size
	req.Header.Set("Authorization", "Bearer "+linkToken)
	resp, err := t.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(into, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", method, resp.Status)
	}
	return nil
}

// Close ends the runner and waits for it.
func (t *RunnerTasks) Close() error {
	if t.stop == nil {
		return nil
	}
	t.stop()
	err := <-t.ended
	t.client.CloseIdleConnections()
	return err
}
