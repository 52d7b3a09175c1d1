// Package peer forwards requests of clients to the node of the installation that can answer them. The node marks what it forwards with a header that is
// signed with a key of the installation. The mark says two things only: that node has checked the Host, and no node forwards the request again. It gives
// no rights: the receiving node verifies the client's own token or session, its role and its scope once more. The signature covers the whole request
// with the client's credentials and the receiver, for a minute; within that time, only a program that has the credentials could repeat a request, and it
// needs no mark for that.
//
// Nodes also make requests of their own, of which clients know nothing: their marks are good once. The package must not know routes.
package peer

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"secbox/fault"
	"secbox/nodes"
)

// Header marks a request that a node has forwarded: the node's id, the time in Unix milliseconds, the SHA-256 of the body, and the signature.
const Header = "Secbox-Peer"

const (
	purpose = "peer requests 1" // of the key; the number is that of the form of marks
	maxSkew = time.Minute       // between the clocks of two nodes, and the life of a mark
	maxBody = 64 << 10          // bytes that are forwarded: a form
)

// Key signs for a purpose; see keyed.Key.
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
	Self  string // this node's id
	Key   Key
	Nodes Nodes
	Now   func() time.Time
}

// Peers are the other nodes. It is safe for concurrent use.
type Peers struct {
	cfg        Config
	transport  *http.Transport
	freshFor   time.Duration // how long a row of the database is believed
	watchEvery time.Duration // how often a request that waits for an answer looks whether the node is live
	maxNonces  int

	mu        sync.Mutex
	known     map[string]*known    // by id
	nonces    map[string]time.Time // of marks that Sender has accepted, with the time in them
	nextSweep int                  // how many nonces there are before old ones are removed
}

// New makes Peers. The caller must call Close.
func New(cfg Config) *Peers {
	return &Peers{cfg: cfg, known: map[string]*known{}, nonces: map[string]time.Time{}, freshFor: freshFor, watchEvery: watchEvery, maxNonces: maxNonces, transport: &http.Transport{
		DialContext: (&net.Dialer{Timeout: dialTimeout, KeepAliveConfig: alive}).DialContext, TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: answerTimeout,
		MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
	}}
}

// alive ends connections to a machine that is gone after 20 seconds.
var alive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}

// Close closes idle connections.
func (p *Peers) Close() { p.transport.CloseIdleConnections() }

// Other reports whether an id is that of another node.
func (p *Peers) Other(nodeID string) bool { return nodeID != "" && nodeID != p.cfg.Self }

// sign signs a request with its mark. The receiver is in it, so that no mark is good for a third node.
func (p *Peers) sign(r *http.Request, uri, to, unsigned string) string {
	words := []string{r.Method, uri, r.Host, to, unsigned, r.Header.Get("X-Forwarded-Proto")}
	for _, name := range []string{"Authorization", "Cookie"} {
		words = append(words, digest([]byte(strings.Join(r.Header.Values(name), "\n"))))
	}
	return p.cfg.Key.Sign(purpose, strings.Join(words, "\n")) // no word but the last ones' inputs could have a line break
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// From returns the node that has forwarded a request, and takes the mark off it; empty for a request without a mark. fault.NodeUnreachable for a mark that is
// not good.
func (p *Peers) From(r *http.Request) (nodeID string, err error) {
	marks := r.Header.Values(Header)
	if len(marks) == 0 {
		return "", nil
	}
	r.Header.Del(Header)
	cut := strings.LastIndexByte(marks[0], ' ')
	parts := strings.Split(marks[0], " ")
	if len(marks) > 1 || len(parts) != 4 {
		return "", fault.New(fault.NodeUnreachable, "malformed header %s: only nodes of the installation send it", Header)
	}
	if !hmac.Equal([]byte(parts[3]), []byte(p.sign(r, r.RequestURI, p.cfg.Self, marks[0][:cut]))) {
		return "", fault.New(fault.NodeUnreachable, "the header %s is not signed for this node with its key; give all nodes the same audit.hmac_key_file, and each its own node.address", Header)
	}
	ms, err := strconv.ParseInt(parts[1], 10, 64)
	if skew := p.cfg.Now().Sub(time.UnixMilli(ms)); err != nil || skew.Abs() > maxSkew {
		return "", fault.New(fault.NodeUnreachable, "the clocks of the nodes differ by more than %v; synchronize them", maxSkew)
	}
	body, err := takeBody(r)
	if err != nil {
		return "", err
	}
	if digest(body) != parts[2] {
		return "", fault.New(fault.NodeUnreachable, "the body is not the one that the header %s is signed for", Header)
	}
	return parts[0], nil
}

// takeBody reads the body of a request and gives it back to it.
func takeBody(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, fault.From(err)
	case len(body) > maxBody:
		return nil, fault.New(fault.BodyTooLarge, "the body has more than %d bytes; a request that is forwarded to another node may have as many", maxBody)
	}
	setBody(r, body)
	return body, nil
}

func setBody(r *http.Request, body []byte) {
	r.ContentLength, r.TransferEncoding = int64(len(body)), nil
	r.Body, r.GetBody = http.NoBody, nil
	if len(body) > 0 {
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		r.Body, _ = r.GetBody()
	}
}
