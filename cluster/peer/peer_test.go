package peer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"secbox/audit/hmackey"
	"secbox/cluster/nodes"
	"secbox/fault"
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

// setEpoch gives a node another lease.
func (s *table) setEpoch(id string, epoch int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[id]
	n.Epoch = epoch
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
	b    *Peers
	url  string        // of b
	sent *http.Request // the last request to b
	took string        // its body
}

// newFixture makes one whose b answers what From allows with serve.
func newFixture(t *testing.T, keyOfB byte, serve http.HandlerFunc) *fixture {
	t.Helper()
	f := &fixture{t: t, rows: &table{nodes: map[string]nodes.Node{}}}
	f.a, f.b = f.peers("a", 1), f.peers("b", keyOfB)
	f.rows.set("a", "http://unused.example", true)
	f.url = f.listen(f.b, func(w http.ResponseWriter, r *http.Request) {
		f.sent = r.Clone(context.Background())
		from, err := f.b.From(r)
		if err != nil || from != "a" {
			http.Error(w, fmt.Sprintf("%q, %v", from, err), http.StatusTeapot)
			return
		}
		body, _ := io.ReadAll(r.Body)
		f.took = string(body)
		serve(w, r)
	})
	f.rows.set("b", f.url, true)
	return f
}

// listen has a node take channels, and requests of clients, at the address that it returns.
func (f *fixture) listen(p *Peers, serve http.HandlerFunc) string {
	public := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == Path {
			p.ServeHTTP(w, r)
			return
		}
		serve(w, r)
	}))
	inner := &http.Server{Handler: serve, ConnContext: ConnContext}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = inner.Serve(p.Arrivals())
	}()
	f.t.Cleanup(func() {
		p.Close()
		_ = inner.Close()
		<-done
		public.Close()
	})
	return public.URL
}

func (f *fixture) peers(self string, key byte) *Peers {
	return f.peersAt(self, key, 1)
}

// peersAt makes a node under a lease.
func (f *fixture) peersAt(self string, key byte, epoch int64) *Peers {
	p := New(Config{
		Self: self, Epoch: func() int64 { return epoch }, Key: hmackey.New(bytes.Repeat([]byte{key}, 32)), Nodes: f.rows, Now: time.Now,
		Logger: slog.New(slog.DiscardHandler),
	})
	p.watchEvery = 10 * time.Millisecond
	f.t.Cleanup(p.Close)
	return p
}

// forward forwards a request for a path, as it comes from a client.
func (f *fixture) forward(method, path, body string, header ...string) (*httptest.ResponseRecorder, error) {
	w := httptest.NewRecorder()
	err := f.forwardTo(w, method, path, body, header...)
	return w, err
}

// forwardTo is forward with the writer of the answer.
func (f *fixture) forwardTo(w http.ResponseWriter, method, path, body string, header ...string) error {
	r := httptest.NewRequest(method, "http://secbox.example:8003"+path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return f.a.Forward(w, r, "b")
}

// writer calls a function after the first bytes of an answer.
type writer struct {
	*httptest.ResponseRecorder

	once  sync.Once
	wrote func()
}

func (w *writer) Write(b []byte) (int, error) {
	n, err := w.ResponseRecorder.Write(b)
	w.once.Do(w.wrote)
	return n, err
}

// TestForward: a request arrives as the client sent it, but for its connection, and so does the
// answer.
func TestForward(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "of b")
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, r.Host, r.Header.Get("Authorization"), r.Header["Cookie"], r.Header.Get("X-Forwarded-Proto"), r.Header.Get("X-Hop"),
			r.Header.Get("Upgrade"))
	})
	w, err := f.forward("POST", "/a%2Fb?c=d%20e", "form=1", "Authorization", "Bearer x", "Cookie", "k=v", "Cookie", "l=w", "X-Forwarded-Proto", "https",
		"Connection", "x-hop", "X-Hop", "1",
		"Upgrade", "h2c", "Idempotency-Key", "k")
	if err != nil || w.Code != http.StatusAccepted || w.Body.String() != "secbox.example:8003Bearer x[k=v l=w]https" || f.took != "form=1" ||
		f.sent.RequestURI != "/a%2Fb?c=d%20e" {
		t.Errorf("%v, %d %s; b got %q with %q", err, w.Code, w.Body, f.sent.RequestURI, f.took)
	}
	if w.Header().Get("X-Request-Id") != "of b" || w.Header().Get("X-Hop") != "" {
		t.Errorf("header: %v", w.Header())
	}
	for _, size := range []int{maxFirst, maxFirst + 1, 10 << 20} {
		large := strings.Repeat("x", size)
		if _, err := f.forward("POST", "/", large); err != nil || f.took != large {
			t.Errorf("a body of %d bytes: %v, b got %d", size, err, len(f.took))
		}
	}
	cut := httptest.NewRequest("PUT", "http://secbox.example:8003/", io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), iotest.ErrReader(errCut)))
	if err := f.a.Forward(httptest.NewRecorder(), cut, "b"); !errors.Is(err, errCut) {
		t.Errorf("a client that leaves: %v", err)
	}
}

