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
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"secbox/sandbox"
	"secbox/sandbox/remote"
	"secbox/sandbox/remote/wire"
)

// core-api's end of a runner's link is a separate process, `bench hub DIR`, so that its memory can be measured. It prints its address, takes
// tasks over HTTP, and ends with its standard input.
const hubCommand = "hub"

const (
	linkToken      = "the-token-of-a-bench" // on loopback, while the section runs
	taskPath       = "/task/"
	plainPath      = "/plain"
	smallFile      = 4 << 10 // bytes
	filesInFlight  = 16
	connectTimeout = time.Minute

	sourceFile = "source" // of a transfer
	ourFile    = "ours"   // what came through the sandbox
	plainFile  = "plain"  // what came by plain HTTP
)

var benchUser = sandbox.User{AgentID: "bench", ID: "bench"}

func serveHub() error {
	dir := os.Args[2]
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	hub := remote.NewHub(remote.Config{Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), Version: "bench"})
	caller := remote.Caller{TokenID: "bench", UserID: benchUser.ID}
	mux := http.NewServeMux()
	mux.HandleFunc(wire.LinkPath, func(w http.ResponseWriter, r *http.Request) { hub.ServeLink(w, r, caller) })
	mux.HandleFunc(wire.TransferPath, func(w http.ResponseWriter, r *http.Request) {
		hub.ServeTransfer(w, r, strings.TrimPrefix(r.URL.Path, wire.TransferPath), caller)
	})
	mux.HandleFunc("GET "+plainPath, func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, filepath.Join(dir, sourceFile)) })
	answer := func(w http.ResponseWriter, text string, err error) {
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, text)
	}
	mux.HandleFunc("PUT "+plainPath, func(w http.ResponseWriter, r *http.Request) {
		answer(w, "", writeFile(filepath.Join(dir, plainFile), r.Body))
	})
	for name, task := range hubTasks(hub, dir) {
		mux.HandleFunc("POST "+taskPath+name, func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.ParseInt(r.URL.RawQuery, 10, 64)
			begun := time.Now()
			err := task(r.Context(), n)
			answer(w, fmt.Sprint(since(begun)[0]), err)
		})
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+linkToken { // another program of this machine
			http.Error(w, "this is a bench", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(listener) }()
	fmt.Println(listener.Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, hub.Close(), server.Close())
}

// hubTasks are what the hub's process measures, each with a number of files or bytes.
func hubTasks(hub *remote.Hub, dir string) map[string]func(context.Context, int64) error {
	whole := func(n, size int64) error {
		if n != size {
			return fmt.Errorf("%d of %d bytes were sent", n, size)
		}
		return nil
	}
	return map[string]func(context.Context, int64) error{
		"connect": func(ctx context.Context, _ int64) error { // waits for the runner
			for end := time.Now().Add(connectTimeout); len(hub.Runners()) == 0; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					return fmt.Errorf("no runner has connected within %v", connectTimeout)
				}
			}
			return nil
		},
		"exec": func(ctx context.Context, _ int64) error {
			r, err := hub.Exec(ctx, sandbox.ExecSpec{Command: "true", User: benchUser})
			if err == nil && r.ExitCode != 0 {
				err = fmt.Errorf("true ended with %d", r.ExitCode)
			}
			return err
		},
		"start": func(ctx context.Context, _ int64) error { return exec.CommandContext(ctx, "true").Run() },
		"many": func(ctx context.Context, files int64) error { // reads the runner's files many/0, many/1, …
			return several(ctx, int(files), filesInFlight, func(ctx context.Context, i int) error {
				content, err := hub.ReadFile(ctx, fmt.Sprintf("%s/many/%d", sandbox.Root, i), benchUser)
				return errors.Join(err, whole(int64(len(content)), smallFile))
			})
		},
		"read": func(ctx context.Context, size int64) error { // streams the runner's large file into one here
			f, err := os.Create(filepath.Join(dir, ourFile))
			if err != nil {
				return err
			}
			n, err := hub.ReadFileTo(ctx, sandbox.Root+"/"+sourceFile, f, benchUser)
			return errors.Join(err, f.Close(), whole(n, size))
		},
		"write": func(ctx context.Context, size int64) error { // streams ours into one on the runner
			f, err := os.Open(filepath.Join(dir, sourceFile))
			if err != nil {
				return err
			}
			defer f.Close()
			n, err := hub.WriteFileFrom(ctx, sandbox.Root+"/"+ourFile, f, 0o644, benchUser)
			return errors.Join(err, whole(n, size))
		},
	}
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
	url               string // of the hub
	hubDir, runnerDir string
	pids              []int // of both
	peaks             [2]float64
}

