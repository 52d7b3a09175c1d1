// Package output keeps what commands write while they run, and lets others follow it: the beginning
// in memory and, when there is more, all that is to be kept in files. It must not know where
// commands run, nor what becomes of their output.
package output

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
	"unicode/utf8"

	"secbox/internal/whole"
)

// InlineBytes is how much of a stream is kept in memory.
const InlineBytes = 64 << 10

// Capture keeps the output of one command: the first InlineBytes of each stream in memory and, when
// there is more, all of it in a file.
type Capture struct {
	Stdout *Stream
	Stderr *Stream
	grown  *signal // more is kept, or used

	mu    sync.Mutex
	usage Usage
}

// Usage is what a command uses while it runs; zero: it is not measured.
type Usage struct {
	CPU         time.Duration // until now
	Elapsed     time.Duration // since its start, when it was measured
	Cores       float64       // processors in use since the measurement before
	MemoryBytes int64         // now
}

// Use notes what the command uses now. It is for those who follow the command, and kept nowhere
// else.
func (c *Capture) Use(cpu, elapsed time.Duration, memoryBytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := Usage{CPU: cpu, Elapsed: elapsed, MemoryBytes: memoryBytes}
	if span := elapsed - c.usage.Elapsed; span > 0 {
		now.Cores = max(0, float64(cpu-c.usage.CPU)/float64(span))
	}
	c.usage = now
	c.grown.wake()
}

func (c *Capture) used() Usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usage
}

// New returns a Capture that keeps at most so many bytes of each stream. It makes no file before it
// needs one: path.stdout and path.stderr, in a directory that the command cannot write to. Streams
// of at most InlineBytes have none.
func New(path string, maxStdout, maxStderr int64) *Capture {
	grown := &signal{}
	return &Capture{
		Stdout: &Stream{path: path + ".stdout", limit: maxStdout, grown: grown},
		Stderr: &Stream{path: path + ".stderr", limit: maxStderr, grown: grown},
		grown:  grown,
	}
}

// Remove removes the files.
func (c *Capture) Remove() {
	for _, s := range []*Stream{c.Stdout, c.Stderr} {
		s.mu.Lock()
		if s.file != nil {
			_ = s.file.Close()
			_ = os.Remove(s.path)
		}
		s.mu.Unlock()
	}
}

// Failed returns why output could not be written to the files; nil if it could. No one may write
// meanwhile.
func (c *Capture) Failed() error { return errors.Join(c.Stdout.failed, c.Stderr.failed) }

// stream returns a stream by its name.
func (c *Capture) stream(name string) *Stream {
	if name == "stderr" {
		return c.Stderr
	}
	return c.Stdout
}

// Stream is one of the outputs: its first limit bytes are kept, without the beginning of a
// character that the limit cuts; the rest is counted.
type Stream struct {
	path  string
	limit int64
	grown *signal

	mu     sync.Mutex
	inline []byte   // the first InlineBytes of the kept output
	file   *os.File // all kept output; nil while inline holds it
	kept   int64
	half   int64 // bytes at the end of kept that begin a character; readers do not see them until it is clear whether the rest is cut off
	seen   int64
	failed error // the first failure to write; later output is lost
}

// Write implements io.Writer. It never fails: what cannot be kept is counted.
func (s *Stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen += int64(len(p))
	keep := p[:min(int64(len(p)), s.limit-s.kept)]
	if len(keep) == 0 || s.failed != nil {
		return len(p), nil
	}
	if s.file == nil && len(s.inline)+len(keep) > InlineBytes {
		s.file, s.failed = s.spill()
	}
	if s.file != nil {
		n, err := s.file.Write(keep)
		s.kept += int64(n)
		s.failed = err
	}
	if room := InlineBytes - len(s.inline); room > 0 {
		s.inline = append(s.inline, keep[:min(len(keep), room)]...)
	}
	if s.file == nil {
		s.kept = int64(len(s.inline))
	}
	if s.kept == s.limit || s.failed != nil {
		s.half = s.halfCharacter()
	}
	s.grown.wake()
	return len(p), nil
}

// Inline returns the first InlineBytes that were kept. No one may write meanwhile.
func (s *Stream) Inline() []byte { return s.inline }

// Seen is how much was written so far, in bytes.
func (s *Stream) Seen() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// Kept is how much is kept so far, in bytes.
func (s *Stream) Kept() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept - s.half
}

// spill makes the file and writes inline to it; s.mu is held.
func (s *Stream) spill() (*os.File, error) {
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(s.inline); err != nil {
		_ = f.Close()
		_ = os.Remove(s.path)
		return nil, err
	}
	return f, nil
}

// Reader reads the output kept so far; it must not be used after Remove.
func (s *Stream) Reader() *io.SectionReader {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return io.NewSectionReader(bytes.NewReader(s.inline), 0, s.kept-s.half)
	}
	return io.NewSectionReader(s.file, 0, s.kept-s.half)
}

// open is Reader, but the result may be used after Remove, until it is closed.
func (s *Stream) open() (io.ReadSeekCloser, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return section{io.NewSectionReader(bytes.NewReader(s.inline), 0, s.kept-s.half), nil}, s.kept - s.half, nil
	}
	// In a root, since Windows does not remove a file that os.Open opened.
	f, err := os.OpenInRoot(filepath.Split(s.path))
	if err != nil {
		return nil, 0, err
	}
	return section{io.NewSectionReader(f, 0, s.kept-s.half), f}, s.kept - s.half, nil
}

// section closes a file with the section of it that is read.
type section struct {
	*io.SectionReader
	of io.Closer // may be nil
}

func (s section) Close() error {
	if s.of == nil {
		return nil
	}
	return s.of.Close()
}

// End reports whether less was kept than the command wrote, which may have counted its output
// itself. No one may write afterwards.
func (s *Stream) End(total int64) (truncated bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept < max(total, s.seen) {
		truncated = true
		s.kept -= s.half
		s.inline = s.inline[:min(int64(len(s.inline)), s.kept)]
	}
	s.half = 0
	return truncated
}

// halfCharacter returns how many bytes at the end of the kept output are the beginning of a
// character; s.mu is held.
func (s *Stream) halfCharacter() int64 {
	tail := make([]byte, min(s.kept, utf8.UTFMax))
	from := s.kept - int64(len(tail))
	if s.file == nil {
		copy(tail, s.inline[from:])
	} else if _, err := s.file.ReadAt(tail, from); err != nil {
		return 0
	}
	return int64(len(tail) - len(whole.End(tail)))
}
