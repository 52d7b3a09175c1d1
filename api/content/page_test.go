package content

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

// TestCompressedPage: a client gets what it accepts, each form with an entity tag of its own, and
// 304 for the form that it has.
func TestCompressedPage(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("a line\n", 10_000)
	page := NewPage("text/plain", []byte(text), "csp").Compressed()
	ask := func(accept, has string) *httptest.ResponseRecorder {
		t.Helper()
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Accept-Encoding", accept)
		r.Header.Set("If-None-Match", has)
		w := httptest.NewRecorder()
		if err := page.Serve(w, r); err != nil {
			t.Fatal(err)
		}
		if got := w.Header().Get("Vary"); got != "Accept-Encoding" {
			t.Errorf("%s: Vary %q", accept, got)
		}
		return w
	}
	plain, zipped := ask("br", ""), ask("br, gzip;q=0.5", "")
	if plain.Body.String() != text || plain.Header().Get("Content-Encoding") != "" {
		t.Errorf("as it is: %d bytes, %v", plain.Body.Len(), plain.Header())
	}
	if h := zipped.Header(); h.Get("Content-Encoding") != "gzip" || h.Get("Content-Length") != strconv.Itoa(zipped.Body.Len()) ||
		zipped.Body.Len() > len(text)/10 || h.Get("ETag") == plain.Header().Get("ETag") || !strings.HasSuffix(h.Get("ETag"), `-gzip"`) {
		t.Errorf("compressed: %d bytes, %v", zipped.Body.Len(), h)
	}
	in, err := gzip.NewReader(bytes.NewReader(zipped.Body.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if back, err := io.ReadAll(in); err != nil || string(back) != text {
		t.Errorf("unpacked: %d bytes, %v", len(back), err)
	}
	for accept, w := range map[string]*httptest.ResponseRecorder{"br": plain, "gzip": zipped} {
		if again := ask(accept, w.Header().Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s again: %d", accept, again.Code)
		}
	}
	if other := ask("gzip", plain.Header().Get("ETag")); other.Code != http.StatusOK {
		t.Errorf("the tag of the other form: %d", other.Code)
	}
	if none := ask("gzip;q=0", ""); none.Header().Get("Content-Encoding") != "" {
		t.Error("gzip was refused, and sent")
	}
}
