//go:build linux

package worker

import (
	"os"
	"sync"

	"secbox/engine/initproto"
)

// stdin feeds the job's standard input from a queue of at most StdinWindow chunks, so that reading frames never waits for the job.
type stdin struct {
	chunks chan []byte
	pipe   *os.File
	once   sync.Once
	quit   chan struct{} // closed by abandon
	over   chan struct{} // closed when nothing more is written, and no credit is given any more
	ended  bool          // only touched by the reader of frames
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
				broken = err != nil // the job closed its end: go on giving credit, throw the rest away
			}
			if out.Send(initproto.TypeCredit, nil) != nil {
				return
			}
		}
	}()
	return s
}

// push queues a chunk; false when core-api sent more than it had credit for, or after the end.
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

// end closes the input once what is queued is written.
func (s *stdin) end() {
	if !s.ended {
		s.ended = true
		close(s.chunks)
	}
}

// abandon closes the pipe now; a writer that waits on it is woken.
func (s *stdin) abandon() {
	s.once.Do(func() {
		close(s.quit)
		_ = s.pipe.Close()
	})
}