var errCut = errors.New("cut off")

// TestPatience: what may change something gets its answer however long that takes, as long as the
// node is live.
func TestPatience(t *testing.T) {
	t.Parallel()
	began, end := make(chan string, 2), make(chan struct{})
	f := newFixture(t, 1, func(w http.ResponseWriter, r *http.Request) {
		began <- r.Method
		<-end
		fmt.Fprint(w, "done")
	})
	f.a.transport.ResponseHeaderTimeout = 50 * time.Millisecond
	posted := make(chan error)
	go func() {
		w, err := f.forward("POST", "/", "x")
		if err == nil && w.Body.String() != "done" {
			err = errors.New(w.Body.String())
		}
		posted <- err
	}()
	<-began
	if _, err := f.forward("GET", "/", ""); !fault.Is(err, fault.NodeUnreachable) { // its time is over, and so would be the other's
		t.Errorf("a request that changes nothing: %v", err)
	}
	close(end)
	if err := <-posted; err != nil {
		t.Error(err)
	}
}

// TestProof: nothing passes unless both sides have proven the key and the lease that the database
// has.
func TestProof(t *testing.T) {
	t.Parallel()
	reached := false
	f := newFixture(t, 1, func(http.ResponseWriter, *http.Request) { reached = true })
	if w, err := f.forward("POST", "/x?y=z", "form=1", "Authorization", "Bearer x"); err != nil || w.Code != http.StatusOK || !reached {
		t.Fatalf("%v, %d %s", err, w.Code, w.Body)
	}
	for name, set := range map[string]func(){
		"a client has another key":              func() { f.a = f.peers("a", 2) },
		"a client has another key and no name":  func() { f.a = f.peers("", 2) },
		"a client under a lease that has ended": func() { f.a = f.peersAt("a", 1, 2) },
		"a client without a lease":              func() { f.a = f.peersAt("a", 1, 0) },
		"a client that no row knows":            func() { f.a = f.peers("c", 1) },
		"a server under a lease that has ended": func() { f.a = f.peers("a", 1); f.rows.setEpoch("b", 2) },
		"a server with another name":            func() { f.a = f.peers("a", 1); f.rows.set("b", f.listen(f.peers("c", 1), f.teapot), true) },
		"a server with another key":             func() { f.a = f.peers("a", 1); f.rows.set("b", f.listen(f.peers("b", 2), f.teapot), true) },
		"a server of the client's own name":     func() { f.a = f.peers("a", 1); f.rows.set("b", f.listen(f.peers("a", 1), f.teapot), true) },
	} {
		f.rows.set("b", f.url, true)
		reached = false
		set()
		w, err := f.forward("POST", "/", "", "Authorization", "Bearer x")
		if !fault.Is(err, fault.NodeUnreachable) || reached || w.Body.Len() > 0 {
			t.Errorf("%s: %v, reached: %v, %s", name, err, reached, w.Body)
		}
	}
	// A mark of an older version, and a request beside a channel, are a client's.
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Secbox-Peer", "a 1 2 3")
	if from, err := f.b.From(r); from != "" || err != nil {
		t.Errorf("a client's request: %q, %v", from, err)
	}
	if from, err := f.b.Sender(r); from != "" || !fault.Is(err, fault.NodeUnreachable) {
		t.Errorf("a client's request to nodes: %q, %v", from, err)
	}
}

func (f *fixture) teapot(http.ResponseWriter, *http.Request) {
	f.t.Error("a request has reached an impostor")
}

