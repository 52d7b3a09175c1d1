//go:build linux

package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/audit/hmackey"
	"secbox/cluster/nodes"
	"secbox/cluster/peer"
	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote"
	"secbox/sandbox/remote/machine"
	"secbox/sandbox/remote/relay"
	"secbox/sandbox/remote/wire"
	"secbox/sandbox/sandboxtest"
)

var user = sandbox.User{AgentID: "a", ID: "u"}

// cluster is an installation without a database.
type cluster struct {
	t    testing.TB
	mu   sync.Mutex
	rows map[string]nodes.Node

	peers func(relay.Peers) relay.Peers // changes the Peers of nodes that start from now on; nil: does not
}

func (c *cluster) Get(_ context.Context, id string) (nodes.Node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.rows[id]
	if !ok {
		return n, fault.New(fault.UnknownNode, "there is no node %s", id)
	}
	n.ReadAt = time.Now()
	return n, nil
}

func (c *cluster) List(ctx context.Context, _ time.Duration) (all []nodes.Node, err error) {
	c.mu.Lock()
	ids := make([]string, 0, len(c.rows))
	for id := range c.rows {
		ids = append(ids, id)
	}
	c.mu.Unlock()
	for _, id := range ids {
		n, err := c.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// node is one of its nodes.
type node struct {
	*relay.Machines
	c    *cluster
	id   string
	url  string
	web  *httptest.Server
	late chan string
}

func newCluster(t testing.TB) *cluster { return &cluster{t: t, rows: map[string]nodes.Node{}} }

// node starts one. The caller of a runner's request is in its token: "token/user".
func (c *cluster) node(id string, change ...func(*remote.Config)) *node {
	c.t.Helper()
	p := c.peer(id, "key")
	n := &node{c: c, id: id, late: make(chan string, 9)}
	cfg := relay.Config{Config: remote.Config{
		Log: slog.New(slog.NewTextHandler(c.t.Output(), nil)), Version: "test", ReadOnlyRoots: []string{"/opt/skill-creator"},
		Late: func(_ context.Context, _ sandbox.User, id string, _ sandbox.ExecResult) error {
			n.late <- id
			return nil
		},
	}, Peers: p, NodeID: id, OnRecord: func(_ context.Context, execID, nodeID string, _ sandbox.User) error {
		if strings.HasPrefix(execID, "unrecorded") {
			return fault.New(fault.Forbidden, "%s of node %s is not on record", execID, nodeID)
		}
		return nil
	}}
	if c.peers != nil {
		cfg.Peers = c.peers(p)
	}
	for _, f := range change {
		f(&cfg.Config)
	}
	n.Machines = relay.New(cfg)
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, owner, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), "/")
		caller := remote.Caller{TokenID: token, UserID: owner}
		if id, ok := strings.CutPrefix(r.URL.Path, wire.TransferPath); ok {
			n.ServeTransfer(w, r, id, caller)
		} else if r.URL.Path == wire.LinkPath {
			n.ServeLink(w, r, caller)
		} else if r.URL.Path == peer.Path {
			p.ServeHTTP(w, r)
		} else {
			n.ServeHTTP(w, r)
		}
	})
	n.web = httptest.NewServer(serve)
	n.url = n.web.URL
	inner := &http.Server{Handler: serve, ConnContext: peer.ConnContext}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = inner.Serve(p.Arrivals())
	}()
	c.t.Cleanup(func() {
		_ = n.Close()
		n.web.Close()
		p.Close()
		_ = inner.Close()
		<-served
	})
	c.lease(id, n.url, true)
	return n
}

// peer makes the channels of a node.
func (c *cluster) peer(id, key string) *peer.Peers {
	p := peer.New(peer.Config{
		Self: id, Epoch: func() int64 { return 1 }, Key: hmackey.New([]byte(key)), Nodes: c, Now: time.Now,
		Logger: slog.New(slog.DiscardHandler),
	})
	c.t.Cleanup(p.Close)
	return p
}

// lease gives a node a lease, or ends it.
func (c *cluster) lease(id, address string, live bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	row := nodes.Node{NodeID: id, Address: address, Epoch: 1}
	if live {
		row.LeaseUntil = time.Now().Add(time.Hour)
	}
	c.rows[id] = row
}

