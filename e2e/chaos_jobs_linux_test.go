//go:build chaos

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// chaosKinds are the kinds of requests.
var chaosKinds = []string{
	"sync", "sync with a key", "async", "async with a key", "stream", "followed", "canceled", "invoke", "async invoke", "webhook",
	"async webhook", "session", "async in a session",
}

// chaosJob is one request, as its client saw it.
type chaosJob struct {
	mark, kind, project string
	pause               time.Duration
	posts               int

	code   int    // of the last answer; 0: no request was answered
	refuse string // code of the problem
	result object // of 200
	execID string // known to the client
	stream string // standard output by events, of "stream" and "followed"
	whole  bool   // the stream had its end event
	told   string // status of that event
	cuts   int    // how often it broke
	gaps   string // what was wrong with the events
}

// chaosLoad posts jobs until it is told to stop.
type chaosLoad struct {
	c       *chaosCluster
	client  *http.Client
	mu      sync.Mutex
	jobs    []*chaosJob
	posted  atomic.Int64
	unknown atomic.Int64 // requests without an answer
}

// work makes one request after another.
func (l *chaosLoad) work(ctx context.Context, worker int) {
	for i := 0; ctx.Err() == nil; i++ {
		j := &chaosJob{
			mark: fmt.Sprintf("w%dn%d", worker, i), kind: chaosKinds[(worker+i)%len(chaosKinds)], project: fmt.Sprintf("chaos%d", rand.IntN(8)),
			pause: time.Duration(rand.IntN(1500)) * time.Millisecond,
		}
		l.mu.Lock()
		l.jobs = append(l.jobs, j)
		l.mu.Unlock()
		l.posted.Add(1)
		l.run(j)
		if j.code != http.StatusOK && j.code != http.StatusAccepted {
			time.Sleep(200 * time.Millisecond)
		}
	}
}

// node is any of them, also one that is broken.
func (l *chaosLoad) node() *chaosNode { return l.c.nodes[rand.IntN(len(l.c.nodes))] }

// printed is what the job writes to its standard output.
func (j *chaosJob) printed() string { return "one " + j.mark + "\nümlaut\ntwo " + j.mark + "\n" }

func (j *chaosJob) script() string {
	return fmt.Sprintf(`echo "start %[1]s" >> /workspace/work/runs; printf 'one %[1]s\nüml'; sleep %.3[2]f; printf 'aut\ntwo %[1]s\n'; `+
		`echo %[1]s > ${SECBOX_ARTIFACTS:-/workspace/artifacts}/mark; echo "done %[1]s" >> /workspace/work/runs`, j.mark, j.pause.Seconds())
}

func (j *chaosJob) is(words string) bool { return strings.Contains(j.kind, words) }

func (l *chaosLoad) run(j *chaosJob) {
	path, body := "/sandbox/execs", shell(j.project, j.script(), "task_ref", object{"task_id": j.mark})
	if j.is("invoke") {
		path, body = "/skills/shell.run/invoke", object{"project_id": j.project, "inputs": object{"script": j.script()}, "task_ref": object{"task_id": j.mark}}
	}
	if j.is("webhook") {
		body["callback_url"] = l.c.hooks.server.URL + "/hook?of=" + j.mark
	}
	if j.is("session") {
		id := l.startSession(j)
		if id == "" {
			return
		}
		if !j.is("async") { // it would end the exec; the session ends for idleness
			defer l.endSession(id)
		}
		body["session_id"] = id
	}
	var header []string
	if j.is("key") {
		header = append(header, "Idempotency-Key", j.mark)
	}
	if j.is("async") || j.kind == "followed" || j.kind == "canceled" {
		header = append(header, "Prefer", "respond-async")
	}
	if j.kind == "stream" {
		body["stream"] = true
		l.streamed(j, path, body)
		return
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(300 * time.Millisecond) {
		j.posts++
		a, err := l.send(45*time.Second, http.MethodPost, l.node().url()+path, body, header...)
		if err != nil {
			l.unknown.Add(1)
			j.code = 0
		} else {
			l.answered(j, a)
		}
		if !j.is("key") || j.code == http.StatusOK || j.code == http.StatusAccepted || time.Now().After(deadline) {
			break
		}
	}
	switch {
	case j.code != http.StatusAccepted:
	case j.kind == "followed":
		l.follow(j)
	case j.kind == "canceled":
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
		_, _ = l.send(10*time.Second, http.MethodPost, l.node().url()+"/sandbox/execs/"+j.execID+"/cancel", nil)
	}
}

// startSession starts a session for a job; it ends soon, whatever becomes of its node. Empty: there
// is none.
func (l *chaosLoad) startSession(j *chaosJob) string {
	a, err := l.send(45*time.Second, http.MethodPost, l.node().url()+"/sandbox/sessions",
		object{"project_id": j.project, "idle_ms": 10_000, "ttl_ms": 60_000})
	if err != nil {
		l.unknown.Add(1)
		return ""
	}
	var o object
	_ = json.Unmarshal(a.Body, &o)
	if a.Code != http.StatusCreated {
		j.code, j.refuse = a.Code, o.str("code")
	}
	return o.str("session_id")
}

func (l *chaosLoad) endSession(id string) {
	_, _ = l.send(10*time.Second, http.MethodDelete, l.node().url()+"/sandbox/sessions/"+id, nil)
}

func (l *chaosLoad) answered(j *chaosJob, a answer) {
	j.code = a.Code
	var o object
	_ = json.Unmarshal(a.Body, &o)
	if a.Code == http.StatusOK || a.Code == http.StatusAccepted {
		j.result, j.execID, j.refuse = o, o.str("exec_id"), ""
		if run, _ := o["exec"].(map[string]any); run != nil { // of an invoke
			j.result, j.execID = run, object(run).str("exec_id")
		}
		return
	}
	j.refuse = o.str("code")
	if j.refuse == "internal" { // its cause is in the log only
		l.c.t.Logf("%d %s", a.Code, a.Body)
		for _, node := range l.c.nodes {
			for line := range strings.Lines(node.log.String()) {
				if strings.Contains(line, "level=ERROR") && strings.Contains(line, strings.TrimPrefix(o.str("instance"), "urn:request:")) {
					l.c.t.Log(line)
				}
			}
		}
	}
	if id := o.str("exec_id"); id != "" {
		j.execID = id
	}
}

func (l *chaosLoad) request(ctx context.Context, method, url string, body any, header ...string) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, content)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return l.client.Do(req)
}

