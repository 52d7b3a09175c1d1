package relay

import (
	"net/http"
	"time"
)

// pacedWriter writes the answer to a runner whose transfer is passed on. A runner that reads
// nothing for the time of stall is cut off.
type pacedWriter struct {
	http.ResponseWriter
	conn  *http.ResponseController
	stall time.Duration
}

func (w *pacedWriter) extend() { _ = w.conn.SetWriteDeadline(time.Now().Add(w.stall)) }

func (w *pacedWriter) Write(p []byte) (int, error) {
	w.extend()
	return w.ResponseWriter.Write(p)
}

// FlushError is what http.ResponseController calls.
func (w *pacedWriter) FlushError() error {
	w.extend()
	return w.conn.Flush()
}

// Unwrap lets http.ResponseController reach the connection.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
