package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// later is an exec that was posted and whose answer is still to come.
type later struct {
	s        *testServer
	prepared bool // a container waited for it
	answer   chan answer
	failed   chan error // the connection broke
}

// post sends an exec without waiting for its answer.
func (s *testServer) post(request object) *later {
	s.t.Helper()
	prepared := s.prepare(request)
	body, err := json.Marshal(request)
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodPost, s.url+"/sandbox/execs", bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	l := &later{s: s, prepared: prepared, answer: make(chan answer, 1), failed: make(chan error, 1)}
	go func() {
		resp, err := s.client.Do(req)
		if err != nil {
			l.failed <- err
			return
		}
		defer resp.Body.Close()
		content, err := io.ReadAll(resp.Body)
		if err != nil {
			l.failed <- err
			return
		}
		l.answer <- answer{resp.StatusCode, resp.Header, content}
	}()
	if prepared {
		s.awaitTaken(l)
	}
	return l
}

// answerTimeout is how long a test waits for an answer.
const answerTimeout = 5 * time.Minute

// any waits for an answer with any status.
func (l *later) any() answer {
	l.s.t.Helper()
	select {
	case a := <-l.answer:
		return a
	case err := <-l.failed:
		l.s.t.Fatalf("no answer: %v", err)
	case <-time.After(answerTimeout):
		l.s.t.Fatal("no answer in time")
	}
	panic("unreachable")
}

// result waits for an answer of 200.
func (l *later) result() object {
	l.s.t.Helper()
	a := l.any()
	if a.Code != http.StatusOK {
		l.s.t.Fatalf("exec: %d %s", a.Code, a.Body)
	}
	l.s.served(l.prepared, a)
	return a.json(l.s.t)
}

// noAnswer waits for the connection to break.
func (l *later) noAnswer() {
	l.s.t.Helper()
	select {
	case a := <-l.answer:
		l.s.t.Fatalf("an answer: %d %s", a.Code, a.Body)
	case <-l.failed:
	case <-time.After(answerTimeout):
		l.s.t.Fatal("neither an answer nor its refusal in time")
	}
}

// waiting is a script that makes work/started, waits for work/go, and goes on with then.
func waiting(then string) string {
	return "touch started; until [ -e go ]; do sleep 0.05; done; " + then
}

// awaitStart waits until the project's script has begun; it returns the exec's id.
func (s *testServer) awaitStart(project string) (execID string) {
	s.t.Helper()
	eventually(s.t, project+" has started", func() bool {
		_, err := os.Stat(s.work(project, "started"))
		return err == nil
	})
	rows := s.get("/sandbox/execs?limit=1&project_id=" + project).list("items")
	if len(rows) != 1 {
		s.t.Fatalf("rows of %s: %v", project, rows)
	}
	return rows[0].str("exec_id")
}

// awaitOutput waits until the project's script has started and printed this.
func (s *testServer) awaitOutput(project, stdout string) (execID string) {
	s.t.Helper()
	execID = s.awaitStart(project)
	eventually(s.t, project+" has printed", func() bool {
		return string(s.send(http.MethodGet, "/sandbox/execs/"+execID+"/stdout", nil).Body) == stdout
	})
	return execID
}

// letGo lets the project's script go on.
func (s *testServer) letGo(project string) {
	s.t.Helper()
	if err := os.WriteFile(s.work(project, "go"), nil, 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// work is a path in the project's work/.
func (s *testServer) work(project, name string) string {
	return filepath.Join(s.project(project), "work", name)
}

// wants checks fields of an answer or record by their paths.
func (o object) wants(t testing.TB, fields object) {
	t.Helper()
	var wrong []string
	for path, want := range fields {
		if got := o.at(path); fmt.Sprint(got) != fmt.Sprint(want) {
			wrong = append(wrong, fmt.Sprintf("%s is %v, want %v", path, got, want))
		}
	}
	if wrong != nil {
		t.Errorf("%s\n\tall: %v", strings.Join(wrong, "; "), o)
	}
}

// works runs an exec that must succeed.
func (s *testServer) works(project string) object {
	s.t.Helper()
	result := s.exec(shell(project, "echo works"))
	result.wants(s.t, object{"status": "succeeded", "stdout": "works\n", "audit": "stored"})
	return result
}

// problem waits for a refusal with this status and code.
func (l *later) problem(status int, code string) object {
	l.s.t.Helper()
	a := l.any()
	if a.Code != status {
		l.s.t.Fatalf("got %d %s, want %d %s", a.Code, a.Body, status, code)
	}
	o := a.json(l.s.t)
	o.wants(l.s.t, object{"code": code})
	return o
}

// noContainers waits until the node has none but those that wait for a job: the engine's teardown
// goes on for a moment after an answer.
func (s *testServer) noContainers() {
	s.t.Helper()
	var left []string
	defer func() {
		if s.t.Failed() {
			s.t.Logf("containers: %q; the pool: %v\n%s", left, s.get("/sandbox/pool"),
				s.docker("ps", "-a", "--no-trunc", "--filter", "label=secbox.node="+s.node()))
		}
	}()
	eventually(s.t, "no containers", func() bool {
		left = s.containers()
		return len(left) == s.waiting()
	})
}

// quiet waits until the project's work/alive stops growing: then the job is dead, and not only its
// container removed.
func (s *testServer) quiet(project string) {
	s.t.Helper()
	size := func() int64 {
		info, err := os.Stat(s.work(project, "alive"))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	last, since := int64(-1), time.Now()
	eventually(s.t, "the job is dead", func() bool {
		if now := size(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 500*time.Millisecond // the job writes ten times a second
	})
}