// TestImpostor: a program that listens on the address of a node that has ended learns no
// credentials and is not believed.
func TestImpostor(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, func(http.ResponseWriter, *http.Request) {})
	for name, answer := range map[string]string{
		"an answer":             "HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 2\r\n\r\nhi",
		"an upgrade":            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + protocol + "\r\n\r\n",
		"an upgrade, and more":  "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + protocol + "\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
		"an upgrade to another": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
		"no HTTP":               "SSH-2.0-x\r\n",
		"nothing":               "",
		"a long header":         "HTTP/1.1 101 " + strings.Repeat("x", 1<<20),
	} {
		address, heard := impostor(t, answer)
		f.rows.set("b", "http://"+address, true)
		f.a = f.peers("a", 1)
		w, err := f.forward("POST", "/sandbox/execs/x/cancel", "form=1", "Authorization", "Bearer secret", "Cookie", "session=secret")
		if !fault.Is(err, fault.NodeUnreachable) || w.Body.Len() > 0 || len(w.Header()) > 0 {
			t.Errorf("%s: %v, %v %s", name, err, w.Header(), w.Body)
		}
		f.a.Close()
		if text := heard(); strings.Contains(text, "secret") || strings.Contains(text, "form=1") || strings.Contains(text, "cancel") ||
			!strings.Contains(text, "GET "+Path) {
			t.Errorf("%s: it was told %q", name, text)
		}
	}
}

// impostor answers every connection with a text, and keeps what it is told.
func impostor(t *testing.T, answer string) (address string, heard func() string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var told bytes.Buffer
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				p := make([]byte, 64<<10)
				for first := true; ; first = false {
					n, err := conn.Read(p)
					mu.Lock()
					told.Write(p[:n])
					mu.Unlock()
					if err != nil {
						return
					}
					if first && answer == "" {
						return
					}
					if first {
						_, _ = io.WriteString(conn, answer)
					}
				}
			})
		}
	})
	return l.Addr().String(), func() string {
		l.Close()
		all.Wait()
		mu.Lock()
		defer mu.Unlock()
		return told.String()
	}
}

// TestReplay: what was recorded of a channel proves nothing, to the same node and after its next
// start.
func TestReplay(t *testing.T) {
	t.Parallel()
	reached := 0
	f := newFixture(t, 1, func(http.ResponseWriter, *http.Request) { reached++ })
	target := strings.TrimPrefix(f.url, "http://")
	address, recorded := recorder(t, target)
	f.rows.set("b", "http://"+address, true)
	if w, err := f.forward("POST", "/", "form=1"); err != nil || w.Code != http.StatusOK || reached != 1 {
		t.Fatalf("through the recorder: %v, %d %s", err, w.Code, w.Body)
	}
	f.a.Close()
	bytesSent := recorded()
	next := f.peersAt("b", 1, 2)
	nextAddress := strings.TrimPrefix(f.listen(next, f.teapot), "http://")
	for _, to := range []string{target, nextAddress} {
		conn, err := net.Dial("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		for _, piece := range bytesSent {
			_, _ = conn.Write(piece)
			_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			_, _ = conn.Read(make([]byte, 64<<10))
		}
		conn.Close()
	}
	if reached != 1 {
		t.Errorf("%d requests were believed", reached)
	}
}

// recorder passes one connection on, and keeps what the client sends, in pieces.
func recorder(t *testing.T, target string) (address string, sent func() [][]byte) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var pieces [][]byte
	all.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		there, err := net.Dial("tcp", target)
		if err != nil {
			return
		}
		defer there.Close()
		all.Go(func() { _, _ = io.Copy(conn, there) })
		p := make([]byte, 64<<10)
		for {
			n, err := conn.Read(p)
			if err != nil {
				return
			}
			pieces = append(pieces, bytes.Clone(p[:n]))
			_, _ = there.Write(p[:n])
		}
	})
	t.Cleanup(func() { l.Close() })
	return l.Addr().String(), func() [][]byte {
		all.Wait()
		return pieces
	}
}

