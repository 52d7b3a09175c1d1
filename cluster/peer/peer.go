// Package peer connects the nodes of an installation by authenticated channels. Two nodes exchange
// nothing before each has proven that it has the installation's key, and which lease it holds.
//
// A node dials another node at its node.address and asks for an upgrade of the connection, as a
// WebSocket does; proxies that pass WebSockets pass it. Then both sides speak TLS 1.3 and present
// certificates. Every node derives the certificate authority from the installation's key. A
// certificate names a node and the epoch of its lease, and its private key never leaves the
// process. So a program that listens on the address of a node that has ended learns nothing that it
// could use, neither elsewhere nor with the same node after its next start. Certificates do not
// expire, so clocks do not matter. One channel carries all requests from one node to another, each
// as a stream.
//
// There are two kinds of requests. A client's request is forwarded to the node that can answer it,
// with the client's own token or session. The receiver verifies token, role and scope again: it
// trusts the forwarding node only to have checked the Host, and does not forward the request again.
// Sender answers the nodes' own requests. The package must not know routes.
package peer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"

	"secbox/cluster/nodes"
	"secbox/fault"
)

const maxFirst = 64 << 10 // bytes of a body with which a request is sent again when an idle connection was closed

// Key signs for a purpose; see hmackey.Key.
type Key interface {
	Sign(purpose, text string) string
}

// Nodes has the nodes of the installation; see nodes.Store.
type Nodes interface {
	Get(ctx context.Context, nodeID string) (nodes.Node, error)
	List(ctx context.Context, within time.Duration) ([]nodes.Node, error)
}

// Config configures Peers. All fields are required.
type Config struct {
	Self   string       // this node's id
	Epoch  func() int64 // of this node's present lease
	Key    Key
	Nodes  Nodes
	Now    func() time.Time
	Logger *slog.Logger
}

// Peers are the other nodes. It is safe for concurrent use.
type Peers struct {
	cfg        Config
	authority  authority
	transport  *http.Transport
	patient    *http.Transport // for what may take as long as the node has its lease, such as an exec
	freshFor   time.Duration   // how long a row of the database is believed
	watchEvery time.Duration   // how often a request that waits for an answer looks whether the node is live
	arrivals   *arrivals

	mu       sync.Mutex
	known    map[string]*known           // by id
	channels map[string]*channel         // to other nodes, by id
	accepted map[*yamux.Session]struct{} // of other nodes
	own      ownCertificate
	closed   bool
	serving  sync.WaitGroup // accepted channels
}

// New makes Peers. The caller must call Close.
func New(cfg Config) *Peers {
	p := &Peers{
		cfg: cfg, authority: newAuthority(cfg.Key), freshFor: freshFor, watchEvery: watchEvery, arrivals: newArrivals(),
		known: map[string]*known{}, channels: map[string]*channel{}, accepted: map[*yamux.Session]struct{}{},
	}
	p.transport = &http.Transport{
		DialContext: p.dial, ResponseHeaderTimeout: answerTimeout,
		MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
	}
	p.patient = p.transport.Clone()
	p.patient.ResponseHeaderTimeout = 0
	return p
}

// Close ends all channels, and returns when none is left.
func (p *Peers) Close() {
	p.mu.Lock()
	p.closed = true
	channels, accepted := p.channels, p.accepted
	p.channels, p.accepted = map[string]*channel{}, map[*yamux.Session]struct{}{}
	p.mu.Unlock()
	for _, c := range channels {
		c.close()
	}
	for session := range accepted {
		_ = session.Close()
	}
	_ = p.arrivals.Close()
	p.transport.CloseIdleConnections()
	p.patient.CloseIdleConnections()
	p.serving.Wait()
}

// Other reports whether nodeID names another node.
func (p *Peers) Other(nodeID string) bool { return nodeID != "" && nodeID != p.cfg.Self }

type senderKey struct{}

// ConnContext is the http.Server.ConnContext of the server that answers what Arrivals accepts.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if s, ok := c.(*stream); ok {
		return context.WithValue(ctx, senderKey{}, s.from)
	}
	return ctx
}

// From returns the node whose channel a request has come through; empty for a request of a client.
// fault.NodeUnreachable if that node has lost the lease under which it has proven itself.
func (p *Peers) From(r *http.Request) (nodeID string, err error) {
	from, ok := r.Context().Value(senderKey{}).(identity)
	if !ok {
		return "", nil
	}
	return from.nodeID, p.checkLease(r.Context(), from)
}

// Sender is From for a request that nodes make themselves: fault.NodeUnreachable for a request of a
// client, too.
func (p *Peers) Sender(r *http.Request) (nodeID string, err error) {
	nodeID, err = p.From(r)
	if err == nil && nodeID == "" {
		err = fault.New(fault.NodeUnreachable, "only nodes of the installation may make this request")
	}
	return nodeID, err
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// body is the body of a request that is forwarded.
type body struct {
	first  []byte                // all of it, if rest is nil
	rest   io.Reader             // of the client's connection: the request cannot be sent again
	size   int64                 // bytes in all; negative: not known
	failed atomic.Pointer[error] // of reading rest
}

// takeBody reads the beginning of a request's body.
func takeBody(r *http.Request) (*body, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return &body{}, nil
	}
	first, err := io.ReadAll(io.LimitReader(r.Body, maxFirst+1))
	switch {
	case err != nil:
		return nil, fault.From(err)
	case len(first) > maxFirst:
		return &body{first: first, rest: r.Body, size: r.ContentLength}, nil
	}
	return &body{first: first, size: int64(len(first))}, nil
}

// become makes the body the one of a request.
func (b *body) become(r *http.Request) {
	r.ContentLength, r.TransferEncoding = b.size, nil
	r.Body, r.GetBody = http.NoBody, nil
	switch {
	case b.rest != nil:
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(b.first), b))
	case len(b.first) > 0:
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.first)), nil }
		r.Body, _ = r.GetBody()
	}
}

// Read reads the rest.
func (b *body) Read(p []byte) (n int, err error) {
	n, err = b.rest.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.failed.Store(&err)
	}
	return n, err
}
