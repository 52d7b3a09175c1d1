package initproto

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"syscall"
)

// Feed sends a command's standard input in frames, within the credit.
type Feed struct {
	r       io.Reader
	send    func(Type, []byte) error
	credits chan struct{} // chunks that may be sent
	over    chan struct{} // closed by Stop

	sending sync.Mutex // of one frame
	stopped bool
}

// NewFeed makes a Feed of what r returns until its end or an error; a nil r is an empty input. send
// sends one frame; it must not keep the payload. The caller must call Stop.
func NewFeed(r io.Reader, send func(Type, []byte) error) *Feed {
	f := &Feed{r: r, send: send, credits: make(chan struct{}, StdinWindow), over: make(chan struct{})}
	for range StdinWindow {
		f.credits <- struct{}{}
	}
	return f
}

// Whole returns the whole input if it is in memory and fits into one chunk: the caller must send
// it, if it is not empty, and its end, and not call Run. It must be called once.
func (f *Feed) Whole() ([]byte, bool) {
	if f.r == nil {
		return nil, true
	}
	memory, ok := f.r.(interface{ Len() int }) // as strings.Reader and bytes.Reader have it
	if !ok || memory.Len() > MaxChunk {
		return nil, false
	}
	chunk, err := io.ReadAll(f.r)
	if err == nil && len(chunk) > 0 {
		<-f.credits
	}
	return chunk, err == nil
}

// Run sends the input until its end, an error of send, or Stop. Call it in a goroutine of its own:
// it may wait in a Read after Stop.
func (f *Feed) Run() {
	if chunk, ok := f.Whole(); ok {
		if len(chunk) == 0 || f.sendFrame(TypeStdin, chunk) {
			f.sendFrame(TypeStdinEnd, nil)
		}
		return
	}
	buf := make([]byte, MaxChunk)
	for {
		n, err := f.r.Read(buf)
		if n > 0 {
			select {
			case <-f.credits:
			case <-f.over:
				return
			}
			if !f.sendFrame(TypeStdin, buf[:n]) {
				return
			}
		}
		if err != nil {
			f.sendFrame(TypeStdinEnd, nil)
			return
		}
	}
}

// sendFrame reports whether the frame was sent.
func (f *Feed) sendFrame(t Type, payload []byte) bool {
	f.sending.Lock()
	defer f.sending.Unlock()
	return !f.stopped && f.send(t, payload) == nil
}

// Credit takes a credit frame; false when it gives more than was used.
func (f *Feed) Credit() bool {
	select {
	case f.credits <- struct{}{}:
		return true
	default:
		return false
	}
}

// Stop ends Run: no frame is sent after it returns. It waits for a frame that is being sent, after
// a call of unblock, if that is not nil; it does not wait for a Read. It must be called once.
func (f *Feed) Stop(unblock func()) {
	close(f.over)
	if !f.sending.TryLock() {
		if unblock != nil {
			unblock()
		}
		f.sending.Lock()
	}
	defer f.sending.Unlock()
	f.stopped = true
}

// Signals are the signals that a signal frame may carry.
var Signals = []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL}

// SendSignals sends the signals that arrive until over is closed. Signals that no frame may carry
// are dropped.
func SendSignals(from <-chan syscall.Signal, over <-chan struct{}, send func(Type, []byte) error) {
	for {
		select {
		case s, ok := <-from:
			if !ok || slices.Contains(Signals, s) && send(TypeSignal, []byte{byte(s)}) != nil {
				return
			}
		case <-over:
			return
		}
	}
}

// DecodeSignal decodes a signal frame's payload.
func DecodeSignal(payload []byte) (syscall.Signal, error) {
	if len(payload) != 1 || !slices.Contains(Signals, syscall.Signal(payload[0])) {
		return 0, fmt.Errorf("%w: a signal that is not allowed", ErrProtocol)
	}
	return syscall.Signal(payload[0]), nil
}
