package runner

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unicode/utf8"

	"secbox/diskspace"
	"secbox/fault"
)

// capture keeps the output of a job: the first InlineBytes in memory and, when there is more, all of it in a file in the state dir, which
// the job cannot write to.
type capture struct {
	stdout *stream
	stderr *stream
	grown  *signal // more is kept
}

// newCapture makes no file yet; files are named by the exec's id.
func newCapture(root, execID string, maxStdout, maxStderr int64) *capture {
	grown := &signal{}
	return &capture{
		stdout: &stream{path: filepath.Join(root, execID+".stdout"), limit: maxStdout, grown: grown},
		stderr: &stream{path: filepath.Join(root, execID+".stderr"), limit: maxStderr, grown: grown},
		grown:  grown,
	}
}

func stateDirError(err error) error {
	if diskspace.IsFull(err) {
		return fault.Wrap(fault.DiskFull, err, "the state dir has no room for an exec's output; free some space")
	}
	return fault.Wrap(fault.Internal, err, "the state dir cannot be written")
}

// remove removes the files.
func (c *capture) remove() {
	for _, s := range []*stream{c.stdout, c.stderr} {
		s.mu.Lock()
		if s.file != nil {
			_ = s.file.Close()
			_ = os.Remove(s.path)
		}
		s.mu.Unlock()
	}
}

// stream is one of the outputs: its first limit bytes are kept, the rest is counted.
type stream struct {
	path  string
	limit int64
	grown *signal

	mu     sync.Mutex
	inline []byte   // the first InlineBytes of the kept output
	file   *os.File // all kept output; nil while inline holds it
	kept   int64
	seen   int64
	failed error // the first failure to write; later output is lost
}

func (s *stream) Write(p []byte) (int, error) {
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
	s.grown.wake()
	return len(p), nil
}

// size is how much is kept so far, in bytes.
func (s *stream) size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept
}

// spill makes the file and writes inline to it; s.mu is held.
func (s *stream) spill() (*os.File, error) {
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

// reader reads the output kept so far; it must not be used after remove.
func (s *stream) reader() *io.SectionReader {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return io.NewSectionReader(bytes.NewReader(s.inline), 0, s.kept)
	}
	return io.NewSectionReader(s.file, 0, s.kept)
}

// open is reader, but the result may be used after remove, until it is closed.
func (s *stream) open() (io.ReadSeekCloser, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return section{io.NewSectionReader(bytes.NewReader(s.inline), 0, s.kept), nil}, s.kept, nil
	}
	f, err := os.Open(s.path)
	if err != nil {
		return nil, 0, err
	}
	return section{io.NewSectionReader(f, 0, s.kept), f}, s.kept, nil
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

// truncated reports whether less was kept than the job wrote. total is init's count.
func (s *stream) truncated(total int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept < max(total, s.seen)
}

// text returns b, cut at InlineBytes, as valid UTF-8; a character that the cut splits is left out.
func text(b []byte) []byte {
	if len(b) > InlineBytes {
		b = b[:InlineBytes]
	}
	for cut := len(b) - 1; cut >= 0 && cut > len(b)-utf8.UTFMax && len(b) == InlineBytes; cut-- {
		if utf8.RuneStart(b[cut]) {
			if !utf8.FullRune(b[cut:]) {
				b = b[:cut]
			}
			break
		}
	}
	if utf8.Valid(b) {
		return b
	}
	return []byte(strings.ToValidUTF8(string(b), "\uFFFD"))
}
