package peer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"secbox/fault"
	"secbox/keyed"
	"secbox/nodes"
)

// table has the nodes of an installation.
type table struct {
	mu    sync.Mutex
	nodes map[string]nodes.Node
	reads int
}

func (s *table) Get(_ context.Context, id string) (nodes.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	n, ok := s.nodes[id]
	if !ok {
		return n, fault.New(fault.UnknownNode, "there is no node %s", id)
	}
	n.ReadAt = time.Now()
	return n, nil
}

func (s *table) List(context.Context, time.Duration) (all []nodes.Node, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.nodes {
		n.ReadAt = time.Now()
		all = append(all, n)
	}
	return all, nil
}

// set sets a node, with a lease or without.
func (s *table) set(id, address string, live bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := nodes.Node{NodeID: id, Address: address, Epoch: 1}
	if live {
		n.LeaseUntil = time.Now().Add(time.Hour)
	}
	s.nodes[id] = n
}

// silence ends the lease of a node that no other node has retired yet.
func (s *table) silence(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[id]
	n.LeaseUntil = time.Now().Add(-time.Second)
	s.nodes[id] = n
}

// fixture is the node a, which forwards to the node b.
type fixture struct {
	t    *testing.T
	rows *table
	a    *Peers
	sent *http.Request // the last request to b, before b looked at it
	took string        // its body
}

// newFixture makes one whose b answers what From allows with serve.
func newFixture(t *testing.T, keyOfB byte, serve http.HandlerFunc) *fixture {
	t.Helper()
	f := &fixture{t: t, rows: &table{nodes: map[string]nodes.Node{}}}
	f.a = f.peers("a", 1)
	b := f.peers("b", keyOfB)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.sent = r.Clone(context.Background())
		from, err := b.From(r)
		if err != nil || from != "a" || r.Header.Get(Header) != "" {
			http.Error(w, fmt.Sprintf("%q, %v", from, err), http.StatusTeapot)
			return
		}
		body, _ := io.ReadAll(r.Body)
		f.took = string(body)
		serve(w, r)
	}))
	t.Cleanup(server.Close)
	f.rows.set("b", server.URL, true)
	return f
}

func (f *fixture) peers(self string, key byte) *Peers {
	p := New(Config{Self: self, Key: keyed.New(bytes.Repeat([]byte{key}, 32)), Nodes: f.rows, Now: time.Now})
	p.watchEvery = 10 * time.Millisecond
	f.t.Cleanup(p.Close)
	return p
}

// forward forwards a request for a path, as it comes from a client.
func (f *fixture) forward(method, path, body string, header ...string) (*httptest.ResponseRecorder, error) {
	r := httptest.NewRequest(method, "http://secbox.example:8003"+path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	err := f.a.Forward(w, r, "b")
	return w, err
}

// TestForward: a request arrives as the client sent it, but for its connection, and so does the answer.
func TestForward(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "of b")
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, r.Host, r.Header.Get("Authorization"), r.Header["Cookie"], r.Header.Get("X-Forwarded-Proto"), r.Header.Get("X-Hop"), r.Header.Get("Upgrade"))
	})
	w, err := f.forward("POST", "/a%2Fb?c=d%20e", "form=1", "Authorization", "Bearer x", "Cookie", "k=v", "Cookie", "l=w", "X-Forwarded-Proto", "https", "Connection", "x-hop", "X-Hop", "1",
		"Upgrade", "h2c", "Idempotency-Key", "k", Header, "forged 1 2 3")
	if err != nil || w.Code != http.StatusAccepted || w.Body.String() != "secbox.example:8003Bearer x[k=v l=w]https" || f.took != "form=1" || f.sent.RequestURI != "/a%2Fb?c=d%20e" {
		t.Errorf("%v, %d %s; b got %q with %q", err, w.Code, w.Body, f.sent.RequestURI, f.took)
	}
	if w.Header().Get("X-Request-Id") != "of b" || w.Header().Get("X-Hop") != "" {
		t.Errorf("header: %v", w.Header())
	}
	if _, err := f.forward("POST", "/", strings.Repeat("x", maxBody+1)); !fault.Is(err, fault.BodyTooLarge) {
		t.Errorf("a large body: %v", err)
	}
}

