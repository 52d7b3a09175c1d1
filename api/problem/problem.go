// Package problem writes errors as HTTP answers: problem documents (RFC 9457) or, below /v1/, the
// envelope that clients of those routes expect. Every package that answers HTTP uses it, so that an
// error looks the same everywhere. It must not know routes or handlers.
package problem

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"secbox/fault"
)

const (
	// CSP is the Content-Security-Policy of answers that a browser must not render.
	CSP = "default-src 'none'; frame-ancestors 'none'"

	// RequestIDHeader is set on every answer before a handler runs. A problem document repeats the
	// id as its instance.
	RequestIDHeader = "X-Request-Id"

	unavailableSeconds = "5" // Retry-After of an answer 503 whose error has none

	envelopePrefix = "/v1/"  // of the paths whose answers, errors included, are wrapped in {"status", "data"}
	envelopeError  = "error" // the status of an Envelope
)

// Document is the schema ProblemDocument of openapi.yaml.
type Document struct {
	Code     fault.Code     `json:"code"`
	Detail   string         `json:"detail"`
	Errors   []fault.Field  `json:"errors,omitempty"`
	ExecID   string         `json:"exec_id,omitempty"`
	Instance string         `json:"instance,omitempty"`
	Removed  *fault.Removal `json:"removed,omitempty"`
	Status   int            `json:"status"`
	Title    string         `json:"title"`
	Type     string         `json:"type"`
}

// Envelope is the schema V1Error of openapi.yaml.
type Envelope struct {
	Status string  `json:"status"`
	Data   Refusal `json:"data"`
}

// Refusal is the schema V1Refusal of openapi.yaml.
type Refusal struct {
	Code    fault.Code    `json:"code"`
	Message string        `json:"message"`
	Errors  []fault.Field `json:"errors,omitempty"`
}

// Write answers r with the error e and the HTTP status of its code. No part of another answer may
// have been sent.
func Write(w http.ResponseWriter, r *http.Request, e *fault.Error) {
	WriteStatus(w, r, e, fault.HTTPStatus(e.Code))
}

// WriteStatus is Write with another HTTP status.
func WriteStatus(w http.ResponseWriter, r *http.Request, e *fault.Error, status int) {
	h := w.Header()
	for _, name := range []string{"Content-Disposition", "Content-Length", "Content-Encoding", "ETag", "Last-Modified", "Accept-Ranges"} {
		h.Del(name)
	}
	body, mediaType := document(h.Get(RequestIDHeader), e, status), "application/problem+json"
	// The path as requested decides, so that unknown routes and refused callers below /v1/ get an
	// envelope, too.
	if strings.HasPrefix(r.URL.Path, envelopePrefix) {
		body, mediaType = envelope(e), "application/json"
	}
	h.Set("Content-Type", mediaType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", CSP)
	switch {
	case status == http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="secbox"`)
	case e.RetryAfter > 0 || e.Code == fault.QueueFull:
		h.Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(e.RetryAfter.Seconds())))))
	case status == http.StatusServiceUnavailable: // its cause passes, but it is not known when
		h.Set("Retry-After", unavailableSeconds)
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails only if the client is gone
}

// Of returns the document of an error within another answer.
func Of(e *fault.Error) Document {
	return Document{
		Type: "/docs#code-" + string(e.Code), Title: fault.Title(e.Code), Status: fault.HTTPStatus(e.Code), Detail: validUTF8(e.Message),
		Code: e.Code, Errors: e.Fields, ExecID: e.ExecID, Removed: e.Removed,
	}
}

func document(requestID string, e *fault.Error, status int) []byte {
	doc := Of(e)
	doc.Status = status
	if requestID != "" {
		doc.Instance = "urn:request:" + requestID
	}
	return encode(&doc, &doc.Errors)
}

func envelope(e *fault.Error) []byte {
	doc := Envelope{Status: envelopeError, Data: Refusal{Code: e.Code, Message: validUTF8(e.Message), Errors: e.Fields}}
	return encode(&doc, &doc.Data.Errors)
}

// encode leaves out doc's fields if it cannot encode them.
func encode(doc any, fields *[]fault.Field) []byte {
	body, err := json.Marshal(doc)
	if err != nil { // a field's Asked or Ceiling has no JSON form
		*fields = nil
		body, _ = json.Marshal(doc)
	}
	return append(body, '\n')
}

func validUTF8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Clip shortens client input for use in a message: to 200 bytes of valid UTF-8.
func Clip(s string) string {
	const limit = 200
	s = validUTF8(s)
	if len(s) <= limit {
		return s
	}
	cut := limit
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
