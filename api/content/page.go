// Package content sends bytes: pages with an entity tag, files with ranges, and archives, under
// names that are safe in a header and on disk. It must not know routes, callers or where the bytes
// are kept.
package content

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Page is a document that does not change while the server runs. Pages with the same content are
// equal.
type Page struct {
	contentType string
	body        string
	gzipped     string // empty: the page is sent as it is
	etag        string
	csp         string
}

// NewPage makes a page whose entity tag is a digest of body. csp is its Content-Security-Policy.
func NewPage(contentType string, body []byte, csp string) Page {
	sum := sha256.Sum256(body)
	return Page{contentType: contentType, body: string(body), etag: `"` + hex.EncodeToString(sum[:16]) + `"`, csp: csp}
}

// Compressed returns the page as one that clients get compressed if they accept that. The work is
// done once, here.
func (p Page) Compressed() Page {
	p.gzipped = string(Gzip([]byte(p.body)))
	return p
}

// Serve answers r with the page, or with 304 if the client has it.
func (p Page) Serve(w http.ResponseWriter, r *http.Request) error {
	p.setHeader(w, "no-cache")
	w.Header().Set("ETag", p.etag)
	body := p.body
	if p.gzipped != "" {
		w.Header().Add("Vary", "Accept-Encoding")
		if AcceptsGzip(r.Header) {
			body = p.gzipped
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Length", strconv.Itoa(len(body))) // http.ServeContent leaves it out
			w.Header().Set("ETag", strings.TrimSuffix(p.etag, `"`)+`-gzip"`)
		}
	}
	r = r.Clone(r.Context())
	r.Header.Del("Range") // pages are small: send them whole
	r.Header.Del("If-Match")
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(body))
	return nil
}

// ServeStatus answers r with the page and a status other than 200.
func (p Page) ServeStatus(w http.ResponseWriter, r *http.Request, status int) {
	p.setHeader(w, "no-store")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, p.body) // fails only if the client is gone
	}
}

func (p Page) setHeader(w http.ResponseWriter, cacheControl string) {
	h := w.Header()
	h.Set("Content-Type", p.contentType)
	h.Set("Content-Security-Policy", p.csp)
	h.Set("Cache-Control", cacheControl)
}
