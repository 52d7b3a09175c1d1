package sse_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"secbox/api/sse"
	"secbox/api/sse/ssetest"
)

// serve answers a request with a stream that send sends, and returns its body.
func serve(t *testing.T, closing <-chan struct{}, send func(*sse.Stream, *http.Request)) *http.Response {
	t.Helper()
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		s := sse.Begin(w, closing)
		defer s.End()
		send(s, r)
	}))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = resp.Body.Close()
		<-ended
		server.Close()
	})
	return resp
}

// TestEventsArriveAsTheyWereSent: any text without CR comes through, each event when the stream
// waits.
func TestEventsArriveAsTheyWereSent(t *testing.T) {
	t.Parallel()
	texts := []string{"", "a", "\n", "a\nb", "a\n", "\n\n:x\nid: 7\n", " a", strings.Repeat("long ", 20_000)}
	wake, closing := make(chan struct{}), make(chan struct{})
	resp := serve(t, closing, func(s *sse.Stream, r *http.Request) {
		s.ID("0")
		for i, text := range texts {
			if err := s.Event("x", string(rune('a'+i)), []byte(text)); err != nil {
				t.Error(err)
			}
			if more, err := s.Wait(r.Context(), wake, 0); !more || err != nil {
				t.Errorf("it ends after %d events: %v", i, err)
			}
		}
		if more, err := s.Wait(r.Context(), nil, 0); more || err != nil {
			t.Errorf("after the end of the server: %v, %v", more, err)
		}
	})
	if h := resp.Header; h.Get("Content-Type") != "text/event-stream" || h.Get("Cache-Control") != "no-store" || h.Get("X-Accel-Buffering") != "no" {
		t.Errorf("the header is %v", h)
	}
	in := ssetest.NewReader(resp.Body)
	for i, text := range texts {
		e, err := in.Next()
		if want := (ssetest.Event{Name: "x", ID: string(rune('a' + i)), Data: text}); err != nil || e != want {
			t.Fatalf("%.100v, %v, want %.100v", e, err, want)
		}
		wake <- struct{}{}
	}
	close(closing)
	if _, err := in.Next(); !errors.Is(err, io.EOF) || in.RetryMS != 1000 || in.LastID != "h" {
		t.Errorf("at the end: %v, %+v", err, in)
	}
}

// TestWaitEndsWithTheClient: a stream whose client has gone ends.
func TestWaitEndsWithTheClient(t *testing.T) {
	t.Parallel()
	result := make(chan error, 1)
	ctx, leave := context.WithCancel(t.Context())
	resp := serve(t, nil, func(s *sse.Stream, _ *http.Request) {
		more, err := s.Wait(ctx, nil, 0)
		if more {
			err = errors.New("it goes on")
		}
		result <- err
	})
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	leave()
	if err := <-result; err != nil {
		t.Error(err)
	}
}
