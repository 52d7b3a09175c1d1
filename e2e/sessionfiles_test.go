package e2e

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"secbox/api/sse/ssetest"
)

// files sends a request about a file of the session.
func (s session) files(method, route, path string, body []byte, header ...string) answer {
	s.t.Helper()
	a, err := s.request(s.t.Context(), method, "/sandbox/sessions/"+s.id+"/files"+route+"?path="+url.QueryEscape(path), bytes.NewReader(body), header...)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

// request sends a body as it is.
func (s *testServer) request(ctx context.Context, method, path string, body io.Reader, header ...string) (a answer, err error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, body)
	if err != nil {
		return a, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	a.Code, a.Header = resp.StatusCode, resp.Header
	a.Body, err = io.ReadAll(resp.Body)
	return a, err
}

// TestSessionFiles reads and changes files in a container, also those that no mount has, beside
// hostile execs.
func TestSessionFiles(t *testing.T) {
	t.Parallel()
	s := shared(t).startSession("session-files", "policy_overrides", object{"tmp_mb": 64, "memory_mb": 512})
	wants := func(a answer, code int, part string) {
		t.Helper()
		if a.Code != code || !strings.Contains(string(a.Body), part) {
			t.Errorf("%d %.300s, want %d with %q", a.Code, a.Body, code, part)
		}
	}
	// A file of the job's user in /tmp, which only the container has.
	wants(s.files("PUT", "/content", "/tmp/d/made", []byte("by the client")), 200, `"size":13`)
	s.says("cat /tmp/d/made; stat -c '%U %a' /tmp/d/made; whoami", "by the client"+"sandbox 644\nsandbox\n")
	s.says("echo -n by the job > /tmp/d/made; printf 1 > $'/tmp/d/a\\nb\\xff'; ln -s /tmp/d/made /tmp/link; echo hi > /workspace/work/shared", "")
	wants(s.files("GET", "/content", "/tmp/link", nil), 200, "by the job")
	wants(s.files("GET", "/content", "/tmp/link", nil, "Range", "bytes=3-5"), 206, "the")
	wants(s.files("GET", "", "/tmp/d", nil), 200, `"name":"a\nb%FF","type":"file","size":1`)
	wants(s.files("GET", "/content", "/tmp/d/a\nb%FF", nil), 200, "1")
	wants(s.files("GET", "/content", "/workspace/work/shared", nil), 200, "hi")
	wants(s.files("DELETE", "", "/tmp/d/a\nb%FF", nil), 204, "")
	wants(s.files("PUT", "/directory", "/tmp/e/f", nil), 204, "")

	// What the user may not reach or change.
	wants(s.files("GET", "/content", "/etc/shadow", nil), 400, "path_refused")
	wants(s.files("PUT", "/content", "/etc/x", []byte("x")), 400, "path_refused")
	wants(s.files("PUT", "/content", "/workspace/inputs/x", []byte("x")), 400, "path_refused")
	wants(s.files("GET", "/content", "/proc/1/environ", nil), 400, "path_refused")

	// A directory that stays in part: the record does not say that nothing was done.
	s.says("mkdir -p /tmp/part/stays; touch /tmp/part/a /tmp/part/stays/b; chmod 555 /tmp/part/stays", "")
	wants(s.send("DELETE", "/sandbox/sessions/"+s.id+"/files?path=/tmp/part&recursive=true", nil), 502, "could not be removed whole")
	s.says("find /tmp/part -type f; chmod 755 /tmp/part/stays", "/tmp/part/stays/b\n")
	changes := s.get("/sandbox/execs?session_id=" + s.id + "&kind=change&limit=1").list("items")
	changes[0].wants(t, object{"status": "lost", "error_reason": "outcome_unknown"})

	// Hostile files.
	s.says("mkfifo /tmp/fifo; ln -s loop /tmp/loop; ln -s /dev/zero /tmp/zero; truncate -s 600M /workspace/work/huge", "")
	for _, name := range []string{"/tmp/fifo", "/tmp/zero", "/dev/tty", "/tmp", "/tmp/loop"} {
		wants(s.files("GET", "/content", name, nil), 400, "invalid_request")
		wants(s.files("PUT", "/content", name, []byte("x")), 400, "")
	}
	wants(s.files("GET", "/content", "/workspace/work/huge", nil), 413, "file_too_large")
	wants(s.files("GET", "/content", "/proc/self/status", nil), 200, "secbox-"[:0])
	s.says("rm /workspace/work/huge", "")

	// A directory without room: the file keeps its content, and nothing is left.
	wants(s.files("PUT", "/content", "/tmp/d/made", bytes.Repeat([]byte("x"), 80<<20)), 507, "disk_full")
	s.says("cat /tmp/d/made; ls -A /tmp/d; df --output=pcent /tmp | tail -1 | tr -d ' '", "by the jobmade\n1%\n")

	// A client that goes away leaves the file as it was.
	ctx, hangUp := context.WithCancel(t.Context())
	begun := &signalling{begun: make(chan struct{}), ctx: ctx}
	var sending sync.WaitGroup
	sending.Go(func() {
		_, _ = s.request(ctx, "PUT", "/sandbox/sessions/"+s.id+"/files/content?path=/tmp/d/made", begun)
	})
	<-begun.begun
	hangUp()
	sending.Wait()
	eventually(t, "the change is on record as canceled", func() bool {
		return strings.Contains(string(s.send(http.MethodGet, "/sandbox/execs?session_id="+s.id+"&kind=change&status=canceled", nil).Body), "/tmp/d/made")
	})
	s.says("cat /tmp/d/made; ls -A /tmp/d", "by the jobmade\n")

	// What an exec changes is told.
	stream, err := s.client.Get(s.url + "/sandbox/sessions/" + s.id + "/files/watch?path=/tmp/d")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	told := ssetest.NewReader(stream.Body)
	if e, err := told.Next(); err != nil || e.Name != "watching" {
		t.Fatal(e, err)
	}
	s.says("touch /tmp/d/told", "")
	if e, err := told.Next(); err != nil || e.Name != "created" || !strings.Contains(e.Data, "/tmp/d/told") {
		t.Error(e, err)
	}

	// A session does so many operations at once.
	for range 7 {
		more, err := s.client.Get(s.url + "/sandbox/sessions/" + s.id + "/files/watch?path=/tmp/d")
		if err != nil {
			t.Fatal(err)
		}
		defer more.Body.Close()
	}
	wants(s.files("GET", "", "/tmp", nil), 429, "session_limit")
	s.client.CloseIdleConnections()
	stream.Body.Close()
	eventually(t, "the watch has ended with its client", func() bool { return s.files("GET", "", "/tmp", nil).Code == 200 })

	// Execs that kill whatever comes.
	killer := s.try(object{"script": "while :; do pkill -9 -f '^/opt/secbox/sandbox-init files'; done"}, "background", true)
	if killer.Code != http.StatusAccepted {
		t.Fatalf("%d %s", killer.Code, killer.Body)
	}
	for range 5 {
		if a := s.files("GET", "/content", "/tmp/d/made", nil); a.Code != 200 && a.Code != 502 {
			t.Errorf("%d %s", a.Code, a.Body)
		}
	}
	s.end()
	wants(s.files("GET", "", "/tmp", nil), 409, "session_ended")
}

// signalling is a body that has a first piece, and then waits for the end of ctx.
type signalling struct {
	once  sync.Once
	begun chan struct{}
	ctx   context.Context
}

func (s *signalling) Read(p []byte) (n int, err error) {
	s.once.Do(func() { n = copy(p, bytes.Repeat([]byte("x"), 1<<10)) })
	if n > 0 {
		return n, nil
	}
	close(s.begun)
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}
