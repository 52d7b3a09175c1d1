//go:build linux

package worker

import (
	"os"
	"sync"

	"secbox/engine/initproto"
)

// stdin writes the job's standard input from a queue of at most StdinWindow chunks, so that reading
// frames never waits for the job.
type stdin struct {
	chunks chan []byte
	pipe   *os.File
	once   sync.Once
	quit   chan struct{} // closed by abandon
	over   chan struct{} // closed when no more is written and no more credit given
	ended  bool          // for the reader of frames only
}

func newStdin(pipe *os.File, out Sender) *stdin {
	s := &stdin{chunks: make(chan []byte, initproto.StdinWindow), pipe: pipe, quit: make(chan struct{}), over: make(chan struct{})}
	go func() {
		defer close(s.over)
		defer s.abandon()
		broken := false
		for {
			var chunk []byte
			more := false
			select {
			case chunk, more = <-s.chunks:
			case <-s.quit:
			}
			if !more {
				return
			}
			if !broken {
				_, err := pipe.Write(chunk)
				broken = err != nil // the job closed its end: drop the rest, but give credit
			}
			if out.Send(initproto.TypeCredit, nil) != nil {
				return
			}
		}
	}()
	return s
}

// push queues a chunk; false when it exceeds the credit or comes after the end.
func (s *stdin) push(chunk []byte) bool {
	if s.ended {
		return false
	}
	select {
	case s.chunks <- append([]byte(nil), chunk...):
		return true
	default:
		return false
	}
}

// end closes the input after the queued chunks.
func (s *stdin) end() {
	if !s.ended {
		s.ended = true
		close(s.chunks)
	}
}

// abandon closes the pipe at once and unblocks a write to it.
func (s *stdin) abandon() {
	s.once.Do(func() {
		close(s.quit)
		_ = s.pipe.Close()
	})
}
