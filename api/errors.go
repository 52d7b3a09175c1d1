package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/labstack/echo/v4"

	"secbox/api/problem"
	"secbox/fault"
)

// handleError answers a request whose handler, gate or route failed.
func (s *Server) handleError(err error, c echo.Context) {
	r := c.Request()
	e := translate(err)
	var unready notReady
	if errors.As(err, &unready) { // the health check logs the change; a load balancer asks every second
		problem.WriteStatus(c.Response(), r, e, http.StatusServiceUnavailable)
		return
	}
	var sent *net.OpError
	gone := r.Context().Err() != nil && errors.Is(err, context.Canceled) || // the client hung up
		c.Response().Committed && errors.As(err, &sent) && sent.Op == "write" // in the middle of the answer
	slow := errors.Is(err, os.ErrDeadlineExceeded) && c.Response().Committed // the client was cut off because it did not read
	if !gone && (e.Err != nil || e.Code == fault.Internal) {
		level, message := slog.LevelError, "a request failed"
		// clients can cause these at will
		if fault.HTTPStatus(e.Code) < http.StatusInternalServerError && e.Code != fault.ArtifactAltered || e.Code == fault.RunnerOffline ||
			slow {
			level, message = slog.LevelInfo, "a request was refused"
		}
		s.log.Log(r.Context(), level, message, "request_id", callFrom(r.Context()).id, "method", r.Method, "path", r.URL.Path, "error",
			e.Error())
	}
	if c.Response().Committed {
		panic(http.ErrAbortHandler) // too late for a problem document: cut the connection, so that the answer is visibly incomplete
	}
	if noRoute(err) && isBrowser(r) {
		s.docs.NotFound.ServeStatus(c.Response(), r, http.StatusNotFound)
		return
	}
	if gone && e.Code == fault.Internal {
		e = fault.Wrap(fault.InvalidRequest, err, "the client left, or cut off the request, before its answer: send it again")
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
