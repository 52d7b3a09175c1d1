package api_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/retention"
	"secbox/fault"
	"secbox/runner"
)

// TestExecEvents: a client gets the state, each piece of output and the end of an exec; one that
// comes again goes on where it was.
func TestExecEvents(t *testing.T) {
	t.Parallel()
	f := startLive(t, 2)
	_, secret := f.token(tokens.Spec{Role: tokens.Worker})
	_, foreign := f.token(tokens.Spec{Role: tokens.Worker})
	id, ended := f.begin(secret, "listen; exit 3", "")
	path := "/sandbox/execs/" + id + "/events"
	first := f.follow(id, secret, "")
	if first.next() != "status" || first.last.ExecID != id || first.last.Status != audit.Running || first.last.ProjectID != "demo" ||
		first.last.EndedAt != nil || first.RetryMS == 0 {
		t.Errorf("it begins with %+v", first.last)
	}
	f.print("one\n")
	first.until(4, 0)
	f.prints <- printed{stdout: "two\n", stderr: "bad"}
	first.until(8, 3)
	second := f.follow(id, secret, "4-3")
	second.until(8, 3)
	if second.got[0] != "????two\n" || second.got[1] != "???" {
		t.Errorf("one that comes again got %q", second.got)
	}
	f.do(request{path: path, token: foreign}).wants(t, fault.UnknownExec)
	f.prints <- printed{}
	for _, e := range []*events{first, second} {
		if end := e.end(); end.Status != audit.Failed || *end.ExitCode != 3 || end.StdoutBytes != 8 || end.StderrBytes != 3 || end.StdoutTruncated ||
			end.EndedAt == nil || end.Problem != nil {
			t.Errorf("it ends with %+v", end)
		}
	}
	if first.LastID != "8-3-end" || first.got != [2]string{"one\ntwo\n", "bad"} {
		t.Errorf("%q with %q", first.LastID, first.got)
	}
	<-ended
	for _, from := range []string{"", "0-0", "3-1", "8-3", "9-9", "9223372036854775807-0"} {
		header := map[string]string{"Last-Event-ID": from}
		if from == "9-9" || len(from) > 9 { // of another exec, or forged: there is nothing after it
			if r := f.do(request{path: path, token: secret, header: header}); r.StatusCode != 200 || !strings.Contains(string(r.body), "event: end\n") ||
				strings.Contains(string(r.body), "event: stdout") {
				t.Errorf("from %s: %d %s", from, r.StatusCode, r.body)
			}
			continue
		}
		late := f.follow(id, secret, from)
		if end := late.end(); end.Status != audit.Failed || !strings.HasSuffix("one\ntwo\n", strings.Trim(late.got[0], "?")) || len(late.got[0]) != 8 ||
			len(late.got[1]) != 3 {
			t.Errorf("after the end from %q: %q", from, late.got)
		}
	}
	if r := f.do(request{path: path, token: secret, header: map[string]string{"Last-Event-ID": first.LastID}}); r.StatusCode != 204 || len(r.body) > 0 {
		t.Errorf("with the id of the end: %d %s", r.StatusCode, r.body)
	}
	if r := f.do(request{method: "HEAD", path: path, token: secret}); r.StatusCode != 200 || r.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD: %d %v", r.StatusCode, r.Header)
	}
	f.do(request{path: "/sandbox/execs/" + strings.Repeat("0", 36) + "/events", token: secret}).wants(t, fault.UnknownExec)
	f.do(request{path: path, token: foreign}).wants(t, fault.UnknownExec)
	for _, bad := range []string{
		"x", "1", "1-2-3", "-1-0", "1-", "01-0", "+1-0", "1-0-END", "1-0-end-end", "18446744073709551616-0",
		strings.Repeat("9", 60000),
	} {
		f.do(request{path: path, token: secret, header: map[string]string{"Last-Event-ID": bad}}).wants(t, fault.InvalidRequest, "Last-Event-ID")
	}
}

