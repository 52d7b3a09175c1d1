package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestServerGoesAway: an exec that began is not one that did not run, so its exit code is 126 and
// not 125.
func TestServerGoesAway(t *testing.T) {
	t.Parallel()
	const id = "0190aaaa-7c1e-7d35-9a52-0f4f3a1b2c3d"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "id: 1\nevent: status\ndata: {\"exec_id\": \""+id+"\", \"status\": \"running\"}\n\n")
			return // and the stream breaks
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, `{"code": "internal", "detail": "broken"}`)
	}))
	t.Cleanup(server.Close)
	var out, words strings.Builder
	code := run(t.Context(), []string{"exec", "--server", server.URL, "-n", "--", "true"}, environment(envConfig, t.TempDir()+"/none"),
		strings.NewReader(""), &out, &words)
	if code != exitBroken || !strings.Contains(words.String(), "secbox wait "+id) {
		t.Errorf("code %d: %s%s", code, &out, &words)
	}
}