// TestHalfOpen: strangers who ask for channels and go no further keep no node out.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, func(http.ResponseWriter, *http.Request) {})
	for range 100 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", Path, protocol)
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "101") {
			t.Fatal(line, err)
		}
	}
	if _, err := f.forward("POST", "/", ""); err != nil {
		t.Error(err)
	}
	answer, err := http.Get(f.url + Path)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusUpgradeRequired {
		t.Errorf("a browser: %s", answer.Status)
	}
}

// TestSilentNode: requests to a node that accepts connections and says nothing share one attempt,
// and their clients may leave.
func TestSilentNode(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, func(http.ResponseWriter, *http.Request) {})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var accepted atomic.Int32
	var open sync.WaitGroup
	open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			defer conn.Close()
		}
	})
	f.rows.set("b", "http://"+l.Addr().String(), true)
	gone, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			r := httptest.NewRequest("POST", "http://secbox.example/", nil)
			if i%2 == 0 {
				r = r.WithContext(gone)
			}
			if err := f.a.Forward(httptest.NewRecorder(), r, "b"); !fault.Is(err, fault.NodeUnreachable) {
				t.Error(err)
			}
		})
	}
	leave()
	all.Wait()
	if _, err := f.forward("POST", "/", ""); !fault.Is(err, fault.NodeUnreachable) {
		t.Error(err)
	}
	if n := accepted.Load(); n > 2 {
		t.Errorf("%d attempts for 21 requests", n)
	}
	l.Close()
	open.Wait()
}

// TestNewLease: a channel ends with the leases of both sides, and the next request opens another.
func TestNewLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, func(http.ResponseWriter, *http.Request) {})
	f.a.freshFor, f.b.freshFor = 0, 0
	for epoch := int64(1); epoch < 4; epoch++ {
		f.rows.setEpoch("a", epoch)
		f.a.cfg.Epoch = func() int64 { return epoch }
		f.rows.setEpoch("b", epoch)
		f.b.cfg.Epoch = func() int64 { return epoch }
		for range 2 {
			if w, err := f.forward("POST", "/", ""); err != nil || w.Code != http.StatusOK {
				t.Fatalf("epoch %d: %v, %d %s", epoch, err, w.Code, w.Body)
			}
		}
	}
	f.rows.setEpoch("a", 9) // only the sender has a new one
	f.a.cfg.Epoch = func() int64 { return 9 }
	if w, err := f.forward("POST", "/", ""); err != nil || w.Code != http.StatusOK {
		t.Errorf("%v, %d %s", err, w.Code, w.Body)
	}
	// The sender has lost its lease, and its channel is open.
	f.rows.setEpoch("a", 4)
	if w, err := f.forward("POST", "/", ""); err != nil || w.Code != http.StatusTeapot {
		t.Errorf("%v, %d %s", err, w.Code, w.Body)
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
		if _, err := f.a.URL(t.Context(), "b", "/"); (err == nil) != (want == "does not answer" || want == "node b, which has the") ||
			err != nil && strings.Contains(err.Error(), "which has the exec") {
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

// TestFrozen: a request to a node that does not answer ends when its lease has ended, also in the
// middle of an answer.
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
			} else {
				frozen()
			}
			<-thaw
		})
		f.a.freshFor = 0
		w := &writer{ResponseRecorder: httptest.NewRecorder(), wrote: frozen}
		err := f.forwardTo(w, "GET", "/", "")
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

// slowTable answers the first query when so many requests have asked, after a time that is longer
// than an answer is believed.
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

// TestOneReadAnswersAll: requests that wait for a slow read take its answer, and do not read one
// after the other.
func TestOneReadAnswersAll(t *testing.T) {
	t.Parallel()
	rows := &slowTable{requests: 100, all: make(chan struct{})}
	p := New(Config{Self: "a", Epoch: func() int64 { return 1 }, Key: hmackey.New(nil), Nodes: rows, Now: rows.now})
	var all sync.WaitGroup
	for range rows.requests {
		all.Go(func() { p.Reaches(t.Context(), "b") })
	}
	all.Wait()
	if rows.reads != 1 {
		t.Errorf("%d reads", rows.reads)
	}
}

// TestWhile: what a node does with another one ends when that is retired, not while it may still
// live.
func TestWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows := &table{nodes: map[string]nodes.Node{}}
		p := New(Config{Self: "a", Epoch: func() int64 { return 1 }, Key: hmackey.New(nil), Nodes: rows, Now: time.Now})
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
