package peer

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"secbox/fault"
)

// Path is where nodes take the channels of others, on the address of their API.
const Path = "/internal/node"

const (
	maxAnswer    = 8 << 10
	streamWindow = 512 << 10 // bytes of a stream under way
	streamClose  = 2 * time.Second
	failedFor    = time.Second // how long the failure of an attempt to open a channel is the answer of the next
)

func muxConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	c.LogOutput, c.MaxStreamWindowSize, c.StreamCloseTimeout = io.Discard, streamWindow, streamClose
	c.EnableKeepAlive = false // TCP's ends a channel to a machine that is gone, and Peers.watch one to a node that has lost its lease
	return c
}

// stream carries one connection of HTTP.
type stream struct {
	*yamux.Stream
	from identity // the node on the other side
}

// Close also ends a Read, which yamux leaves waiting for the other side.
func (s *stream) Close() error {
	_ = s.SetReadDeadline(time.Unix(1, 0))
	return s.Stream.Close()
}

// link is what a channel has proven: who is at its ends, and under which leases.
type link struct {
	to   identity
	from int64 // epoch of this node
}

// host is the host of URLs. Connections of HTTP are kept by it, so that none outlives a lease.
func (l link) host() string { return fmt.Sprintf("%s.%d.%d", l.to.nodeID, l.to.epoch, l.from) }

// linkOf parses a host with its port.
func linkOf(address string) (l link, err error) {
	host, _, _ := strings.Cut(address, ":")
	parts := strings.Split(host, ".")
	if len(parts) < 3 {
		return l, fmt.Errorf("no node: %q", address)
	}
	last := len(parts) - 2
	l.to.nodeID = strings.Join(parts[:last], ".")
	l.to.epoch, err = strconv.ParseInt(parts[last], 10, 64)
	if err == nil {
		l.from, err = strconv.ParseInt(parts[last+1], 10, 64)
	}
	return l, err
}

// channel leads to another node.
type channel struct {
	mu      sync.Mutex
	link    link
	session *yamux.Session
	conn    net.Conn
	attempt *attempt // the last one to open it; nil: there was none
}

// attempt is one attempt to open a channel, for all who need it meanwhile.
type attempt struct {
	of   link
	done chan struct{}
	at   time.Time // of its end
	err  error     // after done
}

func (c *channel) open(of link) *yamux.Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil || c.link != of || c.session.IsClosed() {
		return nil
	}
	return c.session
}

func (c *channel) set(of link, session *yamux.Session, conn net.Conn) {
	c.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link, c.session, c.conn = of, session, conn
}

// close ends the channel at once, also one whose other side takes nothing.
func (c *channel) close() {
	c.mu.Lock()
	session, conn := c.session, c.conn
	c.session, c.conn = nil, nil
	c.mu.Unlock()
	if session != nil {
		_ = conn.Close()
		_ = session.Close()
	}
}

func (p *Peers) channelTo(nodeID string) (*channel, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, net.ErrClosed
	}
	c := p.channels[nodeID]
	if c == nil {
		c = &channel{}
		p.channels[nodeID] = c
	}
	return c, nil
}

// drop ends the channel to a node that has lost its lease. A frozen node would keep it open.
func (p *Peers) drop(nodeID string) {
	p.mu.Lock()
	c := p.channels[nodeID]
	delete(p.channels, nodeID)
	p.mu.Unlock()
	if c != nil {
		c.close()
	}
}

// dial is http.Transport.DialContext, for the host of a link.
func (p *Peers) dial(ctx context.Context, _, address string) (net.Conn, error) {
	of, err := linkOf(address)
	if err != nil {
		return nil, err
	}
	c, err := p.channelTo(of.to.nodeID)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		session := c.open(of)
		if session == nil {
			if err := p.connect(ctx, c, of); err != nil {
				return nil, err
			}
			if session = c.open(of); session == nil {
				return nil, net.ErrClosed
			}
		}
		s, err := session.OpenStream()
		if err == nil {
			return &stream{s, of.to}, nil
		}
		if try == 2 {
			return nil, err
		}
	}
}