// run starts a real runner of the user that dials an address.
func (c *cluster) run(address, dir, name string) {
	c.t.Helper()
	m, err := machine.New(machine.Config{
		Server: address, Token: "token/u", Workspace: dir, Name: name, Allow: []string{machine.AllowExec, machine.AllowWrite}, Version: "test",
		Log:     slog.New(slog.NewTextHandler(c.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		Backoff: func(int) time.Duration { return 20 * time.Millisecond },
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	c.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			c.t.Error(err)
		}
	})
}

func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
	}
}

// TestSandbox: a machine that is connected to another node is a sandbox like any other.
func TestSandbox(t *testing.T) {
	t.Parallel()
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.Fixture {
		c := newCluster(t)
		a, b := c.node("a"), c.node("b")
		dir := t.TempDir()
		c.run(b.url, dir, "laptop")
		await(t, "the runner to connect", func() bool { return b.Here() == 1 })
		return sandboxtest.Fixture{Sandbox: a, User: user, Dir: dir, WorkspaceElsewhere: true, LimitElsewhere: raceEnabled}
	})
}

// TestRunnerMoves: a runner that dials another node keeps its commands; that node passes its link
// and its transfers on.
func TestRunnerMoves(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b, third := c.node("a"), c.node("b"), c.node("c")
	proxy := newProxy(t, a)
	dir := t.TempDir()
	c.run(proxy.url, dir, "laptop")
	await(t, "the runner to connect", func() bool { return a.Here() == 1 })

	var out syncBuffer
	type ended struct {
		result *sandbox.ExecResult
		err    error
	}
	results := make(chan ended, 2)
	for _, from := range []*node{a, third} {
		go func() {
			result, err := from.ExecTo(t.Context(), sandbox.ExecSpec{
				Command: "echo before; while [ ! -e go ]; do sleep 0.02; done; echo after", Shell: true,
				User: user, Timeout: 10 * time.Minute,
			}, &out, nil)
			results <- ended{result, err}
		}()
	}
	await(t, "both commands run", func() bool { return strings.Count(out.String(), "before") == 2 })
	since := a.Runners(t.Context())[0].ConnectedSince
	proxy.routeTo(b)
	await(t, "the runner to move", func() bool {
		all := third.Runners(t.Context())
		return len(all) == 1 && all[0].NodeID == "a" && all[0].ConnectedSince.After(since)
	})
	if a.Here() != 1 || b.Here() != 0 {
		t.Errorf("the machine is on another node: %d and %d", a.Here(), b.Here())
	}
	content := strings.Repeat("0123456789abcdef", 1<<20) // a transfer, which the runner makes at b
	for _, from := range []*node{a, b, third} {
		if n, err := from.WriteFileFrom(t.Context(), "/workspace/large", strings.NewReader(content), 0o644, user); err != nil || n != int64(len(content)) {
			t.Errorf("%s: %d, %v", from.id, n, err)
		}
		if data, err := from.ReadFile(t.Context(), "/workspace/large", user); err != nil || string(data) != content {
			t.Errorf("%s: %d bytes, %v", from.id, len(data), err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := <-results; got.err != nil || got.result.ExitCode != 0 {
			t.Error(got.result, got.err)
		}
	}
	if out.String() != "before\nbefore\nafter\nafter\n" {
		t.Errorf("%q", out.String())
	}

	// When the node that has the machine ends, the runner's next link makes the other one have it.
	_ = a.Close()
	a.web.CloseClientConnections()
	c.lease("a", a.url, false)
	await(t, "the other node has the machine", func() bool { return b.Here() == 1 })
	got, err := third.Exec(t.Context(), sandbox.ExecSpec{Command: "cat", Stdin: "in\xff", User: user})
	if fault.Is(err, fault.RunnerOffline) { // it asked the node before; now it knows
		got, err = third.Exec(t.Context(), sandbox.ExecSpec{Command: "cat", Stdin: "in\xff", User: user})
	}
	if err != nil || got.Stdout != "in\xff" || got.Runner != "laptop" {
		t.Error(got, err)
	}
}

// proxy is a load balancer.
type proxy struct {
	url string

	mu    sync.Mutex
	to    *node
	conns []net.Conn
}

func newProxy(t *testing.T, to *node) *proxy {
	d := &proxy{to: to}
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		to := d.to
		d.mu.Unlock()
		to.web.Config.Handler.ServeHTTP(w, r)
	}))
	web.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.conns = append(d.conns, conn)
		return ctx
	}
	web.Start()
	t.Cleanup(web.Close)
	d.url = web.URL
	return d
}