// TestEventsOfAnyOutput: bytes that are no text, characters that come in two writes, more than
// pages show, and more than is kept.
func TestEventsOfAnyOutput(t *testing.T) {
	t.Parallel()
	f := startLive(t, 2)
	id, ended := f.begin("", "listen", `, "policy_overrides": {"max_stdout_bytes": 3000000}`)
	e := f.follow(id, "", "")
	e.next()
	want := ""
	for _, text := range []string{"a\xe2", "\x82\xac", "\n\r\n: data\x00\u2028", "\xff\xfe\xff", "\xf0\x9f"} {
		f.print(text)
		want += text
		if text != "a\xe2" && text != "\xf0\x9f" { // which wait for the rest of the character
			e.until(len(want), 0)
		}
	}
	e.until(len(want)-2, 0)
	long := strings.Repeat("日本語 0123456789\n", 1000)
	for range 200 {
		f.print(long)
		want += long
	}
	f.prints <- printed{}
	end := e.end()
	want = want[:2999998] // the limit is within a character
	if e.got[0] != want || !end.StdoutTruncated || end.StdoutBytes <= 3000000 || e.LastID != "2999998-0-end" {
		t.Errorf("%d bytes, %+v, %s", len(e.got[0]), end, e.LastID)
	}
	<-ended
	for _, from := range []int{1, 7, 100_000, 2_999_997} {
		late := f.follow(id, "", fmt.Sprintf("%d-0", from))
		if late.end(); late.got[0][from:] != want[from:] {
			t.Errorf("from %d on something else came", from)
		}
	}
}

// TestEventsOfQueuedExecs: a client of an exec that waits gets its beginning at once.
func TestEventsOfQueuedExecs(t *testing.T) {
	t.Parallel()
	f := startLive(t, 1)
	_, first := f.begin("", "listen", "")
	id, second := f.begin("", "listen", "")
	e := f.follow(id, "", "")
	if e.next(); e.last.Status != audit.Queued || e.last.StartedAt != nil {
		t.Errorf("it begins with %+v", e.last)
	}
	f.prints <- printed{}
	<-first
	if name := e.next(); name != "status" || e.last.Status != audit.Running {
		t.Errorf("%s: %+v", name, e.last)
	}
	f.print("x")
	e.until(1, 0)
	f.prints <- printed{}
	e.end()
	<-second
}

// TestEventsOfExecsElsewhere: a client of an exec that this node does not run gets its states from
// its row, whether another node runs the exec or has lost it.
func TestEventsOfExecsElsewhere(t *testing.T) {
	t.Parallel()
	f := start(t)
	rec := f.record(func(r *audit.Record) { r.Status, r.NodeID = audit.Running, "elsewhere" })
	e := f.follow(rec.ExecID, "", "")
	e.next()
	if lost, err := f.db.Audit().LoseOpen(t.Context(), "elsewhere", nil); err != nil || len(lost) != 1 {
		t.Fatal(lost, err)
	}
	if end := e.end(); end.Status != audit.Lost || end.ErrorReason != audit.NodeLost || e.LastID != "0-0-end" {
		t.Errorf("%+v", end)
	}
}

// TestSlowClientsAreCutOff: a client that does not read keeps the job from nothing, is cut off, and
// gets all with its last id.
func TestSlowClientsAreCutOff(t *testing.T) {
	t.Parallel()
	f := startLive(t, 1, func(cfg *api.Config) { cfg.Bounds.Rest = time.Millisecond })
	id, ended := f.begin("", "listen", `, "policy_overrides": {"max_stdout_bytes": 16000000}`)
	lazy := *f.fixture
	lazy.client = &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			if err == nil {
				err = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
			}
			return conn, err
		},
	}}
	slow := lazy.follow(id, "", "")
	slow.next()
	text := strings.Repeat("0123456789abcde\n", 1<<15)
	for range 16 { // more than the buffers of a connection
		f.print(text)
	}
	f.prints <- printed{}
	<-ended
	for !strings.Contains(f.log.String(), "cut_off=true") {
		runtime.Gosched()
	}
	whole := strings.Repeat(text, 16)
	for e, name := f.follow(id, "", slow.LastID), ""; name != "end"; { // this client may be cut off, too
		if name = e.next(); name == "cut off" {
			read := e.got
			e = f.follow(id, "", e.LastID)
			e.got = read
		}
		if name == "end" && (e.got[0] != whole || e.last.StdoutBytes != int64(len(whole))) {
			t.Errorf("one that comes again got %d bytes of %d", len(e.got[0]), e.last.StdoutBytes)
		}
	}
}

