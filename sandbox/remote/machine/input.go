package machine

import (
	"fmt"
	"io"
	"sync"
	"syscall"

	"secbox/sandbox/remote/wire"
)

// input is the standard input and the signals of a command while it runs, as core-api sends them.
// Safe for concurrent use.
type input struct {
	took    func() // called without the lock when there is something to acknowledge
	signals chan syscall.Signal

	mu     sync.Mutex
	more   *sync.Cond
	data   []byte // not read yet, at most wire.StdinWindow
	read   int64  // bytes read
	ended  bool   // after data
	closed bool   // the command has ended
	last   int64  // number of the last signal
}

func newInput(took func()) *input {
	in := &input{took: took, signals: make(chan syscall.Signal, wire.MaxSignals)}
	in.more = sync.NewCond(&in.mu)
	return in
}

// Read implements io.Reader for the command.
func (in *input) Read(p []byte) (int, error) {
	in.mu.Lock()
	for len(in.data) == 0 && !in.ended && !in.closed {
		in.more.Wait()
	}
	if in.closed || len(in.data) == 0 {
		in.mu.Unlock()
		return 0, io.EOF
	}
	n := copy(p, in.data)
	in.data = append(in.data[:0], in.data[n:]...)
	in.read += int64(n)
	in.mu.Unlock()
	in.took()
	return n, nil
}

// close ends reading.
func (in *input) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed, in.data = true, nil
	in.more.Broadcast()
}

// progress returns what can be acknowledged: bytes, and the number of the last signal.
func (in *input) progress() [2]int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return [2]int64{in.read, in.last}
}

// take takes a message of core-api. An error is a violation of the protocol.
func (in *input) take(body any) error {
	switch body := body.(type) {
	case *wire.Stdin:
		return in.takeStdin(body)
	case *wire.Signal:
		if err := in.takeSignal(body); err != nil {
			return err
		}
		in.took()
	}
	return nil
}

func (in *input) takeStdin(s *wire.Stdin) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return nil
	}
	have, to := in.read+int64(len(in.data)), s.Offset+int64(len(s.Data))
	switch {
	case s.Offset > have:
		return fmt.Errorf("%w: a part of a command's standard input is missing", wire.ErrProtocol)
	case in.ended && to > have, s.End && to < have:
		return fmt.Errorf("%w: a command's standard input goes on after its end", wire.ErrProtocol)
	case to-in.read > wire.StdinWindow:
		return fmt.Errorf("%w: more of a command's standard input came than may be on the way", wire.ErrProtocol)
	}
	if to > have {
		in.data = append(in.data, s.Data[have-s.Offset:]...)
	}
	in.ended = in.ended || s.End
	in.more.Signal()
	return nil
}

func (in *input) takeSignal(s *wire.Signal) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case s.Number <= in.last: // sent again
		return nil
	case s.Number > in.last+1:
		return fmt.Errorf("%w: a signal is missing", wire.ErrProtocol)
	}
	in.last++
	select {
	case in.signals <- wire.SignalNames[s.Signal]:
	default: // signals are not counted: the command has not got those before
	}
	return nil
}

// input passes a message on to its command. A command that has ended takes no more.
func (j *journal) input(m wire.Message) error {
	j.mu.Lock()
	r := j.held[m.ID]
	j.mu.Unlock()
	switch {
	case r == nil:
		return nil
	case r.input == nil:
		return fmt.Errorf("%w: input for a request that takes none", wire.ErrProtocol)
	}
	return r.input.take(m.Body)
}

// ack returns the acknowledgment of input, if there is something to acknowledge. r is a copy of the
// journal's request.
func (r *request) ack() *frame {
	if r.input == nil || r.answer != nil {
		return nil
	}
	now := r.input.progress()
	if now == r.acked {
		return nil
	}
	return &frame{
		id: r.id, typ: wire.TypeInputAck, body: &wire.InputAck{Stdin: now[0], Signals: now[1]}, acked: now, sent: r.sent, part: r.part,
		more: r.unsent(0, r.sent) > 0 || r.unsent(1, r.sent) > 0,
	}
}
