package content

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
)

// Gzip returns a text compressed as small as gzip can, for content that is compressed once and sent
// often.
func Gzip(text []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
	_, _ = w.Write(text)                                  // a Buffer takes everything
	_ = w.Close()
	return b.Bytes()
}

// AcceptsGzip reports whether Accept-Encoding names gzip without q=0.
func AcceptsGzip(h http.Header) bool {
	for part := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, params, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			q := strings.ReplaceAll(params, " ", "")
			return strings.Trim(strings.TrimPrefix(q, "q="), "0.") != "" || q == ""
		}
	}
	return false
}