// routeTo sends what comes from here on to a node, and cuts what is connected.
func (d *proxy) routeTo(to *node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to = to
	for _, conn := range d.conns {
		_ = conn.Close()
	}
	d.conns = nil
}

// syncBuffer is a bytes.Buffer for several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestNames: of two machines on different nodes, a call must name one, and two runners cannot have
// one name.
func TestNames(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.node("a"), c.node("b")
	laptop, desk := t.TempDir(), t.TempDir()
	c.run(a.url, laptop, "laptop")
	await(t, "the first runner", func() bool { return a.Here() == 1 })
	second, err := machine.New(machine.Config{
		Server: b.url, Token: "token/u", Workspace: desk, Name: "laptop", Version: "test",
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := second.Run(ctx); !fault.Is(err, fault.RunnerNameInUse) {
		t.Errorf("a second runner of the name: %v", err)
	}
	if a.Here() != 1 || b.Here() != 0 {
		t.Errorf("%d and %d machines", a.Here(), b.Here())
	}
	c.run(b.url, desk, "desk")
	await(t, "the other runner", func() bool { return b.Here() == 1 })
	for _, n := range []*node{a, b} {
		await(t, "both are known", func() bool { return len(n.Runners(t.Context())) == 2 })
		if err := n.MkdirAll(t.Context(), "/workspace/x", 0o755, user); !fault.Is(err, fault.InvalidRequest) || !strings.Contains(err.Error(), "desk, laptop") {
			t.Errorf("%s: %v", n.id, err)
		}
		if _, err := n.Locate(t.Context(), sandbox.User{ID: "u", Runner: "tower"}); !fault.Is(err, fault.RunnerOffline) {
			t.Errorf("%s: %v", n.id, err)
		}
		if _, err := n.Locate(t.Context(), sandbox.User{ID: "another"}); !fault.Is(err, fault.RunnerOffline) {
			t.Errorf("%s: %v", n.id, err)
		}
		for name, dir := range map[string]string{"laptop": laptop, "desk": desk} {
			named := user
			named.Runner = name
			if err := n.WriteFile(t.Context(), "/workspace/of-"+n.id, []byte(name), 0o644, named); err != nil {
				t.Errorf("%s: %v", n.id, err)
			}
			if got, err := os.ReadFile(filepath.Join(dir, "of-"+n.id)); string(got) != name {
				t.Errorf("%s: %q, %v", n.id, got, err)
			}
		}
	}
}

// TestStrangers: only live nodes with the installation's key are answered, and only commands that
// are on record run.
func TestStrangers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.node("a")
	c.lease("b", "http://unused.example", true)
	c.lease("gone", "http://unused.example", false)
	ask := func(p *peer.Peers) (string, error) {
		url, err := p.URL(t.Context(), "a", relay.Prefix)
		if err != nil {
			return "", err
		}
		resp, err := (&http.Client{Transport: p.Transport()}).Get(url)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		return resp.Status, nil
	}
	if status, err := ask(c.peer("b", "key")); err != nil || status != "200 OK" {
		t.Fatal(status, err)
	}
	for name, p := range map[string]*peer.Peers{
		"another key": c.peer("b", "other key"), "a node without a lease": c.peer("gone", "key"),
		"a node that is not in the database": c.peer("never", "key"),
	} {
		if status, err := ask(p); err == nil {
			t.Errorf("%s: %s", name, status)
		}
	}
	for _, path := range []string{"", "/call", "/link?user=u&token=t", "/transfers/x"} { // beside a channel
		resp, err := http.Get(a.url + relay.Prefix + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("a client's request for %q: %s", path, resp.Status)
		}
	}

	dir := t.TempDir()
	c.run(a.url, dir, "laptop")
	await(t, "the runner to connect", func() bool { return a.Here() == 1 })
	b := c.node("b")
	if _, err := b.Exec(t.Context(), sandbox.ExecSpec{Command: "touch ran", Shell: true, User: user, ExecID: "unrecorded-1"}); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a command that is not on record: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("it ran")
	}
}

