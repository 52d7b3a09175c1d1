package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"time"

	"secbox/audit"
	"secbox/internal/whole"
)

// connQueue is a listener of connections that were accepted elsewhere.
type connQueue struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (q *connQueue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

func (q *connQueue) Close() error {
	q.once.Do(func() { close(q.done) })
	return nil
}

func (q *connQueue) Addr() net.Addr { return &net.TCPAddr{} }

// Bounds of HTTP.
const (
	maxHeader     = 64 << 10 // bytes of a request's or an answer's header
	headerTimeout = 30 * time.Second
	maxIdleConns  = 8 // connections to hosts that are kept for further requests
)

type contextKey int

const (
	clientKey contextKey = iota // *clientConn of a request
	spareKey                    // *spare of a request
)

func (w *Way) startHTTP() {
	w.conns = &connQueue{conns: make(chan net.Conn), done: make(chan struct{})}
	idle := time.Duration(w.exec.Limits.NetIdleMS) * time.Millisecond
	w.requests = &http.Transport{
		DialContext: w.dialRequest, DialTLSContext: w.dialTLS,
		DisableCompression: true, MaxIdleConns: maxIdleConns, MaxIdleConnsPerHost: maxIdleConns,
		IdleConnTimeout: min(idle, 30*time.Second), MaxResponseHeaderBytes: maxHeader,
	}
	w.server = &http.Server{
		Handler: http.HandlerFunc(w.handle), ReadHeaderTimeout: headerTimeout, IdleTimeout: idle, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), DisableGeneralOptionsHandler: true,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, clientKey, c) },
	}
	go func() { _ = w.server.Serve(w.conns) }()
}

func (w *Way) stopHTTP() {
	_ = w.server.Close()
	w.requests.CloseIdleConnections()
	w.handling.Wait()
}

// serveHTTP gives a connection to the server, and returns when it has ended.
func (w *Way) serveHTTP(c *clientConn) {
	c.done = make(chan struct{})
	select {
	case w.conns.conns <- c:
		<-c.done
		if !c.asked.Load() && c.target == nil {
			w.recordRefusal(audit.ProtocolUnknown, "", 0, refuse(audit.ConnProtocol, "no request of HTTP or SOCKS5 came, and the proxy takes nothing else"))
		}
	case <-w.ctx.Done():
		_ = c.Close()
	}
}

// handle handles a request to the proxy, or one in a tunnel.
func (w *Way) handle(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	closed := w.closed
	if !closed {
		w.handling.Add(1)
	}
	w.mu.Unlock()
	if closed {
		return
	}
	defer w.handling.Done()
	c, _ := r.Context().Value(clientKey).(*clientConn)
	c.asked.Store(true)
	switch {
	case c.target != nil:
		w.handleInTunnel(rw, r, c)
	case r.Method == http.MethodConnect:
		w.handleConnect(rw, r)
	case (r.URL.Scheme == "http" || r.URL.Scheme == "ws") && r.URL.Host != "": // curl sends ws:// URLs
		r.URL.Scheme = "http"
		w.forward(rw, r)
	case r.URL.Scheme != "" && r.URL.Host != "":
		w.deny(rw, r.URL.Host, audit.ConnProtocol, "the proxy forwards http:// URLs; it carries others, such as https://, in a tunnel (CONNECT)")
	default:
		const sentence = "this is the proxy of the sandbox; send it requests with a whole URL, or CONNECT"
		w.recordRefusal(audit.ProtocolHTTP, r.Host, 0, refuse(audit.ConnProtocol, sentence))
		http.Error(rw, "secbox: "+sentence, http.StatusBadRequest)
	}
}

// handleConnect opens a tunnel.
func (w *Way) handleConnect(rw http.ResponseWriter, r *http.Request) {
	host, port, ok := splitHostPort(r.Host, 0)
	conn, buffered, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return
	}
	defer abort(conn)
	client := &clientConn{Conn: conn, r: buffered.Reader}
	if !ok {
		host, port = r.Host, 0
	}
	l, refused := w.connect(r.Context(), audit.ProtocolConnect, host, port)
	if refused != nil {
		// Many programs show the reason phrase, and nothing of the body.
		body := "secbox: " + refused.sentence + "\n"
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
			status(refused), strings.TrimSpace(body), len(body), body)
		return
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
	w.tunnel(client, l)
}

// splitHostPort splits an authority; a port of 0 as the default means that there must be one.
func splitHostPort(authority string, missing uint16) (host string, port uint16, ok bool) {
	host, text, err := net.SplitHostPort(authority)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(authority, "["), "]")
		return host, missing, missing != 0
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return host, uint16(n), err == nil && n > 0
}

// status is the HTTP status of a refusal.
func status(r *refusal) int {
	switch r.end {
	case audit.ConnFailed, audit.ConnUnresolved:
		return http.StatusBadGateway
	case audit.ConnLimit, audit.ConnExecEnded:
		return http.StatusServiceUnavailable
	case audit.ConnName:
		return http.StatusBadRequest
	}
	return http.StatusForbidden
}

