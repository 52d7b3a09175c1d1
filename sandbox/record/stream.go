package record

import (
	"bytes"
	"io"

	"secbox/internal/whole"
	"secbox/runner/output"
)

// stream counts one of the outputs of a command, shows its beginning, and keeps it or passes it on.
// Its methods must not be called at the same time.
type stream struct {
	keep  bool           // the output, up to the limit
	to    io.Writer      // gets the output; may be nil
	shown *output.Stream // nil before the command has a row
	limit int64
	seen  int64
	kept  bytes.Buffer
}

// writer is nil when the output is neither kept nor passed on: the sandbox need not send it.
func (s *stream) writer() io.Writer {
	if s.to == nil && !s.keep {
		return nil
	}
	return s
}

// Write implements io.Writer.
func (s *stream) Write(p []byte) (int, error) {
	s.seen += int64(len(p))
	_, _ = s.shown.Write(p) // never fails
	if s.to != nil {
		return s.to.Write(p)
	}
	if room := s.limit - int64(s.kept.Len()); room > 0 {
		s.kept.Write(p[:min(room, int64(len(p)))])
	}
	return len(p), nil
}

// end is called when the command has ended. It reports whether output beyond the limit was dropped,
// and cuts the rest at a character.
func (s *stream) end(written int64) (truncated bool) {
	s.shown.End(written)
	if truncated = written > s.limit; truncated {
		s.kept.Truncate(len(whole.End(s.kept.Bytes())))
	}
	return truncated
}

func (s *stream) text() string { return s.kept.String() }
