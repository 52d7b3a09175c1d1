//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"secbox/sandbox"
)

// transfers compares files over HTTP through a whole core-api with one PUT and one GET of a plain server.
func (b *bench) transfers(ctx context.Context) error {
	if b.against != "" {
		return nil
	}
	return b.withSubjects(ctx, "transfers", []string{noPool}, func(ctx context.Context, xs []*subject) (err error) {
		t := &transfers{bench: b, api: xs[0].server, plainDir: filepath.Join(b.dir, "transfers"), runnerDir: filepath.Join(b.dir, "transfers-user")}
		for _, dir := range []string{t.plainDir, t.runnerDir} {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return err
			}
		}
		if err := writeNoise(filepath.Join(t.plainDir, sourceFile), b.largeBytes); err != nil {
			return err
		}
		if t.plain, err = b.startHub(ctx, t.plainDir); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, t.plain.stop()) }()
		if t.runner, err = t.dialIn(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, t.runner.stop()) }()
		for _, backend := range []string{sandbox.Docker, sandbox.Remote} {
			if err := t.measure(ctx, backend); err != nil {
				return err
			}
		}
		return nil
	})
}

type transfers struct {
	*bench
	api, plain          *server
	runner              *child
	plainDir, runnerDir string
}

// dialIn starts the runner of the user and waits until it is connected.
func (t *transfers) dialIn(ctx context.Context) (*child, error) {
	secret, err := t.newToken(ctx, t.api, "--role", "runner", "--user", benchUser.ID)
	if err != nil {
		return nil, err
	}
	runner, err := t.start(io.Discard, []string{"SECBOX_TOKEN=" + secret}, t.bench.runner, "runner",
		"--server", t.api.url, "--workspace", t.runnerDir, "--name", "bench", "--allow", "write")
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(connectTimeout); ; {
		if err = t.use(ctx, sandbox.Remote); err == nil {
			if err = t.api.call(ctx, http.MethodGet, "/v1/sandbox/bench/bench/files", nil, nil); err == nil {
				return runner, nil
			}
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("the runner has not connected: %w: %s", err, runner.log.String()), runner.stop())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// use makes a backend that of the user.
func (t *transfers) use(ctx context.Context, backend string) error {
	return t.api.call(ctx, http.MethodPut, "/v1/sandbox/"+benchUser.ID+"/backend", map[string]string{"backend": backend}, nil)
}

// newToken creates a token for a core-api.
func (b *bench) newToken(ctx context.Context, s *server, flags ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.cmd.Path, append([]string{
		"token", "create",
		"--state-dir", filepath.Join(s.dir, "state"), "--workspace-root", filepath.Join(s.dir, "workspace"),
	}, flags...)...)
	cmd.Env = withoutSettings(b.environ)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("core-api token create: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// measure compares both ways in one backend.
func (t *transfers) measure(ctx context.Context, backend string) error {
	if err := t.use(ctx, backend); err != nil {
		return err
	}
	ours, into := "/v1/sandbox/bench/bench/file?path=", t.runnerDir
	if backend == sandbox.Docker {
		into = filepath.Join(t.api.dir, "workspace", "projects", benchUser.ProjectID(), "work")
	}
	for _, way := range []struct {
		what string
		do   func(ctx context.Context, c *client, path string) error
	}{{http.MethodPut, t.put}, {http.MethodGet, t.get}} {
		title := fmt.Sprintf("%s of %s over HTTP, %s sandbox", way.what, binarySize(float64(t.largeBytes)), backend)
		w := &watch{names: []string{"core-api", "the client"}, pids: []int{t.api.pid(), os.Getpid()}}
		if backend == sandbox.Remote {
			w.names, w.pids = append(w.names, "the runner"), append(w.pids, t.runner.pid())
		}
		fresh := func(file string) func(context.Context, *subject) error {
			return func(ctx context.Context, x *subject) error {
				if way.what == http.MethodPut {
					if err := os.RemoveAll(file); err != nil {
						return err
					}
				}
				return settle(t.plainDir)(ctx, x)
			}
		}
		if err := t.compare(ctx, comparison{
			section: "transfers", title: title, rounds: t.rounds, least: leastRounds,
			sides: []side{
				{name: "core-api", unit: bytesPerSecond, turn: w.turn(timed(func(ctx context.Context, _ *subject) error {
					return way.do(ctx, t.api.client, ours+ourFile)
				})).after(fresh(filepath.Join(into, ourFile))).per(t.largeBytes)},
				{name: "plain HTTP", unit: bytesPerSecond, turn: timed(func(ctx context.Context, _ *subject) error {
					return way.do(ctx, t.plain.client, plainPath)
				}).after(fresh(filepath.Join(t.plainDir, plainFile))).per(t.largeBytes)},
			},
			rows: []row{{what: title, other: 1, stat: paired, form: times, bound: 0.6, least: true}},
			note: func(c *Comparison) {
				c.Notes = append(c.Notes, w.notes(t.largeBytes)...)
				c.Targets = append(c.Targets, fact("growth of core-api's memory during these", sizeBytes, w.growth, 64<<20))
			},
		}); err != nil {
			return err
		}
	}
	return nil
}

func (t *transfers) put(ctx context.Context, c *client, path string) error {
	f, err := os.Open(filepath.Join(t.plainDir, sourceFile))
	if err != nil {
		return err
	}
	return c.send(ctx, http.MethodPut, path, "", f, io.Discard) // closes the file
}

// get checks the number of bytes that it drops.
func (t *transfers) get(ctx context.Context, c *client, path string) error {
	var n counter
	err := c.send(ctx, http.MethodGet, path, "", nil, &n)
	if err == nil && int64(n) != t.largeBytes {
		err = fmt.Errorf("%d bytes came", n)
	}
	return err
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// watch adds up the CPU time of some processes during turns, and the growth of the first one's memory.
type watch struct {
	names  []string
	pids   []int
	cpu    [3]time.Duration
	turns  int
	growth float64 // bytes, at most
}

func (w *watch) turn(t turn) turn {
	return func(ctx context.Context, x *subject) ([]float64, error) {
		if err := resetPeak(w.pids[0]); err != nil {
			return nil, err
		}
		had, _, err := resident(w.pids[0])
		if err != nil {
			return nil, err
		}
		before := w.times()
		values, err := t(ctx, x)
		for i, cpu := range w.times() {
			w.cpu[i] += cpu - before[i]
		}
		w.turns++
		_, peak, peakErr := resident(w.pids[0])
		w.growth = max(w.growth, peak-had)
		return values, errors.Join(err, peakErr)
	}
}

func (w *watch) times() (out [3]time.Duration) {
	for i, pid := range w.pids {
		out[i], _, _ = cpuOf(pid)
	}
	return out
}

func (w *watch) notes(size int64) []string {
	var parts []string
	for i, name := range w.names {
		parts = append(parts, fmt.Sprintf("%s %.2f s", name, w.cpu[i].Seconds()/float64(w.turns)*(1<<30)/float64(size)))
	}
	return []string{"CPU time per GiB: " + strings.Join(parts, ", ")}
}
