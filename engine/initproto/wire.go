package initproto

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/hashicorp/yamux"
)

// Wire is one end of the stream of bytes in a job's network frames. It carries one yamux session,
// in which init opens a stream for each connection that the job makes. yamux bounds what waits in
// each stream, so that a slow connection stops neither the frames nor another connection.
type Wire struct {
	send func(chunk []byte) error

	mu      sync.Mutex
	arrived *sync.Cond
	queue   []byte
	closed  bool

	header []byte // of a yamux message whose body is written next; for the writer only

	begun []byte // of the header of the yamux message that arrives
	body  uint32 // bytes of its body that have not arrived
}

// NewWire makes a Wire that sends chunks of at most MaxChunk bytes, which send must not keep.
func NewWire(send func(chunk []byte) error) *Wire {
	w := &Wire{send: send}
	w.arrived = sync.NewCond(&w.mu)
	return w
}

// maxArrived is how many bytes may wait until yamux reads them, which it does at once unless its
// peer does not keep to the protocol.
const maxArrived = 32 << 20

// Push takes the payload of a network frame and never waits. The error says that the peer does not
// keep to the protocol; then the Wire is closed.
func (w *Wire) Push(chunk []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pings(chunk) || len(w.queue)+len(chunk) > maxArrived {
		w.closed = true
		w.arrived.Broadcast()
		return fmt.Errorf("%w: a ping, or more than is read", ErrProtocol)
	}
	if !w.closed {
		w.queue = append(w.queue, chunk...)
	}
	w.arrived.Broadcast()
	return nil
}

// pings reports whether a ping begins in the chunk: neither end sends one, and yamux would start a
// goroutine for each.
func (w *Wire) pings(chunk []byte) bool {
	for len(chunk) > 0 {
		if w.body > 0 {
			n := min(len(chunk), int(w.body))
			chunk, w.body = chunk[n:], w.body-uint32(n)
			continue
		}
		n := min(len(chunk), yamuxHeader-len(w.begun))
		w.begun, chunk = append(w.begun, chunk[:n]...), chunk[n:]
		if len(w.begun) < yamuxHeader {
			return false
		}
		switch w.begun[1] {
		case yamuxPing:
			return true
		case yamuxData:
			w.body = binary.BigEndian.Uint32(w.begun[yamuxLength:])
		}
		w.begun = w.begun[:0]
	}
	return false
}

// Read implements io.Reader.
func (w *Wire) Read(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) == 0 && !w.closed {
		w.arrived.Wait()
	}
	if w.closed {
		return 0, io.EOF
	}
	n := copy(p, w.queue)
	if w.queue = w.queue[n:]; len(w.queue) == 0 {
		w.queue = nil
	}
	return n, nil
}

// yamux writes the header of a message and its body one after the other.
const (
	yamuxHeader = 12
	yamuxLength = 8 // where the length of the body is
	yamuxData   = 0 // the type of messages with a body
	yamuxPing   = 2
)

// Write implements io.Writer. A header goes into the frame of its body.
func (w *Wire) Write(p []byte) (int, error) {
	if len(w.header) == 0 && len(p) == yamuxHeader && p[1] == yamuxData && [4]byte(p[yamuxLength:]) != [4]byte{} {
		w.header = append(w.header, p...)
		return len(p), nil
	}
	rest := p
	if len(w.header) > 0 {
		rest = append(w.header, p...)
		w.header = w.header[:0]
	}
	for len(rest) > 0 {
		n := min(len(rest), MaxChunk)
		w.mu.Lock()
		closed := w.closed
		w.mu.Unlock()
		if closed {
			return 0, net.ErrClosed
		}
		if err := w.send(rest[:n]); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(p), nil
}

// Close ends reads and writes. It does not wait for a send.
func (w *Wire) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.arrived.Broadcast()
	return nil
}

// MaxWrite is how many bytes of a connection fit into one frame.
const MaxWrite = MaxChunk - yamuxHeader

// MaxConnections is how many connections of a job init passes on at once. Further ones wait in the
// kernel's queue.
const MaxConnections = 256

// Mux is the settings of the session that a Wire carries.
func Mux() *yamux.Config {
	c := yamux.DefaultConfig()
	c.EnableKeepAlive = false // the lease is enough
	c.StreamCloseTimeout = 0  // one side may be done long before the other
	c.StreamOpenTimeout = 0
	c.MaxStreamWindowSize = 256 << 10 // the least; MaxConnections of them may wait in core-api's memory
	c.LogOutput = io.Discard
	return c
}
