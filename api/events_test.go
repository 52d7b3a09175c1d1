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

	"secbox/admin"
	"secbox/api"
	"secbox/audit"
	"secbox/fault"
	"secbox/retention"
	"secbox/tokens"
)

// TestExecEvents: a client gets the state, each piece of output and the end of an exec; one that comes again goes on where it was.
func TestExecEvents(t *testing.T) {
	t.Parallel()
	f := startLive(t, 2)
	_, secret := f.token(tokens.Spec{Role: tokens.Worker})
	_, foreign := f.token(tokens.Spec{Role: tokens.Worker})
	id, ended := f.begin(secret, "listen; exit 3", "")
	path := "/sandbox/execs/" + id + "/events"
	first := f.follow(id, secret, "")
	if first.next() != "status" || first.last.ExecID != id || first.last.Status != audit.Running || first.last.ProjectID != "demo" || first.last.EndedAt != nil || first.RetryMS == 0 {
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
		if end := e.end(); end.Status != audit.Failed || *end.ExitCode != 3 || end.StdoutBytes != 8 || end.StderrBytes != 3 || end.StdoutTruncated || end.EndedAt == nil || end.Problem != nil {
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
			if r := f.do(request{path: path, token: secret, header: header}); r.StatusCode != 200 || !strings.Contains(string(r.body), "event: end\n") || strings.Contains(string(r.body), "event: stdout") {
				t.Errorf("from %s: %d %s", from, r.StatusCode, r.body)
			}
			continue
		}
		late := f.follow(id, secret, from)
		if end := late.end(); end.Status != audit.Failed || !strings.HasSuffix("one\ntwo\n", strings.Trim(late.got[0], "?")) || len(late.got[0]) != 8 || len(late.got[1]) != 3 {
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
	for _, bad := range []string{"x", "1", "1-2-3", "-1-0", "1-", "01-0", "+1-0", "1-0-END", "1-0-end-end", "18446744073709551616-0", strings.Repeat("9", 60000)} {
		f.do(request{path: path, token: secret, header: map[string]string{"Last-Event-ID": bad}}).wants(t, fault.InvalidRequest, "Last-Event-ID")
	}
}

// TestEventsOfAnyOutput: bytes that are no text, characters that come in two writes, more than pages show, and more than is kept.
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
	if want := want[:3000000]; e.got[0] != want || !end.StdoutTruncated || end.StdoutBytes <= 3000000 || e.LastID != "3000000-0-end" {
		t.Errorf("%d bytes, %+v, %s", len(e.got[0]), end, e.LastID)
	}
	<-ended
	for _, from := range []int{1, 7, 100_000, 2_999_999} {
		late := f.follow(id, "", fmt.Sprintf("%d-0", from))
		if late.end(); late.got[0][from:] != want[from:3000000] {
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

// TestEventsOfExecsElsewhere: a client of an exec that this node does not run gets its states by its row: those of another node, and of one that was lost.
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

// TestSlowClientsAreCutOff: a client that does not read keeps the job from nothing, is cut off, and gets all with its last id.
func TestSlowClientsAreCutOff(t *testing.T) {
	t.Parallel()
	f := startLive(t, 1, func(cfg *api.Config) { cfg.Bounds.Rest = time.Millisecond })
	id, ended := f.begin("", "listen", `, "policy_overrides": {"max_stdout_bytes": 16000000}`)
	lazy := *f.fixture
	lazy.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		}
		return conn, err
	}}}
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
	if e := f.follow(id, "", slow.LastID); e.end().StdoutBytes != int64(16*len(text)) || e.got[0] != strings.Repeat(text, 16) {
		t.Errorf("one that comes again got %d bytes", len(e.got[0]))
	}
}

// TestEventsEndWithTheToken: a stream ends when its token is revoked, and the client learns why when it comes again.
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
	if p := f.do(request{path: path, token: worker}).wants(t, fault.ServerBusy); !strings.Contains(p.Detail, "2 streams of events") {
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

// TestServerEndsStreams: when the server shuts down, a stream ends between two events, not as if the exec had ended.
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

// TestEventsOfRemovedOutput: an exec whose output was removed or altered ends with the reason; a removed exec has none.
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
	f.get("/sandbox/execs/" + id + "/events").wants(t, fault.RemovedByRetention)
}
