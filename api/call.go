package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"secbox/access/tokens"
	"secbox/api/inflight"
	"secbox/api/problem"
	"secbox/fault"
	"secbox/internal/admission"
	"secbox/internal/traces"
	"secbox/runner"
)

// call is the state of one request.
type call struct {
	id      string                // random; the log and the answer have it
	route   string                // the contract's path; empty until a route matched
	caller  tokens.Token          // zero on public routes
	peer    string                // the node that has forwarded the request; empty: it comes from a client
	node    string                // the node that the request was forwarded to; empty: none
	request *http.Request         // as received
	memory  *inflight.Reservation // nil before the gate
	body    *inflight.Body        // nil: the request has none
	span    traces.Span           // none before the gate
	write   raw                   // sends the answer; nil: generated code does

	verifyEvery time.Duration // of the token while the answer is sent; 0: see stillValid
}

type callKey struct{}

func callFrom(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	if c == nil {
		c = &call{}
	}
	return c
}

// reserve counts bytes of memory before they are used; fault.ServerBusy if they do not fit. A
// negative number gives bytes back.
func (c *call) reserve(bytes int64) error {
	if c.memory == nil {
		return nil
	}
	if bytes < 0 {
		c.memory.Force(bytes)
		return nil
	}
	return c.memory.Grow(bytes)
}

// contentPrice is the memory that one byte of a displayed file takes: the content, the answer's
// text, and the answer encoded.
const contentPrice = 4

// reserveContent counts the memory for an answer with so many bytes of a file; fault.ServerBusy if
// it does not fit.
func (c *call) reserveContent(bytes int) error { return c.reserve(contentPrice * int64(bytes)) }

// outermost gives a request its id, security headers, log line and metrics, and recovers from a
// panic.
func (s *Server) outermost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := s.cfg.Now()
		var id [8]byte
		rand.Read(id[:]) // never fails
		c := &call{id: hex.EncodeToString(id[:])}
		ctx := runner.Counted(traces.FromHeader(context.WithValue(r.Context(), callKey{}, c), r.Header), c.reserve)
		r = r.WithContext(admission.WithProcessors(ctx, s.processors, func() string { return c.caller.ID }))
		answer := &answerWriter{ResponseWriter: w, request: r, drain: min(time.Second, s.cfg.Bounds.Rest/2)}

		h := w.Header()
		h.Set(problem.RequestIDHeader, c.id)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", problem.CSP)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")

		s.beginDeadlines(w, r)
		s.metrics.inFlight.Inc()
		defer func() {
			cause := recover()
			if cause != nil && !isAbort(cause) {
				s.log.Error("a request panicked", "request_id", c.id, "panic", cause, "stack", string(debug.Stack()))
				if answer.status == 0 {
					problem.Write(answer, r, fault.From(errors.New("panic")))
					cause = nil
				}
			}
			took := s.cfg.Now().Sub(began)
			s.metrics.inFlight.Dec()
			s.metrics.count(c.route, r.Method, answer.status, took)
			c.endSpan(r.Method, answer.status)
			level := slog.LevelInfo
			if c.caller.ID == "" && answer.status < 400 {
				level = slog.LevelDebug // probes and pages
			}
			words := []any{
				"request_id", c.id, "method", r.Method, "path", r.URL.Path, "status", answer.status,
				"bytes", answer.bytes, "ms", took.Milliseconds(), "token", c.caller.ID, "remote", s.gate.ClientAddress(r), "cut_off",
				cause != nil,
			}
			if c.peer != "" {
				words = append(words, "forwarded_by", c.peer)
			}
			if c.node != "" {
				words = append(words, "forwarded_to", c.node)
			}
			s.log.Log(r.Context(), level, "request", words...)
			if cause != nil {
				panic(http.ErrAbortHandler) // cuts the connection, so that the client notices that the answer is incomplete
			}
		}()
		body := r.Body
		next.ServeHTTP(answer, r)
		answer.takeRest(body)
	})
}

