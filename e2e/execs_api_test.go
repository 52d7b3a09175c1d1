package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/settings"
)

// TestListsPageWithoutGapsOrDoubles: pages follow one another by key, newest first, while new execs
// arrive between them.
func TestListsPageWithoutGapsOrDoubles(t *testing.T) {
	t.Parallel()
	s := tidy(t, noPool)
	rowsByPages(t, s)
}

// rowsByPages is the test for a server on any database. Most rows are refusals, which cost no
// container.
func rowsByPages(t *testing.T, s *testServer) {
	t.Helper()
	arrive := func(project, task string) string {
		return s.refused(403, "policy_denied", shell(project, "true", "task_ref", object{"task_id": task}, "conversation_id", "c",
			"policy_overrides", object{"pids": 1 << 20})).str("exec_id")
	}
	var ids []string
	for i := range 23 {
		ids = append(ids, arrive(fmt.Sprint("p", i%2), fmt.Sprint("t", i%3)))
	}
	ok := s.exec(shell("p0", "true", "task_ref", object{"task_id": "t0"}, "user_id", "u", "conversation_id", "c")).str("exec_id")
	bad := s.exec(shell("p1", "exit 1", "task_ref", object{"task_id": "t1"}, "conversation_id", "c")).str("exec_id")
	ids = append(ids, ok, bad)
	slices.Reverse(ids)

	var seen []string
	pages := 0
	for cursor := ""; ; pages++ {
		page := s.get("/sandbox/execs?limit=4" + cursor)
		items := page.list("items")
		for _, item := range items {
			seen = append(seen, item.str("exec_id"))
		}
		if page.str("next_cursor") == "" {
			if page.at("next_cursor") != nil || len(items) == 0 {
				t.Errorf("the last page: %v", page)
			}
			break
		}
		if len(items) != 4 {
			t.Errorf("a page of %d", len(items))
		}
		cursor = "&cursor=" + page.str("next_cursor")
		arrive("new", "new")
	}
	if !slices.Equal(seen, ids) || pages != 6 {
		t.Errorf("%d pages show\n%q, want\n%q", pages+1, seen, ids)
	}

	created := func(id string) time.Time {
		at, err := time.Parse(time.RFC3339Nano, s.get("/sandbox/execs/"+id).str("created_at"))
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	since, until := created(ids[10]), created(ids[5])
	instant := func(at time.Time) string { return url.QueryEscape(at.Format(time.RFC3339Nano)) }
	elsewhere := time.FixedZone("", 5*3600+1800)
	for query, want := range map[string][]string{
		"status=succeeded": {ok}, "status=failed": {bad}, "status=running": nil, "status=lost": nil, "user_id=u": {ok}, "user_id=U": nil, "skill_id=x": nil,
		"project_id=p0&status=succeeded": {ok}, "project_id=p1&status=succeeded": nil, "task_id=t1&status=failed": {bad}, "project_id=p": nil,
		"project_id=P0":                   nil,
		"conversation_id=c&status=failed": {bad}, "task_id=%25": nil, "task_id=t_": nil,
		"conversation_id=c&since=" + instant(since) + "&until=" + instant(until): ids[6:11],
		"since=" + instant(since.In(elsewhere)) + "&until=" + instant(until):     ids[6:11],
		"until=" + instant(created(ids[len(ids)-1])):                             nil,
		"since=" + instant(until) + "&until=" + instant(until):                   nil,
	} {
		var got []string
		for _, item := range s.records(query) {
			got = append(got, item.str("exec_id"))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s finds %q, want %q", query, got, want)
		}
	}
	if rejected := s.records("status=rejected&task_id=t0"); len(rejected) != 8 {
		t.Errorf("%d rejected of task t0", len(rejected))
	}
	for _, item := range s.get("/sandbox/execs?limit=30").list("items") {
		if item.str("exec_id") == ok && (item.str("status") != "succeeded" || item.at("policy_snapshot.fields.pids.value") == nil) {
			t.Errorf("an item is a whole record: %v", item)
		}
	}
}

// TestBytesInParts reads output and artifacts by range, HEAD and entity tag, during and after the
// exec.
func TestBytesInParts(t *testing.T) {
	t.Parallel()
	s := shared(t)
	running := s.post(shell("bytes-in-parts", "printf 0123456789; printf abcdef > /workspace/artifacts/f; "+waiting("printf tail; printf error >&2")))
	id := s.awaitOutput("bytes-in-parts", "0123456789")
	stdout, file := "/sandbox/execs/"+id+"/stdout", "/sandbox/execs/"+id+"/artifacts/f"
	for _, path := range []string{file, "/sandbox/execs/" + id + "/artifacts", "/sandbox/execs/" + id + "/artifacts?format=zip"} {
		if a := s.send(http.MethodGet, path, nil); a.Code != http.StatusConflict || a.json(t).str("code") != "artifacts_pending" {
			t.Errorf("%s while it runs: %d %s", path, a.Code, a.Body)
		}
	}
	s.get("/sandbox/execs/"+id).wants(t, object{"status": "running", "exit_code": nil, "ended_at": nil, "manifest_digest": ""})
	if a := s.send(http.MethodGet, stdout, nil, "Range", "bytes=4-"); a.Code != http.StatusPartialContent || string(a.Body) != "456789" {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	s.letGo("bytes-in-parts")
	running.result().wants(t, object{"status": "succeeded", "stdout": "0123456789tail", "stderr": "error"})

	etag := s.send(http.MethodHead, file, nil).Header.Get("ETag")
	for _, c := range []struct {
		method, path string
		header       []string
		status       int
		body         string
		length       string
	}{
		{"GET", stdout, nil, 200, "0123456789tail", "14"},
		{"HEAD", stdout, nil, 200, "", "14"},
		{"GET", stdout, []string{"Range", "bytes=0-0"}, 206, "0", "1"},
		{"GET", stdout, []string{"Range", "bytes=10-99"}, 206, "tail", "4"},
		{"GET", stdout, []string{"Range", "bytes=-4"}, 206, "tail", "4"},
		{"HEAD", stdout, []string{"Range", "bytes=-4"}, 206, "", "4"},
		{"GET", stdout, []string{"Range", "bytes=0-1,4-5"}, 200, "0123456789tail", "14"},
		{"GET", "/sandbox/execs/" + id + "/stderr", []string{"Range", "bytes=1-2"}, 206, "rr", "2"},
		{"GET", file, []string{"Range", "bytes=2-3"}, 206, "cd", "2"},
		{"HEAD", file, nil, 200, "", "6"},
		{"GET", file, []string{"If-None-Match", etag}, 304, "", ""},
		{"GET", file, []string{"If-None-Match", `"other"`}, 200, "abcdef", "6"},
		{"GET", file, []string{"If-Match", `"other"`}, 412, "", ""},
		{"GET", file, []string{"Range", "bytes=0-2", "If-Range", `"other"`}, 200, "abcdef", "6"},
	} {
		a := s.send(c.method, c.path, nil, c.header...)
		if a.Code != c.status || string(a.Body) != c.body || c.length != "" && a.Header.Get("Content-Length") != c.length {
			t.Errorf("%s %s %q: %d %q, length %s", c.method, c.path, c.header, a.Code, a.Body, a.Header.Get("Content-Length"))
		}
	}
	for _, path := range []string{stdout, file} {
		a := s.send(http.MethodGet, path, nil, "Range", "bytes=100-")
		if a.Code != http.StatusRequestedRangeNotSatisfiable || a.json(t).str("code") != "range_unsatisfiable" ||
			!strings.HasPrefix(a.Header.Get("Content-Range"), "bytes */") {
			t.Errorf("%s: %d %v %s", path, a.Code, a.Header, a.Body)
		}
	}
	if etag == "" || !strings.Contains(etag, s.get("/sandbox/execs/" + id + "/artifacts").list("items")[0].str("sha256")) {
		t.Errorf("ETag %s", etag)
	}
}

// oneAtATime is a server on which one exec runs and one may wait.
func oneAtATime(t *testing.T) *testServer {
	t.Helper()
	return tidy(t, noPool, func(c *settings.Settings) { c.Sandbox.MaxConcurrentExecs, c.Sandbox.MaxQueuedExecs = 1, 1 })
}

// awaitRow waits until a project's newest exec has a status, and returns its id.
func (s *testServer) awaitRow(project, status string) (execID string) {
	s.t.Helper()
	eventually(s.t, project+" is "+status, func() bool {
		rows := s.get("/sandbox/execs?limit=1&project_id=" + project).list("items")
		if len(rows) == 1 {
			execID = rows[0].str("exec_id")
		}
		return len(rows) == 1 && rows[0].str("status") == status
	})
	return execID
}

func (s *testServer) cancel(execID string) answer {
	s.t.Helper()
	return s.send(http.MethodPost, "/sandbox/execs/"+execID+"/cancel", nil)
}

// TestCancelAndQueue cancels a running and a queued exec and fills the queue.
func TestCancelAndQueue(t *testing.T) {
	t.Parallel()
	s := oneAtATime(t)
	created := s.watchCreations()
	running := s.post(shell("running", "trap '' TERM INT; echo begun; echo kept > /workspace/artifacts/kept; sleep 1000 & touch started; wait; sleep 1000"))
	runningID := s.awaitOutput("running", "begun\n")
	s.get("/sandbox/execs/"+runningID).wants(t, object{"status": "running", "started_at": nil, "ended_at": nil}) // no time is told that the end may take back
	queued := s.post(shell("queued", "echo never"))
	queuedID := s.awaitRow("queued", "queued")
	s.get("/sandbox/execs/"+queuedID).wants(t, object{"status": "queued", "started_at": nil, "ended_at": nil, "exit_code": nil})

	// The queue is full. A refusal by policy needs no place in it.
	a := s.send(http.MethodPost, "/sandbox/execs", shell("full", "true"))
	if a.Code != http.StatusTooManyRequests || a.json(t).str("code") != "queue_full" || a.Header.Get("Retry-After") == "" {
		t.Errorf("%d %v %s", a.Code, a.Header, a.Body)
	}
	s.refused(403, "policy_denied", shell("full", "true", "policy_overrides", object{"pids": 1 << 20}))
	if rows := s.records("project_id=full&status=queued"); len(rows) != 0 {
		t.Errorf("rows %v", rows)
	}
	if _, err := os.Stat(s.project("full")); err == nil {
		t.Error("a request that found no place made a project")
	}

	if a := s.cancel(queuedID); a.Code != http.StatusAccepted || a.json(t).str("exec_id") != queuedID {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	result := queued.result()
	result.wants(t, object{
		"status": "canceled", "error_reason": "canceled", "exit_code": nil, "stdout": "", "started_at": nil, "duration_ms": 0,
		"exec_id": queuedID,
	})
	if list := s.get("/sandbox/execs/" + queuedID + "/artifacts"); len(list.list("items")) != 0 {
		t.Errorf("%v", list)
	}

	// Its place is free again, and is taken in turn when the one that runs ends.
	next := s.post(shell("next", "echo mine"))
	nextID := s.awaitRow("next", "queued")
	if a := s.cancel(runningID); a.Code != http.StatusAccepted || a.json(t).str("status") != "running" {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	result = running.result()
	result.wants(t, object{"status": "canceled", "error_reason": "canceled", "exit_code": 137, "stdout": "begun\n", "exec_id": runningID})
	if list := result.list("artifacts"); len(list) != 1 || list[0].str("path") != "kept" {
		t.Errorf("what it left until then: %v", list)
	}
	next.result().wants(t, object{"status": "succeeded", "stdout": "mine\n", "exec_id": nextID})
	for _, id := range []string{runningID, queuedID, nextID} {
		if a := s.cancel(id); a.Code != http.StatusConflict || a.json(t).str("code") != "exec_ended" {
			t.Errorf("%d %s", a.Code, a.Body)
		}
	}
	last := s.works("next").str("exec_id")
	if before := created.upTo(last); !slices.Equal(before, []string{runningID, nextID}) {
		t.Errorf("containers were created for %q; one was canceled before it began", before)
	}
	s.get("/sandbox/execs/"+runningID).wants(t, object{"status": "canceled", "exit_code": 137})
}

// TestClientHangsUp checks that an exec goes on when its client disconnects, running or queued.
func TestClientHangsUp(t *testing.T) {
	t.Parallel()
	s := oneAtATime(t)
	post := func(ctx context.Context, request object) <-chan error {
		body, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/sandbox/execs", bytes.NewReader(body))
			if err == nil {
				req.Header.Set("Content-Type", "application/json")
				_, err = new(http.Client).Do(req) //nolint:bodyclose // there is no answer
			}
			done <- err
		}()
		return done
	}
	ctx, hangUp := context.WithCancel(t.Context())
	running := post(ctx, shell("running", waiting("echo done; echo kept > /workspace/artifacts/kept")))
	s.awaitStart("running")
	queued := post(ctx, shell("queued", "echo done"))
	queuedID := s.awaitRow("queued", "queued")
	hangUp()
	if err := <-running; err == nil {
		t.Error("there was an answer")
	}
	if err := <-queued; err == nil {
		t.Error("there was an answer")
	}
	s.get("/sandbox/execs/"+queuedID).wants(t, object{"status": "queued"})
	s.letGo("running")
	id := s.awaitRow("running", "succeeded")
	if a := s.artifact(id, "kept"); string(a.Body) != "kept\n" {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	s.awaitRow("queued", "succeeded")
	if a := s.send(http.MethodGet, "/sandbox/execs/"+queuedID+"/stdout", nil); string(a.Body) != "done\n" {
		t.Errorf("%d %s", a.Code, a.Body)
	}
}

// TestProjectsThatDifferByCase: two spellings at once never both become projects.
func TestProjectsThatDifferByCase(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for i := range 3 {
		var all sync.WaitGroup
		codes := make([]int, 2)
		for j, format := range []string{"Twin%d", "tWIN%d"} {
			all.Go(func() {
				codes[j] = s.send(http.MethodPost, "/sandbox/execs", shell(fmt.Sprintf(format, i), "true")).Code
			})
		}
		all.Wait()
		if codes[0] == 200 && codes[1] == 200 {
			t.Error("both became projects")
		}
		for _, code := range codes {
			if code != 200 && code != http.StatusConflict {
				t.Errorf("%d", code)
			}
		}
	}
	entries, err := os.ReadDir(filepath.Join(s.dir, "workspace/projects"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, e := range entries {
		if seen[strings.ToLower(e.Name())] {
			t.Errorf("%s is there twice", e.Name())
		}
		seen[strings.ToLower(e.Name())] = true
	}
}

// TestPolicyNarrows checks that fs permissions remove mounts, and that resolve predicts it.
func TestPolicyNarrows(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for name, c := range map[string]struct {
		policy object
		stdout string
	}{
		"nothing may be written": {object{"fs.write": []string{}}, "artifacts: no\ninputs: no\nwork: no\n"},
		"only artifacts":         {object{"fs": object{"read": []string{}, "write": []string{"artifacts/**"}}}, "artifacts: yes\n"},
		"only work, nested":      {object{"fs": object{"read": []string{"work/**"}, "write": []string{"work/**"}}}, "work: yes\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := s.under(t)
			resolved := s.send(http.MethodPost, "/sandbox/policy/resolve", object{"project_id": "policy-narrows", "policy_overrides": c.policy})
			if resolved.Code != http.StatusOK || resolved.json(t).at("fields") == nil {
				t.Errorf("%d %s", resolved.Code, resolved.Body)
			}
			result := s.exec(shell("policy-narrows", `cd /; for d in artifacts inputs work; do grep -q " /workspace/$d " /proc/mounts || continue
				(touch /workspace/$d/x) 2>/dev/null && echo $d: yes || echo $d: no; done`, "policy_overrides", c.policy))
			result.wants(t, object{"status": "succeeded", "stdout": c.stdout})
			if record := s.get("/sandbox/execs/" +
				result.str("exec_id")); fmt.Sprint(record.at("policy_snapshot.fields")) != fmt.Sprint(resolved.json(t).at("fields")) {
				t.Errorf("resolve said %v, the row says %v", resolved.json(t).at("fields"), record.at("policy_snapshot.fields"))
			}
		})
	}
}
