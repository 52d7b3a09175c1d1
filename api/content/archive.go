package content

import "net/http"

// ServeZip answers r with a ZIP that write writes. An error after the first byte must cut the connection, so that a client does not take
// half an archive for a whole one. A HEAD request gets the header only; write is not called.
func ServeZip(w http.ResponseWriter, r *http.Request, saveAs string, write func() error) error {
	h := w.Header()
	h.Set("Content-Type", "application/zip")
	h.Set("Content-Security-Policy", fileCSP)
	h.Set("Content-Disposition", Attachment(saveAs))
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	return write()
}
