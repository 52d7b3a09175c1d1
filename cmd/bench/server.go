//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
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

// server is a running core-api.
type server struct {
	cmd    *exec.Cmd
	client *http.Client
	url    string
	node   string // its id, a label of its containers
	dir    string // has workspace/ and state/

	ended chan struct{}
	log   tail
}

// serve starts a core-api on directories below dir. The environment is ours without core-api's settings.
func (b *bench) serve(ctx context.Context, program, dir string, environ ...string) (*server, error) {
	for _, sub := range []string{"workspace", "state"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	s := &server{dir: dir, ended: make(chan struct{}), cmd: exec.Command(program, "serve", "--addr", "127.0.0.1:0", "--log-format", "json", "--log-level", "info",
		"--workspace-root", filepath.Join(dir, "workspace"), "--state-dir", filepath.Join(dir, "state"))}
	s.client = &http.Client{Timeout: callTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: maxConcurrent}} // no proxy
	s.cmd.Env = append(withoutSettings(b.environ), environ...)
	endWithUs(s.cmd)
	log, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start core-api: %w", err)
	}
	serves := make(chan struct{})
	go func() {
		s.follow(log, serves)
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	select {
	case <-serves:
		return s, nil
	case <-s.ended:
		return nil, fmt.Errorf("core-api ended instead of serving:\n%s", s.log.String())
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), s.stop())
	case <-time.After(startTimeout):
		return nil, errors.Join(fmt.Errorf("core-api does not serve after %v:\n%s", startTimeout, s.log.String()), s.stop())
	}
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

// follow reads the log to its end, and finds in it where the server listens.
func (s *server) follow(log io.Reader, serves chan<- struct{}) {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct{ Msg, Addr, Node string }
		if s.url == "" && json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "core-api serves" {
			s.url, s.node = "http://"+line.Addr, line.Node
			close(serves)
		}
		fmt.Fprintln(&s.log, lines.Text())
	}
	_, _ = io.Copy(io.Discard, log) // a line that is too long must not block the server
}

func (s *server) pid() int { return s.cmd.Process.Pid }

// stop ends the server and waits for it; it kills a server that does not end.
func (s *server) stop() error {
	s.client.CloseIdleConnections()
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	return killAfter(s.cmd, s.ended, &s.log)
}

// killAfter waits for a process that was asked to end.
func killAfter(cmd *exec.Cmd, ended <-chan struct{}, log *tail) error {
	select {
	case <-ended:
		return nil
	case <-time.After(stopTimeout):
		_ = cmd.Process.Kill()
		<-ended
		return fmt.Errorf("%s did not end within %v and was killed:\n%s", cmd.Path, stopTimeout, log.String())
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

// call makes one request with a JSON body and decodes the answer into out.
func (s *server) call(ctx context.Context, method, path string, body, out any) error {
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return err
		}
	}
	answer, err := s.send(ctx, method, path, "application/json", content)
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(answer, out)
}

// send makes one request and reads the answer; any status but 200 is an error.
func (s *server) send(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %d %s", method, path, resp.StatusCode, content)
	}
	return content, err
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
