package peer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"secbox/fault"
)

const (
	dialTimeout   = 3 * time.Second
	answerTimeout = 15 * time.Second // until the header of the answer to a request that changes nothing
	retryAfter    = 5 * time.Second
)

// unreachable is the error of a node that cannot be asked; title names it.
func unreachable(title string, cause error, why string) error {
	e := fault.Wrap(fault.NodeUnreachable, cause, "%s cannot be reached: %s", title, why)
	e.RetryAfter = retryAfter
	return e
}

// Forward answers a request with the answer of another node, which passes as the client reads it.
// One that is no POST, or has an Idempotency-Key, may be sent again. Before anything is written, it
// fails with fault.NodeUnreachable or the error of reading the request's body. When the other node
// ends in the middle of an answer, a stream of events ends like any other, so that the client comes
// again. Any other answer ends with an error, after which the caller must cut the client's
// connection. A request for a WebSocket is answered with a connection, which lasts as long as both
// sides, the node's lease, and the request's context.
func (p *Peers) Forward(w http.ResponseWriter, r *http.Request, nodeID string) error {
	title := "node " + nodeID + ", which has the exec,"
	to, err := p.target(r.Context(), nodeID, title)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	go p.watch(ctx, nodeID, cancel)
	if r.Header.Get("Upgrade") != "" {
		return p.forwardSocket(w, r.WithContext(ctx), to, title)
	}
	body, err := takeBody(r)
	if err != nil {
		return err
	}
	transport := p.transport
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		transport = p.patient
	}
	answer, err := transport.RoundTrip(outgoing(r.WithContext(ctx), to, body))
	if err != nil {
		if failed := body.failed.Load(); failed != nil { // the client's
			return *failed
		}
		if r.Context().Err() == nil && context.Cause(ctx) != nil {
			err = context.Cause(ctx)
		}
		return unreachable(title, err, why(err))
	}
	defer answer.Body.Close()
	removeHopByHop(answer.Header)
	for name, values := range answer.Header {
		w.Header()[name] = values // also in place of what this node has set for every answer
	}
	w.WriteHeader(answer.StatusCode)
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if kind == "text/event-stream" {
		_ = pass(w, answer.Body, true)
		return nil
	}
	return pass(w, answer.Body, false)
}

// forwardSocket answers a request for a WebSocket with a connection to another node.
func (p *Peers) forwardSocket(w http.ResponseWriter, r *http.Request, to link, title string) (err error) {
	proxy := httputil.ReverseProxy{
		Transport: p.transport,
		Rewrite: func(asked *httputil.ProxyRequest) {
			asked.Out.URL.Scheme, asked.Out.URL.Host, asked.Out.Host = "http", to.host(), asked.In.Host
			if secure := asked.In.Header.Get("X-Forwarded-Proto"); secure != "" {
				asked.Out.Header.Set("X-Forwarded-Proto", secure)
			}
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, cause error) { err = unreachable(title, cause, why(cause)) },
		ErrorLog:     slog.NewLogLogger(p.cfg.Logger.Handler(), slog.LevelDebug),
	}
	proxy.ServeHTTP(w, r)
	return err
}

// why says what to do about a node that has not answered.
func why(err error) string {
	var network net.Error
	switch {
	case errors.Is(err, errOther):
		return errOther.Error()
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, yamux.ErrSessionShutdown),
		fault.Is(err, fault.NodeUnreachable):
		return "it does not answer; if it has ended, another node ends its execs as lost within node.lease_seconds"
	}
	return err.Error()
}

// outgoing returns a request for another node.
func outgoing(r *http.Request, to link, body *body) *http.Request {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.RequestURI = "http", to.host(), ""
	removeHopByHop(out.Header)
	const key = "Idempotency-Key"
	if out.Header.Get(key) == "" && r.Method != http.MethodPost {
		out.Header[key] = nil // sends none, and lets the transport try again when the other node has closed an idle connection
	}
	body.become(out)
	return out
}

// removeHopByHop removes what is about one connection only.
func removeHopByHop(h http.Header) {
	for _, list := range h.Values("Connection") {
		for name := range strings.SplitSeq(list, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{
		"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te",
		"Trailer", "Transfer-Encoding", "Upgrade",
	} {
		h.Del(name)
	}
}

var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// pass copies an answer. Of a stream of events, it sends each piece at once.
func pass(w http.ResponseWriter, body io.Reader, events bool) error {
	buffer := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buffer)
	conn := http.NewResponseController(w)
	for {
		n, err := body.Read(buffer[:])
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return err
			}
			if events {
				if err := conn.Flush(); err != nil {
					return err
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
