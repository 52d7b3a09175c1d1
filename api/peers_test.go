package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/audit"
	"secbox/fault"
	"secbox/runner"
)

// fakePeers is the node "other". A request with the header Secbox-Peer comes from it.
type fakePeers struct {
	mu    sync.Mutex
	got   []string // method and path of what was forwarded to it, with what the node says about the client
	away  bool     // it cannot be asked
	fails bool     // it refuses all

	during func() // called while it has a request; may be nil
}

func (p *fakePeers) From(r *http.Request) (string, error) {
	switch r.Header.Get("Secbox-Peer") {
	case "":
		return "", nil
	case "good":
		return "other", nil
	}
	return "", fault.New(fault.NodeUnreachable, "the mark is not good")
}

func (p *fakePeers) Other(nodeID string) bool { return nodeID == "other" }

func (p *fakePeers) Reaches(context.Context, string) bool { return !p.away }

func (p *fakePeers) Forward(w http.ResponseWriter, r *http.Request, _ string) error {
	p.mu.Lock()
	p.got = append(p.got, strings.TrimSpace(fmt.Sprint(r.Method, " ", r.URL.Path[strings.LastIndexByte(r.URL.Path, '/'):], " ", r.Header.Get("Last-Event-ID"),
		r.Header.Get("X-Forwarded-Proto"), r.ContentLength, " ", r.Header.Get("Secbox-Client-Address"))))
	p.mu.Unlock()
	if p.during != nil {
		p.during()
	}
	switch {
	case p.away:
		return fault.New(fault.NodeUnreachable, "away")
	case p.fails:
		w.WriteHeader(http.StatusServiceUnavailable)
	case strings.HasSuffix(r.URL.Path, "/events"):
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		fmt.Fprint(w, "event: stdout\ndata: {\"data\":\"there\",\"encoding\":\"utf-8\",\"offset\":0}\nid: 5-0\n\n")
	case r.Method == http.MethodPost:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, `{"exec_id": %q, "status": "running"}`, strings.Split(r.URL.Path, "/")[3])
	default:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprint(w, "there")
	}
	return nil
}

// took returns what was forwarded since the last call.
func (p *fakePeers) took() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := strings.Join(p.got, ", ")
	p.got = nil
	return got
}