// endSpan ends the request's span. The path is not in it: it may name files.
func (c *call) endSpan(method string, status int) {
	if !c.span.Recording() {
		return
	}
	c.span.Set(
		traces.Text("http.request.method", method), traces.Text("http.route", c.route),
		traces.Int("http.response.status_code", int64(status)),
		traces.Text("secbox.request.id", c.id), traces.Text("secbox.token.id", c.caller.ID),
	)
	if status >= http.StatusInternalServerError {
		c.span.End(strconv.Itoa(status))
		return
	}
	c.span.End("")
}

// MaxHeaderBytes is the most that a request line and the headers may have in all. The HTTP server
// reads some more, so that the refusal can say what to do.
const MaxHeaderBytes = 64 << 10

// guarded refuses foreign hosts and origins, and large headers, before any other code reads the
// request.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		check := s.gate.CheckHost
		if towardsConsole(r.URL.Path) { // which answers pages only to links of other sites
			check = s.gate.CheckArrival
		}
		err := s.arrived(r)
		if err == nil && callFrom(r.Context()).peer == "" { // else that node has checked the Host
			err = check(r)
		}
		if err == nil {
			err = checkHeaders(r)
		}
		if err != nil {
			s.refuse(w, r, fault.From(err))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// checkHeaders refuses large headers.
func checkHeaders(r *http.Request) error {
	size := headerBytes(r)
	if size <= MaxHeaderBytes {
		return nil
	}
	return fault.New(fault.HeadersTooLarge, "the address and the headers have %d bytes, more than the %d that a request may have; "+
		"shorten the address, or remove cookies of this host", size, MaxHeaderBytes)
}

// headerBytes returns the size of a request's first line and headers as HTTP/1.1 has them.
func headerBytes(r *http.Request) int {
	n := len(r.Method) + len(r.RequestURI) + len("  HTTP/1.1\r\n") + len("Host: \r\n") + len(r.Host)
	for name, values := range r.Header {
		for _, value := range values {
			n += len(name) + len(value) + len(": \r\n")
		}
	}
	return n
}

// refuse answers a request that no route sees. A browser on the way to the console gets a page.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, e *fault.Error) {
	if s.cfg.Console == nil || !isBrowser(r) || !towardsConsole(r.URL.Path) {
		problem.Write(w, r, e)
		return
	}
	page, err := s.docs.Refusal(e)
	if err != nil {
		s.log.Error("the page of a refusal failed", "error", err)
		problem.Write(w, r, e)
		return
	}
	page.ServeStatus(w, r, fault.HTTPStatus(e.Code))
}

func isAbort(cause any) bool {
	err, ok := cause.(error)
	return ok && errors.Is(err, http.ErrAbortHandler)
}

// answerWriter records the status and size of an answer.
type answerWriter struct {
	http.ResponseWriter
	request *http.Request
	drain   time.Duration // for reading the rest of a refused request's body
	status  int           // 0: not sent yet
	bytes   int64
}

func (a *answerWriter) WriteHeader(status int) {
	if a.status == 0 && status >= 200 {
		a.status = status
		if status >= 400 && a.request.ContentLength != 0 { // net/http reads the rest of a small body to keep the connection
			_ = http.NewResponseController(a.ResponseWriter).SetReadDeadline(time.Now().Add(a.drain))
		}
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answerWriter) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	n, err := a.ResponseWriter.Write(p)
	a.bytes += int64(n)
	return n, err
}

const (
	maxRest     = 64 << 20 // bytes of a refused request's body that are read
	maxRestTime = 10 * time.Second
)

// takeRest reads what a refused client is still sending. Most clients send all of a body before
// they read the answer, and a connection that is closed meanwhile is reset, with the answer. A
// client that asks first (Expect) sends nothing.
func (a *answerWriter) takeRest(body io.Reader) {
	if a.status < 400 || a.request.ContentLength == 0 || a.request.Header.Get("Expect") != "" {
		return
	}
	conn := http.NewResponseController(a.ResponseWriter)
	if conn.Flush() == nil && conn.SetReadDeadline(time.Now().Add(maxRestTime)) == nil {
		_, _ = io.CopyN(io.Discard, body, maxRest)
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (a *answerWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }
