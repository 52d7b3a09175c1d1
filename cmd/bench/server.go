//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// How long a server may take.
const (
	startTimeout = 90 * time.Second // until it serves: it may have to wait for the engine
	stopTimeout  = 60 * time.Second // after a signal: it drains, and waits for the engine's teardown
	callTimeout  = 2 * time.Minute  // for one answer
)

// server is a program that serves HTTP: a core-api, or our hub.
type server struct {
	*child
	*client
	node string // of a core-api: its id, a label of its containers
	dir  string // of a core-api: has workspace/ and state/
}

// serve starts a core-api on directories below dir. The environment is ours without core-api's
// settings.
func (b *bench) serve(ctx context.Context, program, dir string, environ ...string) (*server, error) {
	s, err := b.startCoreAPI(ctx, program, filepath.Join(dir, "workspace"), filepath.Join(dir, "state"), environ...)
	if err == nil {
		s.dir = dir
	}
	return s, err
}

// startCoreAPI starts a core-api on these directories.
func (b *bench) startCoreAPI(ctx context.Context, program, workspace, state string, environ ...string) (*server, error) {
	if err := errors.Join(os.MkdirAll(workspace, 0o700), os.MkdirAll(state, 0o700)); err != nil {
		return nil, err
	}
	return b.startServer(ctx, slices.Concat(b.settings, environ), program, "serve", "--addr", "127.0.0.1:0", "--log-format", "json",
		"--log-level", "info",
		"--workspace-root", workspace, "--state-dir", state)
}

// servesMessage is the log line of a server that tells its address.
const servesMessage = "core-api serves"

// startServer starts a program and waits until its log tells where it listens.
func (b *bench) startServer(ctx context.Context, environ []string, program string, args ...string) (*server, error) {
	log, w := io.Pipe()
	process, err := b.start(w, environ, program, args...)
	if err != nil {
		return nil, err
	}
	s := &server{child: process, client: newClient("")}
	serves := make(chan struct{})
	go func() {
		<-s.ended
		_ = w.Close()
	}()
	go func() {
		lines := bufio.NewScanner(log)
		lines.Buffer(nil, 1<<20)
		for s.url == "" && lines.Scan() {
			var line struct{ Msg, Addr, Node string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == servesMessage {
				s.url, s.node = "http://"+line.Addr, line.Node
				close(serves)
			}
		}
		_, _ = io.Copy(io.Discard, log) // the rest of the log must not block the server
	}()
	select {
	case <-serves:
		return s, nil
	case <-s.ended:
		return nil, fmt.Errorf("%s ended instead of serving:\n%s", program, s.log.String())
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), s.stop())
	case <-time.After(startTimeout):
		return nil, errors.Join(fmt.Errorf("%s does not serve after %v:\n%s", program, startTimeout, s.log.String()), s.stop())
	}
}

func (s *server) stop() error {
	s.CloseIdleConnections()
	return s.child.stop()
}

// withoutSettings drops the variables that core-api reads its settings from.
func withoutSettings(environ []string) []string {
	var out []string
	for _, kv := range environ {
		if name, _, _ := strings.Cut(kv, "="); !strings.HasPrefix(name, "CORE_API_") && name != "DATABASE_URL" {
			out = append(out, kv)
		}
	}
	return out
}

// child is a running program.
type child struct {
	cmd   *exec.Cmd
	ended chan struct{}
	log   tail // its standard error
}

// start starts a program, whose standard error is also copied to log.
func (b *bench) start(log io.Writer, environ []string, program string, args ...string) (*child, error) {
	c := &child{cmd: exec.Command(program, args...), ended: make(chan struct{})}
	c.cmd.Stderr, c.cmd.Env = io.MultiWriter(&c.log, log), append(withoutSettings(b.environ), environ...)
	endWithUs(c.cmd)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", program, err)
	}
	go func() {
		_ = c.cmd.Wait()
		close(c.ended)
	}()
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// stop ends the program and waits for it; it kills one that does not end.
func (c *child) stop() error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-c.ended:
		return nil
	case <-time.After(stopTimeout):
		_ = c.cmd.Process.Kill()
		<-c.ended
		return fmt.Errorf("%s did not end within %v and was killed:\n%s", c.cmd.Path, stopTimeout, c.log.String())
	}
}

// tail keeps the last 4 KiB that were written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-4096):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}

// result is the part of an exec's answer, or record, that bench reads.
type result struct {
	ExecID       string    `json:"exec_id"`
	Status       string    `json:"status"`
	Detail       string    `json:"detail"`
	ArtifactsDir string    `json:"artifacts_dir"`
	StdoutBytes  int64     `json:"stdout_bytes"`
	Warm         bool      `json:"warm"`       // in records only
	CreatedAt    time.Time `json:"created_at"` // in records only
	StartedAt    time.Time `json:"started_at"`
	EndedAt      time.Time `json:"ended_at"`

	sent, answered time.Time
}

func (r result) took() []float64 { return []float64{milliseconds(r.answered.Sub(r.sent))} }

// job is a command that both sides run.
type job struct {
	name    string // in the report
	kind    string // of the request
	command string
	args    []string
}

func shell(script string) job {
	return job{name: fmt.Sprintf("`bash -lc %s`", script), kind: "shell", command: "bash", args: []string{"-lc", script}}
}

// Jobs that do next to nothing: their time is core-api's and the engine's.
var (
	nothing     = shell("true")
	pythonPrint = job{name: "Python `print(1)`", kind: "python", command: "python", args: []string{"-c", "print(1)"}}
)
