package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"secbox/access/tokens"
)

// TestRefusedBody: a client that sends all of a large body before it reads, as Python's urllib
// does, gets the refusal.
func TestRefusedBody(t *testing.T) {
	t.Parallel()
	f := start(t)
	_, secret := f.token(tokens.Spec{Role: tokens.Worker})
	for name, c := range map[string]struct {
		token, kind string
		size        int
		want        int
	}{
		"no token":      {"", "application/json", 16 << 20, http.StatusUnauthorized},
		"another kind":  {secret, "text/plain", 16 << 20, http.StatusUnsupportedMediaType},
		"no JSON":       {secret, "application/json", 16 << 20, http.StatusBadRequest},
		"too large":     {secret, "application/json", 48 << 20, http.StatusRequestEntityTooLarge},
		"no such route": {secret, "application/json", 16 << 20, http.StatusNotFound},
	} {
		path := "/sandbox/execs"
		if c.want == http.StatusNotFound {
			path = "/sandbox/nothing"
		}
		conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n",
			path, strings.TrimPrefix(f.url, "http://"), c.token, c.kind, c.size)
		if _, err := io.CopyN(conn, zeros{}, int64(c.size)); err != nil {
			t.Errorf("%s: sending: %v", name, err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != c.want || !strings.Contains(string(body), "code") {
			t.Errorf("%s: %s %s %v", name, resp.Status, body, err)
		}
		conn.Close()
	}
}

// zeros is endless.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
