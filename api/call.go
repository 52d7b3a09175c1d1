package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"secbox/api/inflight"
	"secbox/api/problem"
	"secbox/fault"
	"secbox/tokens"
)

// call is the state of one request.
type call struct {
	id      string                // random; the log and the answer have it
	route   string                // the contract's path; empty until a route matched
	caller  tokens.Token          // zero on public routes
	request *http.Request         // as received
	memory  *inflight.Reservation // nil before the gate
	body    *inflight.Body        // nil: the request has none
}

type callKey struct{}

func callFrom(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	if c == nil {
		c = &call{}
	}
	return c
}

// reserve counts bytes of memory before they are used; fault.ServerBusy if they do not fit.
func (c *call) reserve(bytes int64) error {
	if c.memory == nil {
		return nil
	}
	return c.memory.Grow(bytes)
}

// contentPrice is the memory that one byte of a displayed file takes: the content, the answer's text, and the answer encoded.
const contentPrice = 4

// reserveContent counts the memory for an answer with so many bytes of a file; fault.ServerBusy if it does not fit.
func (c *call) reserveContent(bytes int) error { return c.reserve(contentPrice * int64(bytes)) }

// outermost gives a request its id, security headers, log line and metrics, and recovers from a panic.
func (s *Server) outermost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := s.cfg.Now()
		var id [8]byte
		rand.Read(id[:]) // never fails
		c := &call{id: hex.EncodeToString(id[:])}
		r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
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
			level := slog.LevelInfo
			if c.caller.ID == "" && answer.status < 400 {
				level = slog.LevelDebug // probes and pages
			}
			s.log.Log(r.Context(), level, "request", "request_id", c.id, "method", r.Method, "path", r.URL.Path, "status", answer.status,
				"bytes", answer.bytes, "ms", took.Milliseconds(), "token", c.caller.ID, "remote", s.gate.ClientAddress(r), "cut_off", cause != nil)
			if cause != nil {
				panic(http.ErrAbortHandler) // cuts the connection, so that the client notices that the answer is incomplete
			}
		}()
		next.ServeHTTP(answer, r)
	})
}

// guarded refuses foreign hosts and origins before any other code reads the request.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.gate.CheckHost(r); err != nil {
			problem.Write(w, r, fault.From(err))
			return
		}
		next.ServeHTTP(w, r)
	})
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

// Unwrap lets http.ResponseController reach the connection.
func (a *answerWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// handleError answers a request whose handler, gate or route failed.
func (s *Server) handleError(err error, c echo.Context) {
	r := c.Request()
	e := translate(err)
	var unready notReady
	if errors.As(err, &unready) { // the health check logs the change; a load balancer asks every second
		problem.WriteStatus(c.Response(), r, e, http.StatusServiceUnavailable)
		return
	}
	gone := r.Context().Err() != nil && errors.Is(err, context.Canceled) // the client hung up
	if !gone && (e.Err != nil || e.Code == fault.Internal) {
		level, message := slog.LevelError, "a request failed"
		if fault.HTTPStatus(e.Code) < http.StatusInternalServerError && e.Code != fault.ArtifactAltered { // clients can cause these at will
			level, message = slog.LevelInfo, "a request was refused"
		}
		s.log.Log(r.Context(), level, message, "request_id", callFrom(r.Context()).id, "method", r.Method, "path", r.URL.Path, "error", e.Error())
	}
	if c.Response().Committed {
		panic(http.ErrAbortHandler) // too late for a problem document: cut the connection, so that the answer is visibly incomplete
	}
	if noRoute(err) && strings.Contains(r.Header.Get("Accept"), "text/html") { // a browser: programs accept JSON or anything
		s.docs.NotFound.ServeStatus(c.Response(), r, http.StatusNotFound)
		return
	}
	problem.Write(c.Response(), r, e)
}

// noRoute reports whether no route matched. A handler that finds nothing returns a fault instead.
func noRoute(err error) bool {
	var he *echo.HTTPError
	var fe *fault.Error
	return !errors.As(err, &fe) && errors.As(err, &he) && he.Code == http.StatusNotFound
}

// translate returns the fault in err. Errors of echo concern routes and parameters.
func translate(err error) *fault.Error {
	var he *echo.HTTPError
	var fe *fault.Error
	if errors.As(err, &fe) || !errors.As(err, &he) {
		return fault.From(err)
	}
	switch he.Code {
	case http.StatusNotFound:
		return fault.New(fault.NotFound, "there is no such route; /docs lists them")
	case http.StatusMethodNotAllowed:
		return fault.New(fault.MethodNotAllowed, "this route does not allow this method; the Allow header lists those that it does")
	case http.StatusBadRequest:
		return fault.New(fault.InvalidRequest, "%s", problem.Clip(fmt.Sprint(he.Message)))
	}
	return fault.From(err)
}

// notReady marks errors of the readiness check, whose answer is always 503.
type notReady struct{ error }

func (n notReady) Unwrap() error { return n.error }
