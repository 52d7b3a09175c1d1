package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"secbox/fault"
)

const problemType = "application/problem+json"

// handleError is where every error of a handler becomes an answer.
func (s *Server) handleError(err error, c echo.Context) {
	r := c.Request()
	e := s.translate(err)
	var unready notReady
	if errors.As(err, &unready) { // the health check has logged the change; a load balancer asks every second
		writeProblemAs(c.Response(), r, e, http.StatusServiceUnavailable)
		return
	}
	gone := r.Context().Err() != nil && errors.Is(err, context.Canceled) // a client that hung up is no fault of ours
	if !gone && (e.Err != nil || e.Code == fault.Internal) {
		level, what := slog.LevelError, "a request failed"
		if fault.HTTPStatus(e.Code) < http.StatusInternalServerError && e.Code != fault.ArtifactAltered { // clients cause these at will
			level, what = slog.LevelInfo, "a request was refused"
		}
		s.log.Log(r.Context(), level, what, "request_id", callFrom(r.Context()).id, "method", r.Method, "path", r.URL.Path, "error", e.Error())
	}
	if c.Response().Committed {
		panic(http.ErrAbortHandler) // too late for a problem document: cut the answer off, so that nobody takes it for whole
	}
	if noRoute(err) && strings.Contains(r.Header.Get("Accept"), "text/html") { // a browser; programs ask for JSON or anything
		s.writeNotFound(c.Response(), r)
		return
	}
	writeProblem(c.Response(), r, e)
}

// noRoute reports whether the router knew no route; a handler's not_found is a fault.
func noRoute(err error) bool {
	var he *echo.HTTPError
	var fe *fault.Error
	return !errors.As(err, &fe) && errors.As(err, &he) && he.Code == http.StatusNotFound
}

// translate finds the fault in an error; echo's own errors are about routes and parameters.
func (s *Server) translate(err error) *fault.Error {
	var he *echo.HTTPError
	var fe *fault.Error
	if errors.As(err, &fe) || !errors.As(err, &he) {
		return fault.From(err)
	}
	switch he.Code {
	case http.StatusNotFound:
		return fault.New(fault.NotFound, "there is no such route; /docs lists them")
	case http.StatusMethodNotAllowed:
		return fault.New(fault.MethodNotAllowed, "this route does not take this method; the Allow header says which it takes")
	case http.StatusBadRequest:
		return fault.New(fault.InvalidRequest, "%s", clip(fmt.Sprint(he.Message)))
	}
	return fault.From(err)
}

// notReady is why requests should go elsewhere. To whoever asks for readiness that is 503, whatever the status of the code elsewhere.
type notReady struct{ error }

func (n notReady) Unwrap() error { return n.error }

// writeProblem answers with a problem document, or below /v1/ with the envelope that is expected there. Nothing must have been sent yet.
func writeProblem(w http.ResponseWriter, r *http.Request, e *fault.Error) {
	writeProblemAs(w, r, e, fault.HTTPStatus(e.Code))
}

func writeProblemAs(w http.ResponseWriter, r *http.Request, e *fault.Error, status int) {
	body := problem(r, e, status)
	mediaType := problemType
	if inEnvelope(r) {
		body, mediaType = enveloped(e), "application/json"
	}
	h := w.Header()
	for _, name := range []string{"Content-Disposition", "Content-Length", "Content-Encoding", "ETag", "Last-Modified", "Accept-Ranges"} {
		h.Del(name)
	}
	h.Set("Content-Type", mediaType)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", basicCSP)
	switch {
	case status == http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="secbox"`)
	case e.RetryAfter > 0 || e.Code == fault.QueueFull:
		h.Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(e.RetryAfter.Seconds())))))
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has gone is no news
}

// problem is an error after RFC 9457.
func problem(r *http.Request, e *fault.Error, status int) []byte {
	doc := ProblemDocument{
		Type: "/docs#code-" + string(e.Code), Title: fault.Title(e.Code), Status: status,
		Detail: strings.ToValidUTF8(e.Message, "\uFFFD"), Code: e.Code, Errors: e.Fields, ExecID: e.ExecID,
	}
	if id := callFrom(r.Context()).id; id != "" {
		doc.Instance = "urn:request:" + id
	}
	body, err := json.Marshal(doc)
	if err != nil { // a value in Asked or Ceiling that JSON cannot say
		doc.Errors = nil
		body, _ = json.Marshal(doc)
	}
	return append(body, '\n')
}

// invalid is fault.InvalidRequest with all wrong fields, or nil when there are none.
func invalid(bad []fault.Field) error {
	var fields fault.Fields
	for _, f := range bad {
		fields.Add(f.Field, "%s", f.Reason)
	}
	return fields.Err()
}

// clip keeps what a stranger sent from filling an answer.
func clip(s string) string {
	const most = 200
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= most {
		return s
	}
	cut := most
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
