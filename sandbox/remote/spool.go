package remote

import (
	"io"
	"os"
	"sync"

	"secbox/fault"
)

// spoolMemory is how much output of a command waits for its writer in memory, in bytes; the rest
// waits in a file.
const spoolMemory = 256 << 10

// spool decouples the reader of a link, which must not block, from a caller's writer, which may be
// slow. Its size is bounded by the output that the spec lets the command give back.
type spool struct {
	w    io.Writer
	done chan struct{} // closed when the writer's goroutine has ended

	mu     sync.Mutex
	more   *sync.Cond
	memory []byte   // the first bytes
	file   *os.File // the bytes after memory, if any
	read   int64    // bytes of the file
	size   int64
	failed bool  // writing failed, or the file did: the rest is dropped
	lost   error // why output did not reach the writer
	closed bool
}

// newSpool makes a spool that writes to w; nil drops everything.
func newSpool(w io.Writer) *spool {
	s := &spool{w: w, done: make(chan struct{}), failed: w == nil}
	s.more = sync.NewCond(&s.mu)
	if w == nil {
		close(s.done)
	} else {
		go s.run()
	}
	return s
}

// Write keeps a copy of p for the writer.
func (s *spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed || s.closed {
		return len(p), nil
	}
	if s.file == nil && len(s.memory)+len(p) <= spoolMemory {
		s.memory = append(s.memory, p...)
	} else if err := s.keep(p); err != nil {
		s.failed, s.lost = true, lostOutput(err)
	}
	s.more.Signal()
	return len(p), nil
}

// WriteString is Write.
func (s *spool) WriteString(p string) (int, error) { return s.Write([]byte(p)) }

func (s *spool) keep(p []byte) error {
	if s.file == nil {
		f, err := os.CreateTemp("", "secbox-output-*")
		if err != nil {
			return err
		}
		_ = os.Remove(f.Name()) // Windows refuses that while it is open; discard removes it
		s.file, s.read, s.size = f, 0, 0
	}
	n, err := s.file.WriteAt(p, s.size)
	s.size += int64(n)
	return err
}

// run passes the output on until the spool is closed.
func (s *spool) run() {
	defer close(s.done)
	var buf []byte
	for {
		var ok bool
		if buf, ok = s.next(buf); !ok {
			return
		}
		if _, err := s.w.Write(buf); err != nil {
			s.mu.Lock()
			s.failed = true
			s.mu.Unlock()
		}
	}
}

// next waits for the next piece; buf is used again.
func (s *spool) next(buf []byte) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.failed:
			return nil, false
		case len(s.memory) > 0:
			buf, s.memory = s.memory, buf[:0]
			return buf, true
		case s.file != nil:
			buf = append(buf[:0], make([]byte, min(s.size-s.read, spoolMemory))...)
			n, err := s.file.ReadAt(buf, s.read)
			if s.read += int64(n); s.read == s.size {
				s.discard()
			}
			if n == 0 {
				s.failed, s.lost = true, lostOutput(err)
				return nil, false
			}
			return buf[:n], true
		case s.closed:
			return nil, false
		}
		s.more.Wait()
	}
}

// lostOutput is the error of a command whose output could not be kept. It must be OutcomeUnknown:
// other codes say that nothing was run.
func lostOutput(err error) error {
	return fault.Wrap(fault.OutcomeUnknown, err,
		"the command has run, but core-api could not keep its output in its directory for temporary files; check its effects before you "+
			"run it again")
}

func (s *spool) discard() {
	if s.file != nil {
		_ = s.file.Close()
		_ = os.Remove(s.file.Name())
		s.file = nil
	}
}

// finish waits until the writer has got everything, after a cancel as well: what came before it is
// output of the command.
func (s *spool) finish() error {
	s.mu.Lock()
	s.closed = true
	s.more.Signal()
	s.mu.Unlock()
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	s.discard()
	return s.lost
}