// TestMark: a node believes only the mark of a node with its key, for it, for this request and its credentials, and for a minute.
func TestMark(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, func(http.ResponseWriter, *http.Request) {})
	if w, err := f.forward("POST", "/x?y=z", "form=1", "Authorization", "Bearer x", "Cookie", "k=v"); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%v, %d %s", err, w.Code, w.Body)
	}
	late := f.peers("b", 1)
	late.cfg.Now = func() time.Time { return time.Now().Add(maxSkew + time.Second) }
	for name, c := range map[string]struct {
		at     *Peers
		change func(r *http.Request)
	}{
		"another key":          {at: f.peers("b", 2)},
		"another node":         {at: f.peers("c", 1)},
		"an hour later":        {at: late},
		"another method":       {change: func(r *http.Request) { r.Method = "PUT" }},
		"another path":         {change: func(r *http.Request) { r.RequestURI = "/y" }},
		"another host":         {change: func(r *http.Request) { r.Host = "evil.example" }},
		"another token":        {change: func(r *http.Request) { r.Header.Set("Authorization", "Bearer y") }},
		"one more token":       {change: func(r *http.Request) { r.Header.Add("Authorization", "Bearer y") }},
		"another cookie":       {change: func(r *http.Request) { r.Header.Set("Cookie", "k=w") }},
		"no cookie":            {change: func(r *http.Request) { r.Header.Del("Cookie") }},
		"another scheme":       {change: func(r *http.Request) { r.Header.Set("X-Forwarded-Proto", "https") }},
		"another body":         {change: func(r *http.Request) { setBody(r, []byte("form=2")) }},
		"two marks":            {change: func(r *http.Request) { r.Header.Add(Header, r.Header.Get(Header)) }},
		"another sender":       {change: func(r *http.Request) { r.Header.Set(Header, "c"+r.Header.Get(Header)[1:]) }},
		"a mark without parts": {change: func(r *http.Request) { r.Header.Set(Header, "a") }},
		"an empty mark":        {change: func(r *http.Request) { r.Header.Set(Header, "") }},
	} {
		r := f.sent.Clone(t.Context())
		setBody(r, []byte("form=1"))
		if from, err := f.peers("b", 1).From(r.Clone(t.Context())); from != "a" || err != nil {
			t.Fatalf("the mark as it was sent: %q, %v", from, err)
		}
		setBody(r, []byte("form=1"))
		at := f.peers("b", 1)
		if c.at != nil {
			at = c.at
		}
		if c.change != nil {
			c.change(r)
		}
		if from, err := at.From(r); from != "" || !fault.Is(err, fault.NodeUnreachable) {
			t.Errorf("%s: %q, %v", name, from, err)
		}
	}
	if from, err := f.a.From(httptest.NewRequest("GET", "/", nil)); from != "" || err != nil {
		t.Errorf("a client's request: %q, %v", from, err)
	}
}

// TestUnreachable: the error says why a node cannot be asked.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, func(http.ResponseWriter, *http.Request) {})
	closed := httptest.NewServer(nil)
	closed.Close()
	for want, set := range map[string]func(){
		"there is no node":      func() { delete(f.rows.nodes, "b") },
		"has no node.address":   func() { f.rows.set("b", "", true) },
		"it has no lease":       func() { f.rows.set("b", closed.URL, false) },
		"its lease has ended":   func() { f.rows.silence("b") },
		"does not answer":       func() { f.rows.set("b", closed.URL, true) },
		"node b, which has the": func() { f.rows.set("b", "http://%zz", true) },
	} {
		set()
		f.a = f.peers("a", 1)
		w, err := f.forward("POST", "/", "")
		if !fault.Is(err, fault.NodeUnreachable) || !strings.Contains(err.Error(), want) || fault.From(err).RetryAfter != retryAfter || w.Body.Len() > 0 {
			t.Errorf("%v, want %q", err, want)
		}
		if _, _, err := f.a.Own(t.Context(), "GET", "b", "/"); (err == nil) != (want == "does not answer") || err != nil && strings.Contains(err.Error(), "which has the exec") {
			t.Errorf("a request that the node makes itself: %v", err)
		}
		if reached := want == "does not answer" || want == "node b, which has the"; f.a.Reaches(t.Context(), "b") != reached {
			t.Errorf("%s: reached: %v", want, !reached)
		}
	}
	if f.a.Other("") || f.a.Other("a") || !f.a.Other("b") {
		t.Error("Other")
	}
}