// leases are the other nodes of one, whose leases a test ends at once.
type leases struct {
	relay.Peers
	mu   sync.Mutex
	ends map[string][]context.CancelFunc
}

func (l *leases) While(ctx context.Context, nodeID string) (context.Context, context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, end := context.WithCancel(ctx)
	l.ends[nodeID] = append(l.ends[nodeID], end)
	return ctx, end
}

func (l *leases) end(nodeID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, end := range l.ends[nodeID] {
		end()
	}
}

// TestCallerRetired: a command that a node runs for another one ends when that one is retired,
// although it is still connected.
func TestCallerRetired(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.node("a")
	of := &leases{ends: map[string][]context.CancelFunc{}}
	c.peers = func(p relay.Peers) relay.Peers {
		of.Peers = p
		return of
	}
	b := c.node("b")
	c.run(b.url, t.TempDir(), "laptop")
	await(t, "the runner to connect", func() bool { return b.Here() == 1 })
	var out syncBuffer
	ended := make(chan error, 1)
	go func() {
		_, err := a.ExecTo(t.Context(), sandbox.ExecSpec{Command: "echo begun; sleep 1000", Shell: true, User: user}, &out, nil)
		ended <- err
	}()
	await(t, "the command runs", func() bool { return out.String() == "begun\n" })
	of.end("a")
	await(t, "the command ends", func() bool { return b.Runners(t.Context())[0].InFlight == 0 })
	if err := <-ended; !fault.Is(err, fault.OutcomeUnknown) {
		t.Error(err)
	}
}

// TestStuckRunner: a transfer that is passed on ends when the runner neither takes nor sends
// anything.
func TestStuckRunner(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		begin   func(on *node) error // something that needs a transfer
		request string
	}{
		"that reads nothing": {func(on *node) error {
			_, err := on.WriteFileFrom(context.Background(), "/workspace/large", io.LimitReader(zeros{}, 200<<20), 0o644, user)
			return err
		}, "GET %s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer token/u\r\n\r\n"},
		"that sends nothing": {func(on *node) error {
			_, err := on.ReadFile(context.Background(), "/workspace/large", user)
			return err
		}, "PUT %s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer token/u\r\nContent-Length: 5000000\r\nContent-Range: bytes 0-4999999/5000000\r\n\r\nx"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			stall := func(cfg *remote.Config) { cfg.Stall = 50 * time.Millisecond }
			a, b := c.node("a", stall), c.node("b", stall)
			ids, ended := make(chan string, 9), make(chan struct{})
			runner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // the runner's own transfer never begins
				if id, ok := strings.CutPrefix(r.URL.Path, wire.TransferPath); ok {
					ids <- id
					_, _ = io.Copy(io.Discard, r.Body)
					<-r.Context().Done()
					return
				}
				b.web.Config.Handler.ServeHTTP(w, r)
			}))
			t.Cleanup(runner.Close)
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "large"), make([]byte, 5_000_000), 0o600); err != nil {
				t.Fatal(err)
			}
			c.run(runner.URL, dir, "laptop")
			await(t, "the runner to connect", func() bool { return b.Here() == 1 })
			go func() { _ = one.begin(b) }()

			through := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				a.web.Config.Handler.ServeHTTP(w, r)
			}))
			defer through.Close()
			conn, err := net.Dial("tcp", through.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := fmt.Fprintf(conn, one.request, wire.TransferPath+<-ids); err != nil {
				t.Fatal(err)
			}
			await(t, "the transfer ends", func() bool {
				select {
				case <-ended:
					return true
				default:
					return false
				}
			})
			_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection stays")
			}
		})
	}
}

// zeros has content without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
