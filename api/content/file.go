package content

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"secbox/api/problem"
	"secbox/fault"
	"secbox/internal/admission"
)

// fileCSP keeps a browser from running scripts in content that a job wrote.
const fileCSP = "sandbox; " + problem.CSP

// A File is content that a job wrote.
type File struct {
	Content  io.ReadSeekCloser
	Type     string    // the Content-Type
	CSP      string    // the Content-Security-Policy; empty: one with which browsers run and frame nothing
	SaveAs   string    // the name for a download; empty: the browser may show the file
	SHA256   string    // the entity tag; empty: none
	Modified time.Time // zero: the file may still grow
	Whole    bool      // ignore a Range header
	Digest   bool      // a client that wants a Repr-Digest gets it as a trailer; for content whose SHA256 is not known before
}

// Serve answers r with the file or the range of it that r asks for, and closes the file.
// fault.RangeUnsatisfiable comes before anything was sent.
func (f File) Serve(w http.ResponseWriter, r *http.Request) error {
	defer f.Content.Close()
	h := w.Header()
	h.Set("Content-Type", f.Type)
	h.Set("Content-Security-Policy", cmp.Or(f.CSP, fileCSP))
	h.Set("Cache-Control", "private, no-cache")
	if f.SaveAs != "" {
		h.Set("Content-Disposition", Attachment(f.SaveAs))
	}
	if f.SHA256 != "" {
		h.Set("ETag", ETagOf(f.SHA256))
	}
	if f.Whole || strings.Contains(r.Header.Get("Range"), ",") { // RFC 9110 lets a server ignore several ranges
		r = r.Clone(r.Context())
		r.Header.Del("Range")
	}
	out := &fileWriter{ResponseWriter: w, request: r}
	if f.SHA256 != "" {
		setDigest(h, f.SHA256)
	} else if f.Digest && r.Method == http.MethodGet && wantsDigest(r.Header) {
		out.digest = sha256.New()
	}
	http.ServeContent(out, r, "", f.Modified, f.Content)
	return out.end()
}

// fileWriter drops net/http's plain text for a bad range, and notices an answer that is too short.
type fileWriter struct {
	http.ResponseWriter
	request  *http.Request
	digest   hash.Hash // of a whole file; nil: not wanted
	refused  bool
	promised int64 // bytes of the body
	sent     int64
	failed   error // of the last Write
}

func (w *fileWriter) WriteHeader(status int) {
	h := w.Header()
	// of "bytes=-0", which RFC 9110 calls unsatisfiable, or of an empty file
	if status == http.StatusPartialContent && h.Get("Content-Length") == "0" {
		_, size, _ := strings.Cut(h.Get("Content-Range"), "/")
		if status = http.StatusRequestedRangeNotSatisfiable; size == "0" { // as net/http answers "bytes=0-"
			status = http.StatusOK
			h.Del("Content-Range")
		} else {
			h.Set("Content-Range", "bytes */"+size)
		}
	}
	if w.refused = status == http.StatusRequestedRangeNotSatisfiable; w.refused {
		return
	}
	w.promised, _ = strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	if status != http.StatusOK {
		w.digest = nil
	}
	if w.digest != nil { // HTTP/1.1 has trailers only in bodies without a length
		h.Del("Content-Length")
		h.Set("Trailer", digestHeader)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write drops net/http's own message about a bad range.
func (w *fileWriter) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	n, err := w.ResponseWriter.Write(p)
	w.sent += int64(n)
	w.failed = err
	if w.digest != nil && err == nil {
		err = admission.Do(w.request.Context(), func() error {
			_, err := w.digest.Write(p[:n])
			return err
		})
	}
	return n, err
}

// copyBytes is how much of a file is read at once: a file on a user's machine comes in pieces of
// this size.
const copyBytes = 256 << 10

// ReadFrom implements io.ReaderFrom, for a larger buffer than net/http's.
func (w *fileWriter) ReadFrom(r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, r, make([]byte, copyBytes))
}

// end returns an error if a part of the content is missing, because it could not be read or the
// client has gone.
func (w *fileWriter) end() error {
	switch {
	case w.refused:
		w.Header().Del(digestHeader)
		return fault.New(fault.RangeUnsatisfiable, "the range %q is malformed or starts after the end; Content-Range gives the size",
			problem.Clip(w.request.Header.Get("Range")))
	case w.request.Method == http.MethodHead:
		return nil
	case w.sent < w.promised:
		return errors.Join(fmt.Errorf("%d of %d bytes were sent", w.sent, w.promised), w.failed)
	case w.digest != nil:
		setDigest(w.Header(), hex.EncodeToString(w.digest.Sum(nil)))
	}
	return nil
}