// connect waits until a channel is open. All who wait share one attempt, and its failure is
// remembered for a moment: requests to a node that is silent do not wait one after the other.
func (p *Peers) connect(ctx context.Context, c *channel, of link) error {
	c.mu.Lock()
	a := c.attempt
	if a == nil || a.of != of || a.ended() && (a.err == nil || p.cfg.Now().Sub(a.at) >= failedFor) {
		a = &attempt{of: of, done: make(chan struct{})}
		c.attempt = a
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
			defer cancel()
			a.err = p.openChannel(ctx, c, of)
			a.at = p.cfg.Now()
			close(a.done)
		}()
	}
	c.mu.Unlock()
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (a *attempt) ended() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// openChannel makes both sides prove themselves.
func (p *Peers) openChannel(ctx context.Context, c *channel, of link) error {
	n, err := p.lookup(ctx, of.to.nodeID, p.freshFor)
	if err != nil {
		return err
	}
	conn, err := p.upgrade(ctx, n.Address)
	if err != nil {
		return err
	}
	config := p.tlsConfig()
	config.VerifyConnection = func(s tls.ConnectionState) error {
		if is, err := peerOf(s); err != nil || is != of.to {
			return errors.Join(errOther, err)
		}
		return nil
	}
	below := newBuffered(conn)
	secured := tls.Client(below, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		if errors.Is(err, errOther) {
			p.forget(of.to.nodeID) // its row may be newer
			return errOther
		}
		return fmt.Errorf("it does not prove that it has this installation's key (audit.hmac_key_file): %w", err)
	}
	below.start()
	session, err := yamux.Client(secured, muxConfig())
	if err != nil {
		_ = below.Close()
		return err
	}
	c.set(of, session, below)
	p.mu.Lock()
	dropped := p.closed || p.channels[of.to.nodeID] != c // meanwhile
	p.mu.Unlock()
	if dropped {
		c.close()
		return net.ErrClosed
	}
	return nil
}

// upgrade dials an address and asks for a channel. It tells nothing but that.
func (p *Peers) upgrade(ctx context.Context, address string) (net.Conn, error) {
	target, err := url.Parse(address)
	if err != nil || target.Hostname() == "" {
		return nil, errors.New("its node.address is not a URL")
	}
	port := target.Port()
	if port == "" {
		port = map[string]string{"https": "443"}[target.Scheme]
	}
	if port == "" {
		port = "80"
	}
	conn, err := (&net.Dialer{KeepAliveConfig: alive}).DialContext(ctx, "tcp", net.JoinHostPort(target.Hostname(), port))
	if err != nil {
		return nil, err
	}
	if target.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{ServerName: target.Hostname(), MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	}
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	fail := func(err error) (net.Conn, error) {
		_ = conn.Close()
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", Path, target.Host,
		protocol); err != nil {
		return fail(err)
	}
	buffered := bufio.NewReader(io.LimitReader(conn, maxAnswer))
	answer, err := http.ReadResponse(buffered, nil)
	if err != nil {
		return fail(fmt.Errorf("it does not answer by HTTP: %w", err))
	}
	_ = answer.Body.Close()
	switch {
	case answer.StatusCode != http.StatusSwitchingProtocols || !strings.EqualFold(answer.Header.Get("Upgrade"), protocol):
		return fail(fmt.Errorf("it answers %d instead of opening a channel of nodes: it runs another version of core-api, or a proxy "+
			"before it passes no upgrades", answer.StatusCode))
	case buffered.Buffered() > 0:
		return fail(errors.New("it speaks before it is spoken to"))
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, nil
}

// alive ends connections to a machine that is gone after 20 seconds.
var alive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}

