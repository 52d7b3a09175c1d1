//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"secbox/sandbox"
	"secbox/sandbox/remote"
	"secbox/sandbox/remote/wire"
)

// core-api's end of a runner's link is a process of its own, `bench hub DIR`, so that its memory can be measured. It is called by net/rpc over its
// standard input and output, and ends with its input.
const hubCommand = "hub"

const (
	linkToken      = "the-token-of-a-bench" // on loopback, while the section runs
	plainPath      = "/plain"
	smallFile      = 4 << 10 // bytes
	filesInFlight  = 16
	connectTimeout = time.Minute

	sourceFile = "source" // of a transfer
	ourFile    = "ours"   // what came through the sandbox
	plainFile  = "plain"  // what came by plain HTTP
)

var benchUser = sandbox.User{AgentID: "bench", ID: "bench"}

// HubTasks are the methods of the hub's process. Those that measure answer how long it took.
type HubTasks struct {
	hub *remote.Hub
	dir string
	url string
}

// pipes are a connection.
type pipes struct {
	io.ReadCloser
	io.Writer
}

func serveHub() {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	t := &HubTasks{dir: os.Args[2], url: listener.Addr().String()}
	t.hub = remote.NewHub(remote.Config{Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), Version: "bench"})
	caller := remote.Caller{TokenID: "bench", UserID: benchUser.ID}
	mux := http.NewServeMux()
	mux.HandleFunc(wire.LinkPath, func(w http.ResponseWriter, r *http.Request) { t.hub.ServeLink(w, r, caller) })
	mux.HandleFunc(wire.TransferPath, func(w http.ResponseWriter, r *http.Request) {
		t.hub.ServeTransfer(w, r, strings.TrimPrefix(r.URL.Path, wire.TransferPath), caller)
	})
	mux.HandleFunc("GET "+plainPath, func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, filepath.Join(t.dir, sourceFile)) })
	mux.HandleFunc("PUT "+plainPath, func(w http.ResponseWriter, r *http.Request) {
		if err := writeFile(filepath.Join(t.dir, plainFile), r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+linkToken { // another program of this machine
			http.Error(w, "this is a bench", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(listener) }()
	calls := rpc.NewServer()
	_ = calls.RegisterName("Hub", t) // its methods have the right types
	calls.ServeConn(pipes{os.Stdin, os.Stdout})
	_ = errors.Join(t.hub.Close(), server.Close())
}

// Addr answers the address on loopback.
func (t *HubTasks) Addr(_ bool, addr *string) error {
	*addr = t.url
	return nil
}

// Connected waits for the runner.
func (t *HubTasks) Connected(_ bool, _ *bool) error {
	for end := time.Now().Add(connectTimeout); len(t.hub.Runners()) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("no runner has connected within %v", connectTimeout)
		}
	}
	return nil
}

// clock measures a task.
func clock(took *time.Duration, do func(context.Context) error) error {
	begun := time.Now()
	err := do(context.Background())
	*took = time.Since(begun)
	return err
}

// Exec runs true on the runner.
func (t *HubTasks) Exec(_ int64, took *time.Duration) error {
	return clock(took, func(ctx context.Context) error {
		r, err := t.hub.Exec(ctx, sandbox.ExecSpec{Command: "true", User: benchUser})
		if err == nil && r.ExitCode != 0 {
			err = fmt.Errorf("true ended with %d", r.ExitCode)
		}
		return err
	})
}

// Start runs true as a child of this process.
func (t *HubTasks) Start(_ int64, took *time.Duration) error {
	return clock(took, func(ctx context.Context) error { return exec.CommandContext(ctx, "true").Run() })
}

// ReadMany reads the files many/0, many/1, … of the runner.
func (t *HubTasks) ReadMany(files int64, took *time.Duration) error {
	return clock(took, func(ctx context.Context) error {
		return several(ctx, int(files), filesInFlight, func(ctx context.Context, i int) error {
			content, err := t.hub.ReadFile(ctx, fmt.Sprintf("%s/many/%d", sandbox.Root, i), benchUser)
			if err == nil && len(content) != smallFile {
				err = fmt.Errorf("file %d has %d bytes", i, len(content))
			}
			return err
		})
	})
}

// Read streams the runner's large file into one here.
func (t *HubTasks) Read(size int64, took *time.Duration) error {
	return clock(took, func(ctx context.Context) error {
		f, err := os.Create(filepath.Join(t.dir, ourFile))
		if err != nil {
			return err
		}
		n, err := t.hub.ReadFileTo(ctx, sandbox.Root+"/"+sourceFile, f, benchUser)
		return errors.Join(err, f.Close(), whole(n, size))
	})
}

// Write streams our large file into one on the runner.
func (t *HubTasks) Write(size int64, took *time.Duration) error {
	return clock(took, func(ctx context.Context) error {
		f, err := os.Open(filepath.Join(t.dir, sourceFile))
		if err != nil {
			return err
		}
		defer f.Close()
		n, err := t.hub.WriteFileFrom(ctx, sandbox.Root+"/"+ourFile, f, 0o644, benchUser)
		return errors.Join(err, whole(n, size))
	})
}

func whole(n, size int64) error {
	if n != size {
		return fmt.Errorf("%d of %d bytes were sent", n, size)
	}
	return nil
}

func writeFile(path string, from io.Reader) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// link is a hub and a runner on loopback, which do nothing else.
type link struct {
	*bench
	hub               *rpc.Client
	url               string
	hubDir, runnerDir string
	pids              []int // of both
	peaks             [2]float64
}

// child starts a program that ends when end is called.
func (b *bench) child(cmd *exec.Cmd, log *tail, end func()) (stop func() error, err error) {
	cmd.Stderr = log
	endWithUs(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", cmd.Path, err)
	}
	return func() error {
		ended := make(chan struct{})
		go func() {
			end()
			_ = cmd.Wait()
			close(ended)
		}()
		return killAfter(cmd, ended, log)
	}, nil
}

func (b *bench) runnerSandbox(ctx context.Context) (err error) {
	l := &link{bench: b, hubDir: filepath.Join(b.dir, "hub"), runnerDir: filepath.Join(b.dir, "user")}
	if err := errors.Join(os.MkdirAll(l.hubDir, 0o700), os.MkdirAll(filepath.Join(l.runnerDir, "many"), 0o700)); err != nil {
		return err
	}
	for i := range b.files {
		if err := os.WriteFile(filepath.Join(l.runnerDir, "many", fmt.Sprint(i)), make([]byte, smallFile), 0o600); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var log tail
	hub := exec.Command(self, hubCommand, l.hubDir)
	in, err := hub.StdinPipe()
	if err != nil {
		return err
	}
	out, err := hub.StdoutPipe()
	if err != nil {
		return err
	}
	stop, err := b.child(hub, &log, func() { in.Close() })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	l.hub = rpc.NewClient(pipes{out, in})
	var addr string
	if err := l.hub.Call("Hub.Addr", true, &addr); err != nil {
		return fmt.Errorf("hub: %w: %s", err, log.String())
	}
	l.url = "http://" + addr + plainPath
	runner := exec.Command(b.runner, "runner", "--server", "ws://"+addr, "--workspace", l.runnerDir, "--name", "bench", "--allow", "exec,write")
	runner.Env = append(withoutSettings(b.environ), "SECBOX_TOKEN="+linkToken)
	stopRunner, err := b.child(runner, &log, func() { _ = runner.Process.Signal(os.Interrupt) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopRunner()) }()
	if err := l.hub.Call("Hub.Connected", true, new(bool)); err != nil {
		return fmt.Errorf("runner: %w: %s", err, log.String())
	}
	l.pids = []int{hub.Process.Pid, runner.Process.Pid}
	return l.measure(ctx)
}

// task is a turn of a method of the hub, in milliseconds; size is its argument.
func (l *link) task(method string, size int64) func(context.Context) ([]float64, error) {
	return func(ctx context.Context) ([]float64, error) {
		var took time.Duration
		select {
		case call := <-l.hub.Go("Hub."+method, size, &took, make(chan *rpc.Call, 1)).Done:
			return []float64{milliseconds(took)}, call.Error
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// perTime turns milliseconds into a rate of n things.
func perTime(n int64, turn func(context.Context) ([]float64, error)) func(context.Context) ([]float64, error) {
	return func(ctx context.Context) ([]float64, error) {
		values, err := turn(ctx)
		for i := range values {
			values[i] = float64(n) * 1000 / values[i]
		}
		return values, err
	}
}

func (l *link) measure(ctx context.Context) error {
	if _, err := l.task("Exec", 0)(ctx); err != nil { // starts the first worker
		return err
	}
	if _, err := l.compare(ctx, comparison{
		section: "sandboxes", title: "`true` on a runner", rounds: l.pairs, least: leastPairs,
		sides: []side{{name: "core-api", unit: ms, turn: l.task("Exec", 0)}, {name: "os/exec", unit: ms, turn: l.task("Start", 0)}},
		rows:  []row{{what: "`true` on a runner, p50", other: 1, form: adds, bound: 3}},
	}); err != nil {
		return err
	}
	title := fmt.Sprintf("%d files of %s read from a runner, %d in flight", l.files, binarySize(smallFile), filesInFlight)
	if _, err := l.compare(ctx, comparison{
		section: "sandboxes", title: title, rounds: l.rounds, least: leastRounds,
		sides: []side{{name: "core-api", unit: perSecond, turn: perTime(int64(l.files), l.task("ReadMany", int64(l.files)))}},
		rows:  []row{{what: title, bound: 5000, least: true}},
	}); err != nil {
		return err
	}
	for _, dir := range []string{l.hubDir, l.runnerDir} {
		if err := writeFile(filepath.Join(dir, sourceFile), io.LimitReader(bufio.NewReader(rand.NewChaCha8([32]byte{1})), l.largeBytes)); err != nil {
			return err
		}
	}
	for _, way := range []struct {
		what, method, http, into string
	}{{"from a runner", "Read", http.MethodPut, l.hubDir}, {"to a runner", "Write", http.MethodGet, l.runnerDir}} {
		title := fmt.Sprintf("a file of %s %s", binarySize(float64(l.largeBytes)), way.what)
		ours, plain := l.task(way.method, l.largeBytes), timed(func(ctx context.Context) error { return l.plainHTTP(ctx, way.http) })
		if _, err := l.compare(ctx, comparison{
			section: "sandboxes", title: title, rounds: l.rounds, least: leastRounds,
			sides: []side{
				{name: "core-api", unit: bytesPerSecond, turn: perTime(l.largeBytes, l.fresh(way.into, ourFile, l.watched(ours)))},
				{name: "plain HTTP " + way.http, unit: bytesPerSecond, turn: perTime(l.largeBytes, l.fresh(way.into, plainFile, plain))},
			},
			rows: []row{{what: title, other: 1, stat: paired, form: times, bound: 0.6, least: true}},
			note: func(c *Comparison) {
				c.Targets = append(c.Targets, fact("memory of core-api's side during these", sizeBytes, l.peaks[0], 64<<20),
					fact("memory of the runner during these", sizeBytes, l.peaks[1], 64<<20))
			},
		}); err != nil {
			return err
		}
	}
	return nil
}

// fresh makes a transfer write a new file, on a disk that has nothing left to write.
func (l *link) fresh(dir, name string, transfer func(context.Context) ([]float64, error)) func(context.Context) ([]float64, error) {
	return func(ctx context.Context) ([]float64, error) {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
		if err := settle(ctx, dir); err != nil {
			return nil, err
		}
		return transfer(ctx)
	}
}

// watched measures the memory of both processes during a transfer.
func (l *link) watched(transfer func(context.Context) ([]float64, error)) func(context.Context) ([]float64, error) {
	return func(ctx context.Context) ([]float64, error) {
		for _, pid := range l.pids {
			if err := resetPeak(pid); err != nil {
				return nil, err
			}
		}
		values, err := transfer(ctx)
		for i, pid := range l.pids {
			_, peak, peakErr := resident(pid)
			l.peaks[i], err = max(l.peaks[i], peak), errors.Join(err, peakErr)
		}
		return values, err
	}
}

// plainHTTP sends the runner's large file to the hub by one PUT, or fetches the hub's by one GET.
func (l *link) plainHTTP(ctx context.Context, method string) error {
	var body *os.File
	into, err := os.Create(filepath.Join(l.runnerDir, plainFile))
	if err != nil {
		return err
	}
	defer into.Close()
	req, err := http.NewRequestWithContext(ctx, method, l.url, nil)
	if err != nil {
		return err
	}
	if method == http.MethodPut {
		if body, err = os.Open(filepath.Join(l.runnerDir, sourceFile)); err != nil {
			return err
		}
		defer body.Close()
		req.Body, req.ContentLength = body, l.largeBytes
	}
	req.Header.Set("Authorization", "Bearer "+linkToken)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req) // no proxy
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