// TestEventsEndWithTheToken: a stream ends when its token is revoked, and the client learns why
// when it comes again.
func TestEventsEndWithTheToken(t *testing.T) {
	t.Parallel()
	f := startLive(t, 1, func(cfg *api.Config) { cfg.TokenInterval = time.Nanosecond })
	_, worker := f.token(tokens.Spec{Role: tokens.Worker, Name: "worker"})
	auditor, secret := f.token(tokens.Spec{Role: tokens.Auditor, Name: "auditor"})
	id, ended := f.begin(worker, "listen", "")
	own, others := f.follow(id, worker, ""), []*events{f.follow(id, secret, ""), f.follow(id, secret, "")}
	f.print("text")
	for _, e := range append(others, own) {
		e.until(4, 0)
	}
	if _, err := f.tokens.Revoke(t.Context(), auditor); err != nil {
		t.Fatal(err)
	}
	f.print("secret")
	for _, e := range others {
		if event, err := e.Next(); err == nil {
			t.Errorf("after the revocation: %+v", event)
		}
	}
	f.do(request{path: "/sandbox/execs/" + id + "/events", token: secret}).wants(t, fault.TokenRevoked)
	own.until(10, 0)
	f.prints <- printed{}
	own.end()
	<-ended
	downloads, err := f.db.AdminEvents().List(t.Context(), admin.Filter{Kind: admin.Download}, nil, 10)
	if err != nil || len(downloads) != 1 || downloads[0].Actor.Name != "auditor" || downloads[0].Subject != id {
		t.Errorf("on record are %+v, %v", downloads, err)
	}
}

// TestStreamsAreBounded: a token has its share of them, and the end of one makes room.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	f := startLive(t, 1, func(cfg *api.Config) { cfg.Bounds.Streams, cfg.Bounds.StreamsPerToken = 3, 2 })
	_, worker := f.token(tokens.Spec{Role: tokens.Worker})
	_, auditor := f.token(tokens.Spec{Role: tokens.Auditor})
	id, ended := f.begin(worker, "listen", "")
	path := "/sandbox/execs/" + id + "/events"
	first, second := f.follow(id, worker, ""), f.follow(id, worker, "")
	if p := f.do(request{path: path, token: worker}).wants(t, fault.ServerBusy); !strings.Contains(p.Detail, "2 streams of events and waits") {
		t.Errorf("a third one of a token: %s", p.Detail)
	}
	third := f.follow(id, auditor, "")
	if r := f.do(request{path: path, token: auditor}); r.wants(t, fault.ServerBusy).Detail == "" || r.Header.Get("Retry-After") == "" {
		t.Errorf("a fourth one: %v", r.Header)
	}
	f.prints <- printed{}
	for _, e := range []*events{first, second, third} {
		e.end()
	}
	<-ended
	f.follow(id, auditor, "").end()
}

// TestServerEndsStreams: when the server shuts down, a stream ends between two events, not as if
// the exec had ended.
func TestServerEndsStreams(t *testing.T) {
	t.Parallel()
	f := startLive(t, 1)
	id, ended := f.begin("", "listen", "")
	e := f.follow(id, "", "")
	f.print("x")
	e.until(1, 0)
	f.server.Close()
	if name := e.next(); name != "" || e.LastID != "1-0" || e.RetryMS == 0 {
		t.Errorf("%q, %+v", name, e.Reader)
	}
	f.prints <- printed{}
	<-ended
}

// TestEventsOfRemovedOutput: an exec whose output was removed or altered ends with the reason; a
// removed exec has none.
func TestEventsOfRemovedOutput(t *testing.T) {
	t.Parallel()
	f := startLive(t, 1)
	id, ended := f.begin("", "listen", "")
	f.print("text")
	f.prints <- printed{}
	<-ended
	f.logEvents()
	rec, err := f.history.Get(t.Context(), id)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(f.execRoot, rec.ArtifactsPath, "stdout.txt"), []byte("TEXT"), 0o600))
	if end := f.follow(id, "", "").end(); end.Problem == nil || end.Problem.Code != fault.ArtifactAltered || end.Status != audit.Succeeded {
		t.Errorf("altered: %+v", end)
	}
	f.removePart(retention.Artifacts, id)
	if end := f.follow(id, "", "").end(); end.Problem == nil || end.Problem.Code != fault.RemovedByRetention {
		t.Errorf("removed: %+v", end)
	}
	f.removePart(retention.Records, id)
	f.get("/sandbox/execs/"+id+"/events").wants(t, fault.RemovedByRetention)
}

