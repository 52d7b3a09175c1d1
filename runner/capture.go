package runner

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"

	"secbox/fault"
)

// capture keeps what a job prints, in the state dir: never in a directory that the job can write to. Files carry the exec's id.
type capture struct {
	dir    string
	stdout *stream
	stderr *stream
}

// newCapture makes the two files.
func newCapture(root, execID string, maxStdout, maxStderr int64) (*capture, error) {
	c := &capture{dir: filepath.Join(root, execID)}
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return nil, stateDirError(err)
	}
	var err error
	if c.stdout, err = newStream(filepath.Join(c.dir, "stdout"), maxStdout); err == nil {
		c.stderr, err = newStream(filepath.Join(c.dir, "stderr"), maxStderr)
	}
	if err != nil {
		c.remove()
		return nil, stateDirError(err)
	}
	return c, nil
}

func stateDirError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fault.Wrap(fault.DiskFull, err, "the state dir has no room for an exec's output; free some space")
	}
	return fault.Wrap(fault.Internal, err, "the state dir cannot be written")
}

// remove drops the files; what they held has been published, or nobody wants it.
func (c *capture) remove() {
	for _, s := range []*stream{c.stdout, c.stderr} {
		if s != nil {
			_ = s.file.Close()
		}
	}
	_ = os.RemoveAll(c.dir)
}

// stream is one output: the first limit bytes go to the file, the first InlineBytes of them also stay at hand, the rest is counted.
type stream struct {
	mu     sync.Mutex
	file   *os.File
	limit  int64
	kept   int64
	seen   int64
	inline []byte
	failed error // the first failure to write; what came after it is lost
}

func newStream(path string, limit int64) (*stream, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &stream{file: f, limit: limit}, nil
}

// Write never fails and never blocks on anything but the disk.
func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen += int64(len(p))
	keep := p[:min(int64(len(p)), s.limit-s.kept)]
	if room := InlineBytes - len(s.inline); room > 0 {
		s.inline = append(s.inline, keep[:min(len(keep), room)]...)
	}
	if len(keep) > 0 && s.failed == nil {
		n, err := s.file.Write(keep)
		s.kept += int64(n)
		s.failed = err
	}
	return len(p), nil
}

// reader reads what was kept, from its beginning.
func (s *stream) reader() io.Reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	return io.NewSectionReader(s.file, 0, s.kept)
}

// truncated reports whether less was kept than the job wrote, total bytes by init's count.
func (s *stream) truncated(total int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept < max(total, s.seen)
}

// text is the inline part as valid UTF-8; a character that InlineBytes cut in two is left out.
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
