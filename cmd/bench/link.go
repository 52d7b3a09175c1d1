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

// core-api's end of a runner's link is a separate process, `bench hub DIR`, so that its memory can be measured. It takes tasks over HTTP.
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
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	hub := remote.NewHub(remote.Config{Log: log, Version: "bench"})
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
	log.Warn(servesMessage, "addr", listener.Addr().String())
	return server.Serve(listener)
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

// writeNoise makes a file of this size, the same one each time.
func writeNoise(path string, size int64) error {
	return writeFile(path, io.LimitReader(bufio.NewReader(rand.NewChaCha8([32]byte{1})), size))
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
	hub               *server
	runner            *child
	hubDir, runnerDir string
	hubPeak, peak     float64 // bytes of memory that the hub and the runner held at most
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
	if l.hub, err = b.startHub(ctx, l.hubDir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.hub.stop()) }()
	l.runner, err = b.start(io.Discard, []string{"SECBOX_TOKEN=" + linkToken}, b.runner, "runner",
		"--server", strings.Replace(l.hub.url, "http", "ws", 1), "--workspace", l.runnerDir, "--name", "bench", "--allow", "exec,write")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.runner.stop()) }()
	for _, task := range []string{"connect", "exec"} { // the first exec starts a worker
		if _, err := l.task(task, 0)(ctx, nil); err != nil {
			return fmt.Errorf("%w: %s%s", err, l.hub.log.String(), l.runner.log.String())
		}
	}
	return l.measure(ctx)
}

// startHub starts the process that serves the hub, and dir by plain HTTP.
func (b *bench) startHub(ctx context.Context, dir string) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	hub, err := b.startServer(ctx, nil, self, hubCommand, dir)
	if err == nil {
		hub.token = linkToken
	}
	return hub, err
}

// task is a turn of a task of the hub, in milliseconds.
func (l *link) task(name string, n int64) turn {
	return func(ctx context.Context, _ *subject) ([]float64, error) {
		var took float64
		err := l.hub.call(ctx, http.MethodPost, taskPath+name+"?"+strconv.FormatInt(n, 10), nil, &took)
		return []float64{took}, err
	}
}

func (l *link) measure(ctx context.Context) error {
	if err := l.compare(ctx, comparison{
		section: "sandboxes", title: "`true` on a runner", rounds: l.pairs, least: leastPairs,
		sides: []side{{name: "core-api", unit: ms, turn: l.task("exec", 0)}, {name: "os/exec", unit: ms, turn: l.task("start", 0)}},
		rows:  []row{{what: "`true` on a runner, p50", other: 1, form: adds, bound: 3}},
	}); err != nil {
		return err
	}
	title := fmt.Sprintf("%d files of %s read from a runner, %d in flight", l.files, binarySize(smallFile), filesInFlight)
	if err := l.compare(ctx, comparison{
		section: "sandboxes", title: title, rounds: l.rounds, least: leastRounds,
		sides: []side{{name: "core-api", unit: perSecond, turn: l.task("many", int64(l.files)).per(int64(l.files))}},
		rows:  []row{{what: title, bound: 5000, least: true}},
	}); err != nil {
		return err
	}
	for _, dir := range []string{l.hubDir, l.runnerDir} {
		if err := writeNoise(filepath.Join(dir, sourceFile), l.largeBytes); err != nil {
			return err
		}
	}
	for _, way := range []struct {
		what, method, http, into string
	}{{"from a runner", "read", http.MethodPut, l.hubDir}, {"to a runner", "write", http.MethodGet, l.runnerDir}} {
		title := fmt.Sprintf("a file of %s %s", binarySize(float64(l.largeBytes)), way.what)
		ours := l.watched(l.task(way.method, l.largeBytes)).after(l.fresh(way.into, ourFile)).per(l.largeBytes)
		plain := timed(func(ctx context.Context, _ *subject) error { return l.plainHTTP(ctx, way.http) }).after(l.fresh(way.into, plainFile)).per(l.largeBytes)
		if err := l.compare(ctx, comparison{
			section: "sandboxes", title: title, rounds: l.rounds, least: leastRounds,
			sides: []side{
				{name: "core-api", unit: bytesPerSecond, turn: ours}, {name: "plain HTTP " + way.http, unit: bytesPerSecond, turn: plain},
			},
			rows: []row{{what: title, other: 1, stat: paired, form: times, bound: 0.6, least: true}},
			note: func(c *Comparison) {
				c.Targets = append(c.Targets, fact("memory of core-api's side during these", sizeBytes, l.hubPeak, 64<<20),
					fact("memory of the runner during these", sizeBytes, l.peak, 64<<20))
			},
		}); err != nil {
			return err
		}
	}
	return nil
}

// fresh makes a transfer write a new file, on a disk that has nothing left to write.
func (l *link) fresh(dir, name string) func(context.Context, *subject) error {
	return func(ctx context.Context, x *subject) error {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
		return settle(dir)(ctx, x)
	}
}

// watched measures the memory of both processes during a transfer.
func (l *link) watched(transfer turn) turn {
	return func(ctx context.Context, x *subject) ([]float64, error) {
		if err := errors.Join(resetPeak(l.hub.pid()), resetPeak(l.runner.pid())); err != nil {
			return nil, err
		}
		values, err := transfer(ctx, x)
		_, hubPeak, hubErr := resident(l.hub.pid())
		_, peak, peakErr := resident(l.runner.pid())
		l.hubPeak, l.peak = max(l.hubPeak, hubPeak), max(l.peak, peak)
		return values, errors.Join(err, hubErr, peakErr)
	}
}

// plainHTTP sends the runner's large file to the hub by one PUT, or fetches the hub's by one GET.
func (l *link) plainHTTP(ctx context.Context, method string) error {
	if method == http.MethodPut {
		f, err := os.Open(filepath.Join(l.runnerDir, sourceFile))
		if err != nil {
			return err
		}
		return l.hub.send(ctx, method, plainPath, "", f, io.Discard) // closes the file
	}
	f, err := os.Create(filepath.Join(l.runnerDir, plainFile))
	if err != nil {
		return err
	}
	return errors.Join(l.hub.send(ctx, method, plainPath, "", nil, f), f.Close())
}