// ServeHTTP takes the channel of another node, at Path of this one's address. It returns when the
// channel has ended. A stranger's attempt costs at most one handshake, and a connection for three
// seconds, which counts towards the limit of its address.
func (p *Peers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || !strings.EqualFold(r.Header.Get("Upgrade"), protocol) {
		w.Header().Set("Upgrade", protocol)
		http.Error(w, "only nodes of the installation use this address", http.StatusUpgradeRequired)
		return
	}
	session, from, err := p.accept(w, r)
	if err != nil {
		p.cfg.Logger.Debug("a channel of nodes was not opened", "address", r.RemoteAddr, "error", err)
		return
	}
	defer p.leave(session)
	for {
		s, err := session.AcceptStream()
		if err != nil || !p.arrivals.put(&stream{s, from}) {
			return
		}
	}
}

// accept makes both sides prove themselves.
func (p *Peers) accept(w http.ResponseWriter, r *http.Request) (*yamux.Session, identity, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, identity{}, err
	}
	fail := func(err error) (*yamux.Session, identity, error) {
		_ = conn.Close()
		return nil, identity{}, err
	}
	_ = conn.SetDeadline(time.Now().Add(dialTimeout))
	if buffered.Reader.Buffered() > 0 {
		return fail(errors.New("it goes on before the answer"))
	}
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol); err != nil {
		return fail(err)
	}
	below := newBuffered(conn)
	secured := tls.Server(below, p.tlsConfig())
	if err := secured.HandshakeContext(r.Context()); err != nil {
		return fail(err)
	}
	from, err := peerOf(secured.ConnectionState())
	if err == nil {
		err = p.checkLease(r.Context(), from)
	}
	if err != nil {
		return fail(err)
	}
	_ = conn.SetDeadline(time.Time{})
	below.start()
	session, err := yamux.Server(secured, muxConfig())
	if err != nil {
		_ = below.Close()
		return nil, identity{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = session.Close()
		return nil, identity{}, net.ErrClosed
	}
	p.accepted[session] = struct{}{}
	p.serving.Add(1)
	return session, from, nil
}

func (p *Peers) leave(session *yamux.Session) {
	p.mu.Lock()
	delete(p.accepted, session)
	p.mu.Unlock()
	_ = session.Close()
	p.serving.Done()
}

// arrivals is a net.Listener of the streams of other nodes.
type arrivals struct {
	streams chan *stream
	closed  chan struct{}
	once    sync.Once
}

func newArrivals() *arrivals {
	return &arrivals{streams: make(chan *stream), closed: make(chan struct{})}
}

// Arrivals accepts the connections of other nodes, for an http.Server with ConnContext.
func (p *Peers) Arrivals() net.Listener { return p.arrivals }

func (a *arrivals) put(s *stream) bool {
	select {
	case a.streams <- s:
		return true
	case <-a.closed:
		_ = s.Close()
		return false
	}
}

// Accept implements net.Listener.
func (a *arrivals) Accept() (net.Conn, error) {
	select {
	case s := <-a.streams:
		return s, nil
	case <-a.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (a *arrivals) Close() error {
	a.once.Do(func() { close(a.closed) })
	return nil
}

// Addr implements net.Listener.
func (a *arrivals) Addr() net.Addr { return channelAddr{} }

type channelAddr struct{}

func (channelAddr) Network() string { return "node" }
func (channelAddr) String() string  { return Path }

// URL returns the URL by which Transport reaches a node for a path with its query.
// fault.NodeUnreachable for a node that cannot be asked.
func (p *Peers) URL(ctx context.Context, nodeID, uri string) (string, error) {
	to, err := p.target(ctx, nodeID, "node "+nodeID)
	if err != nil {
		return "", err
	}
	return "http://" + to.host() + uri, nil
}

// Transport sends requests to URLs of URL.
func (p *Peers) Transport() http.RoundTripper { return p.transport }

// target returns the link to a node that is live. title names the node in errors.
func (p *Peers) target(ctx context.Context, nodeID, title string) (link, error) {
	n, err := p.lookup(ctx, nodeID, p.freshFor)
	if err != nil {
		return link{}, unreachable(title, err, fault.From(err).Message)
	}
	if why := whyUnreachable(n); why != "" {
		return link{}, unreachable(title, nil, why)
	}
	return link{identity{nodeID, n.Epoch}, p.cfg.Epoch()}, nil
}
