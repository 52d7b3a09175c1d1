package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"secbox/fault"
	"secbox/tokens"
)

// call is what is known of one request on its way through the server.
type call struct {
	id      string        // random; in the log, in X-Request-Id and in a problem's instance
	route   string        // the contract's path; empty while no route matched
	caller  tokens.Token  // who asks; zero on public routes
	request *http.Request // as it came
	memory  *stay         // what the request takes; nil before the gate
	body    *body         // nil: it has none
}

type callKey struct{}

func callFrom(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	if c == nil {
		c = &call{}
	}
	return c
}

const basicCSP = "default-src 'none'; frame-ancestors 'none'"

// outermost gives a request its id, its security headers, its line in the log and its metrics, and survives a panic.
func (s *Server) outermost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := s.cfg.Now()
		var id [8]byte
		rand.Read(id[:]) // never fails
		c := &call{id: hex.EncodeToString(id[:])}
		r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
		answer := &answer{ResponseWriter: w, request: r, drain: min(time.Second, s.cfg.Bounds.Rest/2)}

		h := w.Header()
		h.Set("X-Request-Id", c.id)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", basicCSP)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")

		s.begins(w, r)
		s.metrics.inFlight.Inc()
		defer func() {
			cause := recover()
			if cause != nil && !isAbort(cause) {
				s.log.Error("a request panicked", "request_id", c.id, "panic", cause, "stack", string(debug.Stack()))
				if !answer.begun() {
					writeProblem(answer, r, fault.From(errors.New("panic")))
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
				"bytes", answer.bytes, "ms", took.Milliseconds(), "token", c.caller.ID, "remote", s.address(r), "cut_off", cause != nil)
			if cause != nil {
				panic(http.ErrAbortHandler) // the client must not take half an answer for a whole one
			}
		}()
		next.ServeHTTP(answer, r)
	})
}

// guarded refuses foreign hosts and origins before anything else looks at the request.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.guard.check(r); err != nil {
			writeProblem(w, r, fault.From(err))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isAbort(cause any) bool {
	err, ok := cause.(error)
	return ok && errors.Is(err, http.ErrAbortHandler)
}

// answer watches what is sent.
type answer struct {
	http.ResponseWriter
	request *http.Request
	drain   time.Duration // that the rest of a refused request's body may take
	status  int
	bytes   int64
}

func (a *answer) begun() bool { return a.status != 0 }

// WriteHeader notes the status.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= 200 {
		a.status = status
		if status >= 400 && a.request.ContentLength != 0 { // the server reads the rest of a small body, to keep the connection
			_ = http.NewResponseController(a.ResponseWriter).SetReadDeadline(time.Now().Add(a.drain))
		}
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write counts the bytes.
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	n, err := a.ResponseWriter.Write(p)
	a.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