// TestStreamedRuns: the answer to stream: true is the events of the exec, whose end has what only
// this request gets; refusals are as without it.
func TestStreamedRuns(t *testing.T) {
	t.Parallel()
	f := startLive(t, 1)
	_, secret := f.token(tokens.Spec{Role: tokens.Worker})
	run := func(script, key, more string) *events {
		header := map[string]string{}
		if key != "" {
			header["Idempotency-Key"] = key
		}
		return f.open(request{
			method: "POST", path: "/sandbox/execs", token: secret, header: header,
			body: `{"project_id": "demo", "stream": true, "exec": {"script": "` + script + `"}` + more + `}`,
		})
	}
	e := run("listen; echo x > ../artifacts/a.txt", "k", "")
	if name := e.next(); name != "status" || e.last.Status != audit.Running || e.last.ExecID == "" {
		t.Fatalf("it begins with %s %+v", name, e.last)
	}
	id := e.last.ExecID
	f.print("one")
	e.until(3, 0)
	waits := run("echo -n later", "", "")
	if waits.next(); waits.last.Status != audit.Queued {
		t.Errorf("one that waits begins with %+v", waits.last)
	}
	again := run("listen; echo x > ../artifacts/a.txt", "k", "") // follows the exec while it runs
	again.until(3, 0)
	f.print("two")
	again.until(6, 0)
	f.prints <- printed{}
	for name, e := range map[string]*events{"the first": e, "the repeated one": again} {
		end := e.end()
		if end.ExecID != id || end.Status != audit.Succeeded || e.got[0] != "onetwo" || end.Problem != nil || end.Artifacts == nil ||
			len(*end.Artifacts) != 1 || (*end.Artifacts)[0].Path != "a.txt" {
			t.Errorf("%s: %q, %+v", name, e.got, end)
		}
	}
	if end := waits.end(); end.Status != audit.Succeeded || waits.got[0] != "later" {
		t.Errorf("the one that waited: %q, %+v", waits.got, end)
	}
	if stored := run("listen; echo x > ../artifacts/a.txt", "k", ""); stored.end().ExecID != id || stored.got[0] != "onetwo" {
		t.Errorf("the stored result: %+v", stored)
	}
	same := f.do(request{
		method: "POST", path: "/sandbox/execs", token: secret, header: map[string]string{"Idempotency-Key": "k"},
		body: `{"project_id": "demo", "exec": {"script": "listen; echo x > ../artifacts/a.txt"}}`,
	})
	if r := decodeAs[wire.ExecResult](t, same, 200); r.ExecID != id || r.Stdout != "onetwo" || same.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("without stream: %s", same.body)
	}
	if late := f.follow(id, secret, "3-0"); late.end().Artifacts != nil || late.got[0] != "???two" {
		t.Errorf("one that goes on got %q", late.got)
	}

	refused := func(body string, header map[string]string) reply {
		return f.do(request{method: "POST", path: "/sandbox/execs", token: secret, header: header, body: body})
	}
	refused(`{"stream": true, "exec": {"script": "true"}}`, nil).wants(t, fault.InvalidRequest, "project_id")
	refused(`{"project_id": "p", "stream": true, "exec": {"script": "true"}, "policy_overrides": {"memory_mb": 1000000}}`, nil).wants(t, fault.PolicyDenied,
		"memory_mb")
	refused(`{"project_id": "p", "stream": true, "exec": {"script": "true"}}`, map[string]string{"Idempotency-Key": "k"}).wants(t, fault.IdempotencyMismatch)
	refused(`{"project_id": "p", "stream": 1, "exec": {"script": "true"}}`, nil).wants(t, fault.InvalidRequest, "stream")
	refused(`{"project_id": "p", "stream": true, "exec": {"script": "true"}}`, map[string]string{"Prefer": "respond-async"}).wants(t, fault.InvalidRequest,
		"stream")
	must(t, os.MkdirAll(filepath.Join(f.execRoot, "projects/p/inputs/dir"), 0o755))
	refused(`{"project_id": "p", "stream": true, "exec": {"script": "true"}, "inputs": [{"path": "dir", "content": ""}]}`, nil).wants(t, fault.InputConflict,
		"inputs[0].path")
	f.do(request{method: "POST", path: "/skills/no.such/invoke", token: secret, body: `{"project_id": "p", "stream": true}`}).wants(t, fault.UnknownSkill,
		"skill_id")
	f.do(request{
		method: "POST", path: "/skills/no.such/invoke", token: secret, header: map[string]string{"Prefer": "respond-async"},
		body: `{"project_id": "p", "stream": true}`,
	}).wants(t, fault.InvalidRequest, "stream")
}

