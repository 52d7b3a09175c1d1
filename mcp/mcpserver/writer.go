package mcpserver

import (
	"net/http"
	"strings"
	"time"

	"secbox/api/problem"
	"secbox/fault"
)

// writeTimeout limits one write to a client. The SDK notifies one session after the other that the
// tools have changed: a client that has stopped reading must not delay the others for longer.
const writeTimeout = 5 * time.Second

// responseWriter limits the time of each write, reports the header that opens a session, and turns
// the SDK's plain-text errors into problem documents.
type responseWriter struct {
	http.ResponseWriter
	request *http.Request
	control *http.ResponseController
	opened  func(http.Header) // called once, before the header is sent
	begun   bool
	refusal *fault.Error // its message follows as the body
}

func newResponseWriter(w http.ResponseWriter, r *http.Request, opened func(http.Header)) *responseWriter {
	return &responseWriter{ResponseWriter: w, request: r, control: http.NewResponseController(w), opened: opened}
}

// refusals are the codes of the SDK's plain-text errors.
var refusals = map[int]fault.Code{
	http.StatusBadRequest:            fault.InvalidRequest,
	http.StatusForbidden:             fault.Forbidden,
	http.StatusNotFound:              fault.UnknownSession, // the SDK knows no routes
	http.StatusMethodNotAllowed:      fault.MethodNotAllowed,
	http.StatusRequestEntityTooLarge: fault.BodyTooLarge,
	http.StatusUnsupportedMediaType:  fault.UnsupportedMedia,
	http.StatusInternalServerError:   fault.Internal,
}

func (w *responseWriter) WriteHeader(status int) {
	w.begin()
	if code, ok := refusals[status]; ok && strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		w.refusal = fault.New(code, "")
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *responseWriter) Write(p []byte) (int, error) {
	w.begin()
	if w.refusal != nil {
		if w.refusal.Message = strings.TrimSpace(string(p)); w.refusal.Code == fault.UnknownSession {
			w.refusal = unknownSession()
		}
		problem.Write(w.ResponseWriter, w.request, w.refusal)
		w.refusal = nil
		return len(p), nil
	}
	_ = w.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every connection supports it
	return w.ResponseWriter.Write(p)
}

// Flush sends buffered data; the SDK calls it after each message.
func (w *responseWriter) Flush() {
	w.begin()
	_ = w.control.Flush()
}

// Unwrap lets an http.ResponseController find the connection.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *responseWriter) begin() {
	if !w.begun {
		w.begun = true
		w.opened(w.Header())
	}
}

// end removes the write deadline, and writes a refusal without a body.
func (w *responseWriter) end() {
	if w.refusal != nil {
		problem.Write(w.ResponseWriter, w.request, w.refusal)
	}
	_ = w.control.SetWriteDeadline(time.Time{})
}
