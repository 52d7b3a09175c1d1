package content

import (
	"io"
	"net/http"
	"strings"
	"time"

	"secbox/api/problem"
	"secbox/fault"
)

// fileCSP keeps a browser from running scripts in content that a job wrote.
const fileCSP = "sandbox; " + problem.CSP

// A File is content that a job wrote.
type File struct {
	Content  io.ReadSeekCloser
	Type     string    // the Content-Type
	SaveAs   string    // the name for a download; empty: the browser may show the file
	SHA256   string    // the entity tag; empty: none
	Modified time.Time // zero: the file may still grow
	Whole    bool      // ignore a Range header
}

// Serve answers r with the file or the range of it that r asks for, and closes the file.
func (f File) Serve(w http.ResponseWriter, r *http.Request) error {
	defer f.Content.Close()
	h := w.Header()
	h.Set("Content-Type", f.Type)
	h.Set("Content-Security-Policy", fileCSP)
	h.Set("Cache-Control", "private, no-cache")
	if f.SaveAs != "" {
		h.Set("Content-Disposition", Attachment(f.SaveAs))
	}
	if f.SHA256 != "" {
		h.Set("ETag", `"sha256:`+f.SHA256+`"`)
	}
	if f.Whole || strings.Contains(r.Header.Get("Range"), ",") { // RFC 9110 lets a server ignore several ranges
		r = r.Clone(r.Context())
		r.Header.Del("Range")
	}
	http.ServeContent(&rangeWriter{ResponseWriter: w, request: r}, r, "", f.Modified, f.Content)
	return nil
}

// rangeWriter turns net/http's plain text for a bad range into a problem document.
type rangeWriter struct {
	http.ResponseWriter
	request *http.Request
	refused bool
}

func (w *rangeWriter) WriteHeader(status int) {
	if w.refused = status == http.StatusRequestedRangeNotSatisfiable; w.refused {
		problem.Write(w.ResponseWriter, w.request, fault.New(fault.RangeUnsatisfiable,
			"the range %q is malformed or starts after the end; Content-Range gives the size", problem.Clip(w.request.Header.Get("Range"))))
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write drops net/http's own message about a bad range.
func (w *rangeWriter) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}
