package clients

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	client "secbox/clients/go"
)

// TestGoEventWithoutEnd: an event of any number of lines takes little memory.
func TestGoEventWithoutEnd(t *testing.T) {
	t.Parallel()
	var most atomic.Int64 // bytes of a stream
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		line := "data: " + strings.Repeat("x", 64<<10) + "\n"
		for sent := int64(0); sent < 64<<20; sent += int64(len(line)) {
			if _, err := io.WriteString(w, line); err != nil {
				return
			}
			most.Store(max(most.Load(), sent))
		}
	}))
	t.Cleanup(server.Close)
	c, err := client.New(client.Config{Server: server.URL, Patience: -1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Follow(t.Context(), "x", "", func(client.Event) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "broke again and again") || most.Load() > 32<<20 {
		t.Errorf("%v after %d bytes", err, most.Load())
	}
}
