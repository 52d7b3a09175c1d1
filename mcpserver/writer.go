package mcpserver

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"secbox/fault"
)

// writePatience is how long one write to a client may take. The SDK tells one session after the other that the tools have changed:
// somebody who has stopped reading must not keep the news from the rest for longer.
const writePatience = 5 * time.Second

// patientWriter bounds the time of each write, watches for the header that opens a session, and turns the SDK's plain refusals into
// problem documents, as every other route of the server has them.
type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	opened  func(http.Header)
	begun   bool
	refusal *fault.Error // what the body that follows is the detail of
	status  int
}

func newPatientWriter(w http.ResponseWriter, opened func(http.Header)) *patientWriter {
	return &patientWriter{ResponseWriter: w, control: http.NewResponseController(w), opened: opened}
}

// refusals are the codes of the SDK's plain refusals.
var refusals = map[int]fault.Code{
	http.StatusBadRequest:            fault.InvalidRequest,
	http.StatusForbidden:             fault.Forbidden,
	http.StatusNotFound:              fault.NotFound,
	http.StatusMethodNotAllowed:      fault.MethodNotAllowed,
	http.StatusRequestEntityTooLarge: fault.BodyTooLarge,
	http.StatusUnsupportedMediaType:  fault.UnsupportedMedia,
	http.StatusInternalServerError:   fault.Internal,
}

func (w *patientWriter) WriteHeader(status int) {
	w.begin()
	if code, ok := refusals[status]; ok && strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		w.refusal, w.status = fault.New(code, ""), status
		return // the detail comes with the body
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *patientWriter) Write(p []byte) (int, error) {
	w.begin()
	if w.refusal != nil {
		w.refusal.Message = strings.TrimSpace(string(p))
		refuse(w.ResponseWriter, w.refusal)
		w.refusal = nil
		return len(p), nil
	}
	_ = w.control.SetWriteDeadline(time.Now().Add(writePatience)) // not every connection has one
	return w.ResponseWriter.Write(p)
}

// Flush is what the SDK does after each message.
func (w *patientWriter) Flush() {
	w.begin()
	_ = w.control.Flush()
}

// Unwrap lets an http.ResponseController find the connection.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *patientWriter) begin() {
	if !w.begun {
		w.begun = true
		w.opened(w.Header())
	}
}

// end gives the connection back as it was, and writes a refusal that came without a body.
func (w *patientWriter) end() {
	if w.refusal != nil {
		refuse(w.ResponseWriter, w.refusal)
	}
	_ = w.control.SetWriteDeadline(time.Time{})
}

// refuse answers with a problem document (RFC 9457).
func refuse(w http.ResponseWriter, err error) {
	e := fault.From(err)
	status := fault.HTTPStatus(e.Code)
	document := map[string]any{
		"type": "about:blank", "title": fault.Title(e.Code), "status": status, "code": e.Code, "detail": e.Message,
	}
	if len(e.Fields) > 0 {
		document["errors"] = e.Fields
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Del("Content-Length")
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(e.RetryAfter.Seconds())))
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(document)
}
