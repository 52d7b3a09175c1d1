package bench

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
	servePatience = 90 * time.Second // to its first word that it serves: it may have to wait for the engine
	stopPatience  = 60 * time.Second // after a signal: it drains, and waits for the engine's teardown
	callPatience  = 2 * time.Minute  // for one answer
)

// server is a core-api of our own in another process.
type server struct {
	cmd    *exec.Cmd
	client *http.Client
	url    string
	node   string // its id, which its containers bear
	dir    string // has workspace/ and state/

	ended chan struct{}
	mu    sync.Mutex
	tail  []string // the last lines of its log
}

// serve starts a core-api on directories below dir. The environment is ours without what would change its settings.
func serve(ctx context.Context, o Options, dir string, more ...string) (*server, error) {
	for _, sub := range []string{"workspace", "state"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	args := append(append([]string{}, o.Server[1:]...), "--addr", "127.0.0.1:0", "--log-format", "json", "--log-level", "info",
		"--workspace-root", filepath.Join(dir, "workspace"), "--state-dir", filepath.Join(dir, "state"))
	s := &server{cmd: exec.Command(o.Server[0], args...), dir: dir, ended: make(chan struct{})}
	s.client = &http.Client{Timeout: callPatience, Transport: &http.Transport{MaxIdleConnsPerHost: maxConcurrent}} // no proxy
	s.cmd.Env = append(withoutSettings(o.Environ), more...)
	tie(s.cmd)
	log, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("core-api cannot be started: %w", err)
	}
	serves := make(chan struct{})
	go func() {
		s.read(log, serves)
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	select {
	case <-serves:
		return s, nil
	case <-s.ended:
		return nil, fmt.Errorf("core-api ended instead of serving:\n%s", s.last())
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), s.stop())
	case <-time.After(servePatience):
		return nil, errors.Join(fmt.Errorf("core-api does not serve after %v:\n%s", servePatience, s.last()), s.stop())
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

// read follows the log until its end and learns from it where the server listens.
func (s *server) read(log io.Reader, serves chan<- struct{}) {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct{ Msg, Addr, Node string }
		if s.url == "" && json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "core-api serves" {
			s.url, s.node = "http://"+line.Addr, line.Node
			close(serves)
		}
		s.mu.Lock()
		s.tail = append(s.tail[max(0, len(s.tail)-19):], lines.Text())
		s.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, log) // a line too long to be kept must not stop the server
}

func (s *server) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.tail, "\n")
}

func (s *server) pid() int { return s.cmd.Process.Pid }

// stop ends the server in order and waits for it; by force when it does not end. Safe to call twice.
func (s *server) stop() error {
	s.client.CloseIdleConnections()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		_ = s.cmd.Process.Kill() // a system without signals
	}
	select {
	case <-s.ended:
		return nil
	case <-time.After(stopPatience):
		_ = s.cmd.Process.Kill()
		<-s.ended
		return fmt.Errorf("core-api did not end within %v and was killed:\n%s", stopPatience, s.last())
	}
}

// call makes one request and decodes its answer into out; anything but 200 is an error.
func (s *server) call(ctx context.Context, method, path string, body []byte, out any) error {
	content, err := s.fetch(ctx, method, path, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, out)
}

// fetch makes one request and reads its answer; anything but 200 is an error.
func (s *server) fetch(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %d %s", method, path, resp.StatusCode, content)
	}
	return content, nil
}

// result is what we read of an exec's answer.
type result struct {
	ExecID          string    `json:"exec_id"`
	Status          string    `json:"status"`
	Detail          string    `json:"detail"`
	ArtifactsDir    string    `json:"artifacts_dir"`
	StdoutBytes     int64     `json:"stdout_bytes"`
	StdoutTruncated bool      `json:"stdout_truncated"`
	Warm            bool      `json:"warm"`       // in records only
	CreatedAt       time.Time `json:"created_at"` // in records only
	StartedAt       time.Time `json:"started_at"`
	EndedAt         time.Time `json:"ended_at"`

	sent, answered time.Time
}

func (r result) took() time.Duration { return r.answered.Sub(r.sent) }

// exec runs a job in a project and times its answer.
func (s *server) exec(ctx context.Context, project string, j job) (result, error) {
	body, err := json.Marshal(map[string]any{
		"project_id": project,
		"exec":       map[string]any{"kind": j.kind, "command": j.command, "args": j.args},
	})
	if err != nil {
		return result{}, err
	}
	r := result{sent: time.Now()}
	err = s.call(ctx, http.MethodPost, "/sandbox/execs", body, &r)
	r.answered = time.Now()
	if err == nil && r.Status != "succeeded" {
		err = fmt.Errorf("exec %s: %s: %s", r.ExecID, r.Status, r.Detail)
	}
	return r, err
}

// record asks for the whole record of an exec.
func (s *server) record(ctx context.Context, execID string) (r result, err error) {
	err = s.call(ctx, http.MethodGet, "/sandbox/execs/"+execID, nil, &r)
	return r, err
}