// TestFrozen: a request to a node that does not answer ends when its lease has ended, also in the middle of an answer.
func TestFrozen(t *testing.T) {
	t.Parallel()
	for kind, begun := range map[string]bool{"text/plain": true, "text/event-stream": true, "": false} {
		thaw := make(chan struct{})
		var f *fixture
		frozen := func() { f.rows.set("b", f.rows.nodes["b"].Address, false) }
		f = newFixture(t, 1, func(w http.ResponseWriter, r *http.Request) {
			if begun {
				w.Header().Set("Content-Type", kind)
				fmt.Fprint(w, "begun")
				_ = http.NewResponseController(w).Flush()
			}
			frozen()
			<-thaw
		})
		f.a.freshFor = 0
		w, err := f.forward("GET", "/", "")
		close(thaw)
		switch {
		case !begun && (!fault.Is(err, fault.NodeUnreachable) || w.Body.Len() > 0):
			t.Errorf("before an answer: %v, %s", err, w.Body)
		case begun && (w.Body.String() != "begun" || (err == nil) != (kind == "text/event-stream")):
			t.Errorf("in the middle of %s: %v, %s", kind, err, w.Body)
		}
	}
}

// TestReads: many requests for a node read its row once in a while.
func TestReads(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, func(http.ResponseWriter, *http.Request) {})
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() { f.a.Reaches(t.Context(), "b") })
	}
	all.Wait()
	if f.rows.reads != 1 {
		t.Errorf("%d reads", f.rows.reads)
	}
}

// slowTable answers the first query when so many requests have asked, after a time that is longer than an answer is believed.
type slowTable struct {
	table
	requests int32
	asked    atomic.Int32 // looks at the clock: one of each request, and one of each read
	all      chan struct{}
	late     atomic.Int32
}

func (s *slowTable) now() time.Time {
	now := time.Unix(1000, 0).Add(time.Duration(s.late.Load()) * freshFor)
	if s.asked.Add(1) == s.requests+1 {
		close(s.all)
	}
	return now
}

func (s *slowTable) Get(ctx context.Context, id string) (nodes.Node, error) {
	select {
	case <-s.all:
	case <-ctx.Done():
	}
	s.late.Add(1)
	return s.table.Get(ctx, id)
}

// TestOneReadAnswersAll: requests that wait for a slow read take its answer, and do not read one after the other.
func TestOneReadAnswersAll(t *testing.T) {
	t.Parallel()
	rows := &slowTable{requests: 100, all: make(chan struct{})}
	p := New(Config{Self: "a", Key: keyed.New(nil), Nodes: rows, Now: rows.now})
	var all sync.WaitGroup
	for range rows.requests {
		all.Go(func() { p.Reaches(t.Context(), "b") })
	}
	all.Wait()
	if rows.reads != 1 {
		t.Errorf("%d reads", rows.reads)
	}
}

// TestWhile: what a node does with another one ends when that is retired, not while it may still live.
func TestWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows := &table{nodes: map[string]nodes.Node{}}
		p := New(Config{Self: "a", Key: keyed.New(nil), Nodes: rows, Now: time.Now})
		rows.set("b", "", true) // it asks, and cannot be asked
		ctx, cancel := p.While(t.Context(), "b")
		defer cancel()
		time.Sleep(time.Minute)
		rows.silence("b")
		time.Sleep(time.Minute)
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
		rows.set("b", "", false)
		<-ctx.Done()
		if err := context.Cause(ctx); !fault.Is(err, fault.NodeUnreachable) {
			t.Error(err)
		}
	})
}

// TestNonces: marks are accepted again when those of a minute with too many have become old.
func TestNonces(t *testing.T) {
	t.Parallel()
	now := time.Now()
	p := New(Config{Self: "a", Key: keyed.New(nil), Nodes: &table{}, Now: func() time.Time { return now }})
	p.maxNonces = 5000
	for i := range p.maxNonces {
		if !p.isNew(strconv.Itoa(i), now) {
			t.Fatalf("nonce %d is refused", i)
		}
	}
	if p.isNew("0", now) || p.isNew("one more", now) {
		t.Error("a nonce is accepted that was used, or is one too many")
	}
	now = now.Add(maxSkew + time.Second)
	if !p.isNew("one more", now) {
		t.Error("a nonce is refused after the others have become old")
	}
}