func (l *chaosLoad) send(within time.Duration, method, url string, body any, header ...string) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	resp, err := l.request(ctx, method, url, body, header...)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, content}, err
}

// streamed posts with stream: true, and goes on with the events of the exec where the answer
// breaks.
func (l *chaosLoad) streamed(j *chaosJob, path string, body object) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	j.posts++
	resp, err := l.request(ctx, http.MethodPost, l.node().url()+path, body)
	if err != nil {
		cancel()
		l.unknown.Add(1)
		return
	}
	j.code = resp.StatusCode
	if resp.StatusCode != http.StatusOK {
		content, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		cancel()
		l.answered(j, answer{resp.StatusCode, resp.Header, content})
		return
	}
	last := j.read(resp.Body)
	resp.Body.Close()
	cancel()
	if j.execID != "" && !j.whole {
		j.cuts++
		l.resume(j, last)
	}
}

func (l *chaosLoad) follow(j *chaosJob) { l.resume(j, "") }

// resume follows the exec's events through any node until the last one.
func (l *chaosLoad) resume(j *chaosJob, last string) {
	for deadline := time.Now().Add(3 * time.Minute); !j.whole && time.Now().Before(deadline); time.Sleep(300 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		var header []string
		if last != "" {
			header = []string{"Last-Event-ID", last}
		}
		resp, err := l.request(ctx, http.MethodGet, l.node().url()+"/sandbox/execs/"+j.execID+"/events", nil, header...)
		if err == nil {
			switch resp.StatusCode {
			case http.StatusOK:
				if id := j.read(resp.Body); id != "" {
					last = id
				}
			case http.StatusNoContent:
				j.whole = true
			}
			resp.Body.Close()
		}
		cancel()
		if !j.whole {
			j.cuts++
		}
	}
}

// read reads events until the end or a break; it returns the last id.
func (j *chaosJob) read(from io.Reader) (last string) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	var event, data, id string
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			event = value
		case "data":
			data = value
		case "id":
			id = value
		case "":
			if data != "" {
				j.event(event, data)
			}
			if id != "" {
				last = id
			}
			event, data, id = "", "", ""
			if j.whole {
				return last
			}
		}
	}
	return last
}

func (j *chaosJob) event(name, data string) {
	var o object
	if err := json.Unmarshal([]byte(data), &o); err != nil {
		j.gaps += fmt.Sprintf("%s: %v; ", name, err)
		return
	}
	switch name {
	case "status", "end":
		if id := o.str("exec_id"); j.execID == "" {
			j.execID = id
		} else if id != "" && id != j.execID {
			j.gaps += "another exec " + id + "; "
		}
		if j.whole = name == "end"; j.whole {
			j.told = o.str("status")
		}
	case "stdout":
		piece := o.str("data")
		if o.str("encoding") == "base64" {
			decoded, err := base64.StdEncoding.DecodeString(piece)
			if err != nil {
				j.gaps += err.Error() + "; "
			}
			piece = string(decoded)
		}
		if int(o.num("offset")) != len(j.stream) {
			j.gaps += fmt.Sprintf("offset %v after %d bytes; ", o.num("offset"), len(j.stream))
		}
		j.stream += piece
	}
}
