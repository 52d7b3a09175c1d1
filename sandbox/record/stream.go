package record

import (
	"bytes"
	"io"
)

// stream counts what a command writes to one of its streams, and keeps it or passes it on. One goroutine at a time writes to it.
type stream struct {
	keep  bool      // what comes, up to the limit
	to    io.Writer // nil: nobody
	limit int64
	seen  int64
	kept  bytes.Buffer
}

// writer is nil when nobody wants the stream: then it need not even come here.
func (s *stream) writer() io.Writer {
	if s.to == nil && !s.keep {
		return nil
	}
	return s
}

// Write implements io.Writer.
func (s *stream) Write(p []byte) (int, error) {
	s.seen += int64(len(p))
	if s.to != nil {
		return s.to.Write(p)
	}
	if room := s.limit - int64(s.kept.Len()); room > 0 {
		s.kept.Write(p[:min(room, int64(len(p)))])
	}
	return len(p), nil
}

func (s *stream) text() string { return s.kept.String() }
