package network

import (
	"bufio"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"secbox/audit"
	"secbox/policy"
)

// Exec is the exec whose connections a Way carries.
type Exec struct {
	ID     string
	Token  string   // whose share of connections they use
	Allow  []string // the hosts, see policy.HostRule
	Limits policy.NetLimits
	// Credentials are added to requests to their hosts.
	Credentials []policy.Credential
}

// Way is the way out of one exec. It is safe for concurrent use.
type Way struct {
	network  *Network
	exec     Exec
	rules    []policy.HostRule
	recorder *recorder
	server   *http.Server
	conns    *connQueue
	requests *http.Transport // of requests that name their host

	out, in atomic.Int64 // bytes of all connections

	mu      sync.Mutex
	links   map[*link]bool
	visits  map[visitor]*visit
	asked   int64
	visited int64 // of asked

	visitedOut, visitedIn int64 // bytes of visits that have ended

	closed bool

	ctx        context.Context // ends with Close
	end        context.CancelFunc
	connecting sync.WaitGroup // calls of connect
	handling   sync.WaitGroup // HTTP requests
}

// Open makes the way out of an exec. The caller must call Close.
func (n *Network) Open(exec Exec) *Way {
	w := &Way{
		network: n, exec: exec, rules: policy.HostRules(exec.Allow), links: map[*link]bool{},
		visits: map[visitor]*visit{}, recorder: newRecorder(n.cfg.Store, n.cfg.Logger),
	}
	w.ctx, w.end = context.WithCancel(context.Background())
	w.startHTTP()
	go w.watchIdle()
	n.mu.Lock()
	n.ways[exec.ID] = w
	n.mu.Unlock()
	return w
}

// Close ends all connections, and returns what the exec's record tells of them. It waits until
// their rows are stored, or cannot be: then Traffic has them. Call it once, when no call of Serve
// is left.
func (w *Way) Close() audit.Traffic {
	w.network.mu.Lock()
	delete(w.network.ways, w.exec.ID)
	w.network.mu.Unlock()
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.end()
	w.connecting.Wait()
	w.mu.Lock()
	open := slices.Collect(maps.Keys(w.links))
	w.mu.Unlock()
	for _, l := range open {
		l.finish(audit.ConnExecEnded, "the exec has ended")
	}
	w.stopHTTP()
	visitedOut, visitedIn := w.endVisits()
	t := w.recorder.close()
	t.BytesOut, t.BytesIn, t.Connections, t.Denied = w.out.Load()+visitedOut, w.in.Load()+visitedIn, w.asked, w.recorder.denied.Load()
	return t
}

// firstByte is how long a new connection may take until its first byte.
const firstByte = 30 * time.Second

// Serve speaks with the job over a connection to its proxy, until either ends.
func (w *Way) Serve(ctx context.Context, conn net.Conn) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetReadDeadline(time.Now().Add(firstByte))
	c := &clientConn{Conn: conn, r: bufio.NewReaderSize(conn, 4<<10)}
	first, err := c.r.Peek(1)
	if err != nil {
		_ = conn.Close()
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	if first[0] == socksVersion {
		defer conn.Close()
		w.serveSOCKS(ctx, c)
		return
	}
	w.serveHTTP(c)
}

// watchIdle closes connections without traffic.
func (w *Way) watchIdle() {
	idle := time.Duration(w.exec.Limits.NetIdleMS) * time.Millisecond
	tick := time.NewTicker(max(min(idle/4, 10*time.Second), 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-tick.C:
		}
		w.mu.Lock()
		var late []*link
		for l := range w.links {
			if time.Since(time.Unix(0, l.active.Load())) > idle {
				late = append(late, l)
			}
		}
		w.mu.Unlock()
		for _, l := range late {
			l.finish(audit.ConnIdle, "no byte either way for net.idle_ms")
		}
	}
}

// clientConn is a connection of the job whose first bytes were looked at.
type clientConn struct {
	net.Conn
	r      *bufio.Reader
	target *target               // what a tunnel was opened to; nil: requests name their hosts
	rest   io.Reader             // what follows the first bytes; nil: r
	secure bool                  // the requests in it came over TLS, which core-api has ended
	spare  *atomic.Pointer[link] // the connection of a tunnel, for its first request; may be nil
	asked  atomic.Bool           // it had a request of HTTP
	done   chan struct{}         // closed with the connection, if not nil
	once   sync.Once
}

func (c *clientConn) Read(p []byte) (int, error) {
	if c.rest != nil {
		return c.rest.Read(p)
	}
	return c.r.Read(p)
}

func (c *clientConn) Close() error {
	if c.done != nil {
		c.once.Do(func() { close(c.done) })
	}
	return c.Conn.Close()
}
