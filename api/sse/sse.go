// Package sse writes answers of server-sent events, for api and console. It must not know what the
// events mean.
package sse

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	// Beat is how often a silent stream gets a comment, so that proxies keep it and a client that
	// has gone is noticed.
	Beat = 10 * time.Second

	retry     = time.Second // before a client comes again
	writeFrom = 32 << 10    // bytes of events that are written before Wait
)

// Stream is an answer of server-sent events. Its methods must not be called at the same time.
type Stream struct {
	out     http.ResponseWriter
	conn    *http.ResponseController
	closing <-chan struct{}
	beat    *time.Ticker
	waiting *bytes.Buffer // nil: empty
	sent    time.Time     // the last event
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// SetHeader sets the header of an answer of events.
func SetHeader(h http.Header) {
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // of nginx, which would keep events until it has some 4 KiB of them
}

// Begin begins the answer. The end of closing ends it. The caller must call End.
func Begin(w http.ResponseWriter, closing <-chan struct{}) *Stream {
	SetHeader(w.Header())
	s := &Stream{out: w, conn: http.NewResponseController(w), closing: closing, beat: time.NewTicker(Beat)}
	_ = s.conn.SetReadDeadline(time.Time{}) // fails only in tests, without a connection
	s.text("retry: ", strconv.FormatInt(retry.Milliseconds(), 10), "\n\n")
	return s
}

// Header is the header of the answer, until the first Wait or Flush.
func (s *Stream) Header() http.Header { return s.out.Header() }

// End releases what the stream has. It writes nothing.
func (s *Stream) End() {
	s.beat.Stop()
	s.release()
}

func (s *Stream) release() {
	if s.waiting != nil && s.waiting.Cap() <= 4*writeFrom {
		s.waiting.Reset()
		buffers.Put(s.waiting)
	}
	s.waiting = nil
}

func (s *Stream) text(words ...string) {
	if s.waiting == nil {
		s.waiting = buffers.Get().(*bytes.Buffer)
	}
	for _, word := range words {
		s.waiting.WriteString(word)
	}
}

// ID tells the client where it goes on after a lost connection.
func (s *Stream) ID(id string) { s.text("id: ", id, "\n\n") }

// Event sends an event. data has no CR; name and id are one line, and id may be empty.
func (s *Stream) Event(name, id string, data []byte) error {
	s.text("event: ", name, "\n")
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		s.text("data: ")
		s.waiting.Write(line)
		s.text("\n")
	}
	if id != "" {
		s.text("id: ", id, "\n")
	}
	s.text("\n")
	s.sent = time.Now()
	if s.waiting.Len() < writeFrom {
		return nil
	}
	return s.write()
}

func (s *Stream) write() error {
	if s.waiting == nil {
		return nil
	}
	defer s.release()
	_, err := s.out.Write(s.waiting.Bytes())
	return err
}

// Flush sends everything now.
func (s *Stream) Flush() error {
	if err := s.write(); err != nil {
		return err
	}
	return s.conn.Flush()
}

// Wait sends everything, and waits until it is woken, but no less than pause after the last event.
// more is false when the stream must end: the end of ctx or of the server. A client that is still
// there comes again.
func (s *Stream) Wait(ctx context.Context, wake <-chan struct{}, pause time.Duration) (more bool, err error) {
	if err := s.Flush(); err != nil {
		return false, err
	}
	var rest <-chan time.Time
	for {
		select {
		case <-wake:
			left := pause - time.Since(s.sent)
			if left <= 0 {
				return true, nil
			}
			timer := time.NewTimer(left)
			defer timer.Stop()
			wake, rest = nil, timer.C
		case <-rest:
			return true, nil
		case <-s.beat.C:
			if _, err := io.WriteString(s.out, ":\n\n"); err != nil {
				return false, err
			}
			if err := s.conn.Flush(); err != nil {
				return false, err
			}
		case <-ctx.Done():
			return false, nil
		case <-s.closing:
			return false, nil
		}
	}
}
