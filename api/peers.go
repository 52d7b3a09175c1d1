package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"secbox/api/problem"
	"secbox/audit"
)

// While an exec runs, only its node has its output and can end it. Other nodes forward requests
// about it there.

const (
	forwardPrice = 128 << 10 // bytes of memory that are counted for a forwarded request: its body, a connection and a buffer

	maxRefusal = 1000 // bytes of an answer other than events that are logged

	askAgain = 5 * time.Second // before a stream asks a node again that did not answer
)

// arrived finds out whether a request was forwarded by another node.
func (s *Server) arrived(r *http.Request) (err error) {
	if s.cfg.Peers == nil {
		return nil
	}
	call := callFrom(r.Context())
	call.peer, err = s.cfg.Peers.From(r)
	return err
}

// secure reports whether the client's connection is TLS. The node that has forwarded a request
// knows it.
func (s *Server) secure(call *call, r *http.Request) bool {
	if call.peer != "" {
		return r.Header.Get("X-Forwarded-Proto") == "https"
	}
	return s.gate.Secure(r)
}

// away returns the other node that runs an exec, or has it in its queue; empty if there is none. A
// request that was forwarded stays here.
func (s *Server) away(call *call, rec audit.Record) (nodeID string) {
	if s.cfg.Peers == nil || call.peer != "" || rec.Status.Final() || !s.cfg.Peers.Other(rec.NodeID) {
		return ""
	}
	return rec.NodeID
}

// forward answers a request with the answer of another node.
func (s *Server) forward(call *call, w http.ResponseWriter, r *http.Request, nodeID string) error {
	if err := call.reserve(forwardPrice); err != nil {
		return err
	}
	defer func() { _ = call.reserve(-forwardPrice) }() // a stream of events may forward again and again
	call.node = nodeID
	out := r.Clone(r.Context())
	// by which a client could pretend
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		out.Header.Del(name)
	}
	if s.secure(call, r) {
		out.Header.Set("X-Forwarded-Proto", "https")
	}
	return s.cfg.Peers.Forward(w, out, nodeID)
}

// forwarded is forward for an operation that takes no body.
func (s *Server) forwarded(call *call, nodeID string) raw {
	return func(w http.ResponseWriter) error {
		r := call.request.Clone(call.request.Context())
		r.Body, r.ContentLength = http.NoBody, 0
		return s.forward(call, w, r, nodeID)
	}
}

// forwardedJSON is forward for an operation whose body was decoded.
func (s *Server) forwardedJSON(call *call, nodeID string, body any) raw {
	return func(w http.ResponseWriter) error {
		content, err := json.Marshal(body)
		if err != nil {
			return err
		}
		if err := call.reserve(int64(len(content))); err != nil {
			return err
		}
		r := call.request.Clone(call.request.Context())
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
		return s.forward(call, w, r, nodeID)
	}
}

// untilClosing returns a context that also ends when this node shuts down.
func (s *Server) untilClosing(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// relay goes on with a stream of events as another node has it after the event with an id. The
// header was sent. passed is not set if that node sent nothing.
func (s *Server) relay(call *call, w http.ResponseWriter, r *http.Request, nodeID, lastEventID string) (passed bool) {
	ctx, cancel := s.untilClosing(r.Context())
	defer cancel()
	out := r.Clone(ctx)
	out.Header.Set("Last-Event-ID", lastEventID)
	answer := &relayed{ResponseWriter: w, header: http.Header{}}
	err := s.forward(call, answer, out, nodeID)
	if last := s.relayFailed.Load(); !answer.passed && ctx.Err() == nil && time.Since(time.Unix(last, 0)) > askAgain &&
		s.relayFailed.CompareAndSwap(last, time.Now().Unix()) {
		s.log.Warn("a node does not pass on the events of an exec that it runs; its output is shown when it has ended", "node", nodeID,
			"error", err, "answer", problem.Clip(string(answer.refusal)))
	}
	return answer.passed
}

// relayed passes the body of an answer on as part of one whose header was sent, if it is a stream
// of events.
type relayed struct {
	http.ResponseWriter
	header  http.Header
	status  int
	passed  bool
	refusal []byte // of another answer, the beginning
}

func (w *relayed) Header() http.Header { return w.header }

func (w *relayed) WriteHeader(status int) { w.status = status }

func (w *relayed) Write(p []byte) (int, error) {
	if w.status != http.StatusOK {
		w.refusal = append(w.refusal, p[:min(len(p), maxRefusal-len(w.refusal))]...)
		return len(p), nil
	}
	w.passed = true
	return w.ResponseWriter.Write(p)
}

func (w *relayed) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// relay goes on with the events of an exec that another node runs, to their end. The client comes
// again if that is not the end of the exec. passed is not set if the stream stays here.
func (x *execStream) relay(ctx context.Context) (passed bool, err error) {
	if x.raw == nil || time.Since(x.asked) < askAgain {
		return false, nil
	}
	node := x.server.away(x.call, x.watch.State().Record)
	if node == "" {
		return false, nil
	}
	if x.server.cfg.Peers.Reaches(ctx, node) {
		if err := x.out.Flush(); err != nil {
			return false, err
		}
		if x.server.relay(x.call, x.raw, x.call.request, node, x.at.String()) {
			return true, nil
		}
	}
	x.asked = time.Now()
	time.AfterFunc(askAgain, x.watch.Wake)
	return false, ctx.Err()
}