// TestStreamedRunOutlivesItsClient: an exec goes on when the client of its stream has gone.
func TestStreamedRunOutlivesItsClient(t *testing.T) {
	t.Parallel()
	f := startLive(t, 1)
	e := f.open(request{method: "POST", path: "/sandbox/execs", body: `{"project_id": "demo", "stream": true, "exec": {"script": "listen; echo -n after"}}`})
	e.next()
	id := e.last.ExecID
	must(t, e.body.Close())
	other := f.follow(id, "", "")
	f.print("before ")
	f.prints <- printed{}
	if end := other.end(); end.Status != audit.Succeeded || other.got[0] != "before after" {
		t.Errorf("%q, %+v", other.got, end)
	}
}

// TestStreamedRunThatFails: an exec that is refused after it has waited ends with its state; so
// does one whose end cannot be recorded, with the problem.
func TestStreamedRunThatFails(t *testing.T) {
	t.Parallel()
	f := startLive(t, 1)
	_, first := f.begin("", "listen", "")
	must(t, os.MkdirAll(filepath.Join(f.execRoot, "projects/p/inputs/dir"), 0o755))
	e := f.open(request{
		method: "POST", path: "/sandbox/execs",
		body: `{"project_id": "p", "stream": true, "exec": {"script": "true"}, "inputs": [{"path": "dir", "content": ""}]}`,
	})
	if e.next(); e.last.Status != audit.Queued {
		t.Errorf("it begins with %+v", e.last)
	}
	f.prints <- printed{}
	<-first
	if end := e.end(); end.Status != audit.Rejected || end.ErrorReason != audit.InputRefused || end.Problem != nil || end.Detail == "" {
		t.Errorf("it ends with %+v", end)
	}

	lost := start(t)
	lost.runner.run = func(ctx context.Context, req runner.Request) (runner.Result, error) {
		rec := newRecord(req)
		rec.Status = audit.Queued
		if _, err := lost.db.Audit().Open(ctx, rec); err != nil {
			return runner.Result{}, err
		}
		req.OnOpen(rec.ExecID)
		return runner.Result{}, fault.New(fault.DiskFull, "the disk is full")
	}
	e = lost.open(request{method: "POST", path: "/sandbox/execs", body: `{"project_id": "p", "stream": true, "exec": {"script": "true"}}`})
	if end := e.end(); end.Status != audit.Queued || end.Problem == nil || end.Problem.Code != fault.DiskFull {
		t.Errorf("an exec without an end: %+v", end)
	}
	lost.runner.run = func(context.Context, runner.Request) (runner.Result, error) { panic("a defect") }
	lost.post("/sandbox/execs", `{"project_id": "p", "stream": true, "exec": {"script": "true"}}`).wants(t, fault.Internal)
}

// TestStreamedRunOfReplacedSkill: when an invoke is tried again as another exec, because the skill
// was replaced while it waited, the stream goes on with that one.
func TestStreamedRunOfReplacedSkill(t *testing.T) {
	t.Parallel()
	f := start(t)
	putSkill(t, f.dir, "trial.one", "")
	f.skills.Reload()
	f.runner.skillOutput = `{"n": 7}`
	waits, tries := make(chan struct{}), 0
	f.runner.run = func(ctx context.Context, req runner.Request) (runner.Result, error) {
		if tries++; tries > 1 {
			res, err := f.runner.succeed(ctx, req)
			req.OnOpen(res.Record.ExecID)
			return res, err
		}
		rec := newRecord(req)
		rec.Status = audit.Queued
		_, err := f.db.Audit().Open(ctx, rec)
		must(t, err)
		req.OnOpen(rec.ExecID)
		<-waits
		must(t, os.WriteFile(filepath.Join(f.dir, "trial.one", "run.sh"), []byte("false\n"), 0o600))
		rec.Status, rec.ErrorReason, rec.EndedAt = audit.Errored, audit.StartFailed, time.Now()
		_, err = f.db.Audit().Close(ctx, rec)
		must(t, err)
		return runner.Result{}, fault.New(fault.SkillChanged, "replaced")
	}
	e := f.open(request{method: "POST", path: "/skills/trial.one/invoke", body: `{"project_id": "p", "stream": true}`})
	e.next()
	first := e.last
	close(waits)
	e.next()
	second := e.last
	if end := e.end(); first.Status != audit.Queued || second.ExecID == first.ExecID || end.ExecID != second.ExecID || end.Status != audit.Succeeded ||
		end.Outputs == nil || string(*end.Outputs) != `{"n":7}` {
		t.Errorf("%+v, then %+v, ends with %+v", first, second, end)
	}
}
