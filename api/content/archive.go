package content

import "net/http"

// ServeStream answers r with content that write writes. An error after the first byte must cut the
// connection, so that a client does not take half of it for the whole. A HEAD request gets the
// header only; write is not called.
func ServeStream(w http.ResponseWriter, r *http.Request, contentType, saveAs string, write func() error) error {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Security-Policy", fileCSP)
	h.Set("Content-Disposition", Attachment(saveAs))
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	return write()
}