// deny refuses a request and puts the refusal on record.
func (w *Way) deny(rw http.ResponseWriter, authority string, end audit.ConnEnd, sentence string) {
	host, port, _ := splitHostPort(authority, 80)
	w.recordRefusal(audit.ProtocolHTTP, host, port, refuse(end, "%s", sentence))
	http.Error(rw, "secbox: "+sentence, http.StatusForbidden)
}

// recordRefusal puts on record what was refused without a connection.
func (w *Way) recordRefusal(protocol audit.Protocol, host string, port uint16, r *refusal) {
	w.mu.Lock()
	w.asked++
	row := audit.Connection{
		ExecID: w.exec.ID, Seq: w.asked, Protocol: protocol, Host: cut(strings.ToLower(host)), Port: int64(port),
		StartedAt: w.network.cfg.Now(), EndedAt: w.network.cfg.Now(), End: r.end, Detail: r.sentence,
	}
	w.mu.Unlock()
	w.recorder.save(row, true)
}

// handleInTunnel handles a request in a tunnel, whose host must be the tunnel's.
func (w *Way) handleInTunnel(rw http.ResponseWriter, r *http.Request, c *clientConn) {
	scheme := "http"
	if c.secure {
		scheme = "https"
	}
	host, port, ok := splitHostPort(r.Host, defaultPort(scheme))
	asked, valid := parseTarget(host, port)
	// A Host header has the tunnel's port, or none.
	same := ok && valid && asked.host() == c.target.host() && (asked.port == c.target.port || !strings.Contains(r.Host, ":"))
	if r.Method == http.MethodConnect || !same || (r.URL.Host != "" && r.URL.Scheme != scheme) {
		w.deny(rw, r.Host, audit.ConnMismatch, fmt.Sprintf("a request for %s came in a tunnel to %s", whole.Shorten(r.Host), *c.target))
		return
	}
	r.URL.Scheme, r.URL.Host = scheme, c.target.String()
	w.forward(rw, r)
}

// forward sends a request to the host that its URL names.
func (w *Way) forward(rw http.ResponseWriter, r *http.Request) {
	host, port, _ := splitHostPort(r.URL.Host, defaultPort(r.URL.Scheme))
	t, valid := parseTarget(host, port)
	if !valid || w.rule(t) == "" { // on record, also if the client is gone already
		_, refused := w.connect(context.WithoutCancel(r.Context()), audit.ProtocolHTTP, host, port)
		http.Error(rw, "secbox: "+refused.sentence, status(refused))
		return
	}
	if why := w.objection(r, t, r.URL.Scheme == "https"); why != "" {
		w.deny(rw, t.String(), audit.ConnProtocol, why)
		return
	}
	r, added, refused := w.withCredentials(r, t)
	if refused != nil {
		w.recordRefusal(audit.ProtocolHTTP, host, port, refused)
		http.Error(rw, "secbox: "+refused.sentence, status(refused))
		return
	}
	proxy := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.Host = p.Out.URL.Host
			if host, port, ok := splitHostPort(p.Out.Host, 80); ok && port == defaultPort(p.Out.URL.Scheme) {
				p.Out.Host = host
				if strings.Contains(host, ":") {
					p.Out.Host = "[" + host + "]"
				}
			}
			if _, ok := p.Out.Header["User-Agent"]; !ok {
				p.Out.Header["User-Agent"] = nil // or net/http would add its own
			}
			added.to(p.Out)
		},
		ModifyResponse: func(answer *http.Response) error {
			added.hide(answer)
			return nil
		},
		Transport: w.requests, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ErrorHandler: func(rw http.ResponseWriter, r *http.Request, err error) {
			if refused, ok := errors.AsType[*refusal](err); ok {
				http.Error(rw, "secbox: "+refused.sentence, status(refused))
				return
			}
			http.Error(rw, "secbox: "+r.URL.Host+" did not answer the request: "+reason(err), http.StatusBadGateway)
		},
	}
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler { //nolint:errorlint // net/http compares it so
			panic(p)
		} else if p != nil { // the answer broke off, which the job must notice
			if conn, _, err := http.NewResponseController(rw).Hijack(); err == nil {
				abort(conn)
			}
		}
	}()
	proxy.ServeHTTP(rw, r)
}

// defaultPort is the port of URLs without one.
func defaultPort(scheme string) uint16 {
	if scheme == "https" {
		return 443
	}
	return 80
}

// dialRequest dials the host of a request.
func (w *Way) dialRequest(ctx context.Context, _, authority string) (net.Conn, error) {
	if c, ok := ctx.Value(clientKey).(*clientConn); ok && c.spare != nil {
		if l := c.spare.Swap(nil); l != nil {
			return l, nil
		}
	}
	host, port, _ := splitHostPort(authority, 80)
	l, refused := w.connect(ctx, audit.ProtocolHTTP, host, port)
	if refused != nil {
		return nil, refused
	}
	return l, nil
}

// abort ends both directions of a connection of the job.
func abort(conn net.Conn) {
	_ = conn.SetReadDeadline(time.Unix(1, 0))
	_ = conn.Close()
}
