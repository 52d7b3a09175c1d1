//go:build linux

package worker

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"secbox/engine/initproto"
)

// stream is one output of the command.
type stream struct {
	frame initproto.Type
	pipe  *os.File
	limit int64 // bytes to pass on
	total int64 // bytes written by the command; to be read after the end of the stream
}

// pass sends the stream's bytes up to its limit and counts the rest, so that a command that prints
// without end does not block.
func (s *stream) pass(out Sender) {
	defer s.pipe.Close()
	buf := make([]byte, initproto.MaxChunk)
	for {
		n, err := s.pipe.Read(buf)
		if !s.forward(buf[:max(0, n)], out) {
			_, _ = io.Copy(io.Discard, s.pipe)
			return
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.drain(buf, out)
		}
		if err != nil {
			return
		}
	}
}

// forward sends the part within the limit; false when sending fails.
func (s *stream) forward(chunk []byte, out Sender) bool {
	if send := min(int64(len(chunk)), s.limit-s.total); send > 0 && out.Send(s.frame, chunk[:send]) != nil {
		return false
	}
	s.total += int64(len(chunk))
	return true
}

// finish is called when the command is dead: the rest of its output is in the pipe.
func (s *stream) finish() { _ = s.pipe.SetReadDeadline(time.Unix(1, 0)) }

// maxPipe is the largest size of a pipe, by the kernel's default.
const maxPipe = 1 << 20

// drain forwards the content of the pipe, but no more than a pipe can hold: another process may
// hold the other end and go on writing.
func (s *stream) drain(buf []byte, out Sender) {
	raw, err := s.pipe.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		for got := 0; got < maxPipe; {
			n, err := unix.Read(int(fd), buf)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n <= 0 || !s.forward(buf[:n], out) {
				return
			}
			got += n
		}
	})
}
