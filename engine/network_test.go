package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"secbox/engine/initproto"
)

// message returns a message as yamux has it.
func message(kind byte, flags uint16, stream, length uint32, body ...byte) []byte {
	b := []byte{0, kind}
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(binary.BigEndian.AppendUint32(b, length), body...)
}

// hostile makes connections whose container never reads: a send waits for the end of the lease. The
// job's connections are closed at once.
func hostile(t testing.TB) (c *connections, end func()) {
	t.Helper()
	lease := make(chan struct{})
	var once sync.Once
	c, err := newConnections(Job{OnConnection: func(_ context.Context, conn net.Conn) { _ = conn.Close() }}, func([]byte) error {
		<-lease
		return net.ErrClosed
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, func() { c.close(time.Millisecond, func() { once.Do(func() { close(lease) }) }) }
}

// TestPings: a flood of pings, in chunks of any size, is a violation of the protocol. yamux would
// start a goroutine for each.
func TestPings(t *testing.T) {
	t.Parallel()
	data := message(0, 1, 1, 14, message(2, 1, 0, 7, 0, 0)...) // a body that looks like a ping is none
	for _, size := range []int{1, 5, 12, 1000} {
		c, end := hostile(t)
		for chunk := range slices.Chunk(data, size) {
			if err := c.take(chunk); err != nil {
				t.Errorf("%d: %v", size, err)
			}
		}
		var err error
		for chunk := range slices.Chunk(message(2, 1, 0, 7), size) {
			err = errors.Join(err, c.take(chunk))
		}
		if !errors.Is(err, initproto.ErrProtocol) {
			t.Errorf("%d: %v", size, err)
		}
		end()
	}
}

// TestStreamsBounded: connections that were closed here and not there do not add up.
func TestStreamsBounded(t *testing.T) {
	t.Parallel()
	c, err := newConnections(Job{OnConnection: func(_ context.Context, conn net.Conn) { _ = conn.Close() }}, func([]byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	for id := uint32(1); !c.session.IsClosed(); id += 2 { // it is as fast as the machine lets the other goroutines
		if time.Since(begun) > time.Minute {
			t.Fatal("no end")
		}
		_ = c.take(message(1, 1, id, 0))
	}
	c.close(time.Minute, func() { t.Error("a send did not end") })
}

// FuzzConnections: what a hostile container sends neither panics nor keeps close from its end.
func FuzzConnections(f *testing.F) {
	f.Add(message(0, 1, 1, 5, 'h', 'e', 'l', 'l', 'o'))
	f.Add(bytes.Join([][]byte{message(1, 1, 1, 0), message(1, 4, 1, 0), message(1, 4, 1, 0)}, nil)) // FIN twice
	f.Add(bytes.Join([][]byte{message(1, 1, 1, 1<<32-1), message(1, 0, 1, 1<<32-1)}, nil))          // a window that overflows
	f.Add(message(0, 1, 1, 1<<32-1, 'x'))                                                           // more than the window
	f.Add(bytes.Join([][]byte{message(1, 1, 3, 0), message(1, 1, 3, 0)}, nil))                      // the same twice
	f.Add(message(0, 0, 9, 3, 'a', 'b', 'c'))                                                       // an unknown one
	f.Add(message(3, 0, 0, 1))
	f.Add(message(2, 1, 0, 1))
	f.Add(message(9, 0, 0, 1))
	f.Fuzz(func(t *testing.T, stream []byte) {
		c, end := hostile(t)
		for chunk := range slices.Chunk(stream, 7) {
			if c.take(chunk) != nil {
				break
			}
		}
		end()
	})
}
