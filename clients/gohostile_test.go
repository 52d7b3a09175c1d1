package clients

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// TestGoStdinOfAQueuedExec: the input is sent when the exec runs, and an exec whose input is
// refused does not wait for it.
func TestGoStdinOfAQueuedExec(t *testing.T) {
	t.Parallel()
	var running atomic.Bool
	asked, canceled := make(chan struct{}, 1), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /sandbox/execs", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		event := func(kind, status string) {
			fmt.Fprintf(w, "event: %s\nid: %s\ndata: {\"exec_id\": \"x\", \"status\": %q}\n\n", kind, status, status)
			_ = http.NewResponseController(w).Flush()
		}
		event("status", "queued")
		select {
		case <-asked:
			return
		case <-time.After(50 * time.Millisecond):
		}
		running.Store(true)
		event("status", "running")
		<-canceled
		event("end", "canceled")
	})
	mux.HandleFunc("PUT /sandbox/execs/x/stdin", func(w http.ResponseWriter, _ *http.Request) {
		if !running.Load() {
			t.Error("the input came before the exec ran")
			asked <- struct{}{}
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"code": "server_busy", "detail": "busy"}`)
	})
	mux.HandleFunc("POST /sandbox/execs/x/cancel", func(w http.ResponseWriter, _ *http.Request) {
		close(canceled)
		w.WriteHeader(http.StatusAccepted)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	c, err := client.New(client.Config{Server: server.URL, Patience: -1})
	if err != nil {
		t.Fatal(err)
	}
	req := client.Request{Project: "p", Command: client.Command{Script: "cat"}, Stdin: strings.NewReader("hi")}
	state, err := c.Stream(t.Context(), req, func(client.Event) error { return nil })
	if state.Status != "canceled" || client.CodeOf(err) != "server_busy" {
		t.Errorf("%+v, %v", state, err)
	}
}