// child starts a program, which the closing of its standard input or an interrupt ends.
func (b *bench) child(log *tail, environ []string, program string, args ...string) (cmd *exec.Cmd, out io.Reader, stop func() error, err error) {
	cmd = exec.Command(program, args...)
	cmd.Stderr, cmd.Env = log, append(withoutSettings(b.environ), environ...)
	endWithUs(cmd)
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return nil, nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, nil, fmt.Errorf("cannot start %s: %w", program, err)
	}
	return cmd, out, func() error {
		_ = errors.Join(in.Close(), cmd.Process.Signal(os.Interrupt)) // it may have ended
		ended := make(chan struct{})
		go func() {
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
	hub, out, stop, err := b.child(&log, nil, self, hubCommand, l.hubDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("hub: %w: %s", err, log.String())
	}
	addr = strings.TrimSpace(addr)
	l.url = "http://" + addr
	runner, _, stopRunner, err := b.child(&log, []string{"SECBOX_TOKEN=" + linkToken}, b.runner,
		"runner", "--server", "ws://"+addr, "--workspace", l.runnerDir, "--name", "bench", "--allow", "exec,write")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopRunner()) }()
	l.pids = []int{hub.Process.Pid, runner.Process.Pid}
	for _, task := range []string{"connect", "exec"} { // the first exec starts a worker
		if _, err := l.task(task, 0)(ctx); err != nil {
			return fmt.Errorf("%w: %s", err, log.String())
		}
	}
	return l.measure(ctx)
}

// task is a turn of a task of the hub, in milliseconds.
func (l *link) task(name string, n int64) func(context.Context) ([]float64, error) {
	return func(ctx context.Context) ([]float64, error) {
		var answer strings.Builder
		if err := l.request(ctx, http.MethodPost, taskPath+name+"?"+strconv.FormatInt(n, 10), nil, &answer); err != nil {
			return nil, err
		}
		took, err := strconv.ParseFloat(answer.String(), 64)
		return []float64{took}, err
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
	if _, err := l.compare(ctx, comparison{
		section: "sandboxes", title: "`true` on a runner", rounds: l.pairs, least: leastPairs,
		sides: []side{{name: "core-api", unit: ms, turn: l.task("exec", 0)}, {name: "os/exec", unit: ms, turn: l.task("start", 0)}},
		rows:  []row{{what: "`true` on a runner, p50", other: 1, form: adds, bound: 3}},
	}); err != nil {
		return err
	}
	title := fmt.Sprintf("%d files of %s read from a runner, %d in flight", l.files, binarySize(smallFile), filesInFlight)
	if _, err := l.compare(ctx, comparison{
		section: "sandboxes", title: title, rounds: l.rounds, least: leastRounds,
		sides: []side{{name: "core-api", unit: perSecond, turn: perTime(int64(l.files), l.task("many", int64(l.files)))}},
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
	}{{"from a runner", "read", http.MethodPut, l.hubDir}, {"to a runner", "write", http.MethodGet, l.runnerDir}} {
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
	if method == http.MethodPut {
		f, err := os.Open(filepath.Join(l.runnerDir, sourceFile))
		if err != nil {
			return err
		}
		return l.request(ctx, method, plainPath, f, io.Discard)
	}
	f, err := os.Create(filepath.Join(l.runnerDir, plainFile))
	if err != nil {
		return err
	}
	return errors.Join(l.request(ctx, method, plainPath, nil, f), f.Close())
}

// request makes a request to the hub, whose body, if any, is a large file.
func (l *link) request(ctx context.Context, method, path string, body *os.File, into io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, method, l.url+path, nil)
	if err != nil {
		return err
	}
	if body != nil {
		req.Body, req.ContentLength = body, l.largeBytes // the transport closes it
	}
	req.Header.Set("Authorization", "Bearer "+linkToken)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req) // no proxy
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	_, err = io.Copy(into, resp.Body)
	return err
}