// startWithPeer starts a server beside another node, which runs an exec of a token.
func startWithPeer(t *testing.T, change ...func(*api.Config)) (f *fixture, p *fakePeers, execID, secret string) {
	t.Helper()
	p = &fakePeers{}
	f = start(t, append(change, func(c *api.Config) { c.Peers = p })...)
	t.Cleanup(f.server.Close) // before the HTTP server, which waits for answers
	id, secret := f.token(tokens.Spec{Role: tokens.Worker})
	rec := newRecord(runner.Request{ProjectID: "demo", RequestedBy: id})
	rec.NodeID = "other"
	if _, err := f.db.Audit().Open(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	return f, p, rec.ExecID, secret
}

// TestForwarded: requests about an exec of another node are forwarded there. Requests of callers
// who may not see it are not, nor are requests that the other node has forwarded.
func TestForwarded(t *testing.T) {
	t.Parallel()
	f, p, id, secret := startWithPeer(t)
	_, another := f.token(tokens.Spec{Role: tokens.Worker})
	_, admin := f.token(tokens.Spec{Role: tokens.Admin})
	path := "/sandbox/execs/" + id
	out := f.do(request{path: path + "/stdout", token: secret, header: map[string]string{"X-Forwarded-Proto": "https", "Last-Event-ID": "x"}})
	if got := p.took(); string(out.body) != "there" || got != "GET /stdout x0" {
		t.Errorf("%d %s; forwarded: %s", out.StatusCode, out.body, got)
	}
	if a := f.do(request{method: "POST", path: path + "/cancel", token: admin, body: "{}"}); a.StatusCode != http.StatusAccepted ||
		p.took() != "POST /cancel 0" || len(f.runner.canceled) > 0 {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	e := f.follow(id, secret, "")
	if first := e.next(); first != "stdout" || e.got[0] != "there" || e.next() != "" || p.took() != "GET /events 0-00" {
		t.Errorf("the events begin with %s", first)
	}
	for _, of := range []string{"/stdout", "/stderr", "/events", "/cancel"} {
		method := map[bool]string{true: "POST", false: "GET"}[of == "/cancel"]
		f.do(request{method: method, path: path + of, token: another}).wants(t, fault.UnknownExec)
		f.do(request{method: method, path: path + of, token: secret, header: map[string]string{"Secbox-Peer": "forged"}}).wants(t, fault.NodeUnreachable)
	}
	f.do(request{path: path + "/stdout", header: map[string]string{"Secbox-Peer": "good"}}).wants(t, fault.Unauthenticated) // the mark gives no rights
	f.do(request{path: path + "/stdout", token: another, header: map[string]string{"Secbox-Peer": "good"}}).wants(t, fault.UnknownExec)
	f.do(request{method: "POST", path: path + "/cancel", token: secret, host: "elsewhere.example", header: map[string]string{"Secbox-Peer": "good"}})
	if got := p.took(); got != "" || len(f.runner.canceled) != 1 {
		t.Errorf("forwarded: %s; canceled here: %v", got, f.runner.canceled)
	}
}

// TestOtherNodeAway: while the node of an exec cannot be asked, the errors say so, and a stream has
// the status and the end.
func TestOtherNodeAway(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(*fakePeers){"away": func(p *fakePeers) { p.away = true }, "refusing": func(p *fakePeers) { p.fails = true }} {
		f, p, id, secret := startWithPeer(t)
		damage(p)
		if p.away {
			f.do(request{path: "/sandbox/execs/" + id + "/stderr", token: secret}).wants(t, fault.NodeUnreachable)
			f.do(request{method: "POST", path: "/sandbox/execs/" + id + "/cancel", token: secret}).wants(t, fault.NodeUnreachable)
		}
		e := f.follow(id, secret, "")
		if first := e.next(); first != "status" || e.last.Status != audit.Running {
			t.Errorf("%s: the events begin with %s, %+v", name, first, e.last)
		}
		rec, err := f.db.Audit().Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		rec.Status, rec.EndedAt, rec.ErrorReason = audit.Lost, rec.StartedAt, audit.NodeLost
		if _, err := f.db.Audit().Close(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		if last := e.next(); last != "end" || e.last.Status != audit.Lost {
			t.Errorf("%s: the events end with %s, %+v", name, last, e.last)
		}
	}
}

// TestCancelBegunElsewhere: an exec that another node begins while this one cancels it is canceled
// there.
func TestCancelBegunElsewhere(t *testing.T) {
	t.Parallel()
	f, p, id, secret := startWithPeer(t)
	rec, err := f.db.Audit().Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	f.server.Close()
	queued := rec
	queued.Status, queued.NodeID = audit.Queued, ""
	raced := start(t, func(c *api.Config) {
		c.Peers, c.Tokens = p, f.tokens
		c.History = &racedHistory{History: f.history, first: queued}
	})
	raced.runner.cancelError = fault.New(fault.ExecEnded, "it does not run here")
	if a := raced.do(request{method: "POST", path: "/sandbox/execs/" + id + "/cancel", token: secret}); a.StatusCode != http.StatusAccepted ||
		p.took() != "POST /cancel 0" {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
}

// racedHistory has another record when it is read first.
type racedHistory struct {
	api.History
	once  sync.Once
	first audit.Record
}

func (h *racedHistory) Get(ctx context.Context, execID string) (rec audit.Record, err error) {
	rec, err = h.History.Get(ctx, execID)
	h.once.Do(func() { rec = h.first })
	return rec, err
}
