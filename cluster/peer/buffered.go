package peer

import (
	"bufio"
	"net"
	"sync"
)

const bufferSize = 64 << 10

// bufferedConn is below TLS, which would read and write each record of 16 KiB with a system call of
// its own. After start, what is written goes out as soon as another goroutine gets a turn, so that
// records that follow each other share a call: content costs the CPU time that it costs without
// TLS.
type bufferedConn struct {
	net.Conn
	in *bufio.Reader

	mu    sync.Mutex
	out   *bufio.Writer // nil before start
	dirty chan struct{}
	done  chan struct{}
	once  sync.Once
}

func newBuffered(conn net.Conn) *bufferedConn {
	return &bufferedConn{Conn: conn, in: bufio.NewReader(conn), dirty: make(chan struct{}, 1), done: make(chan struct{})}
}

// start begins to buffer, after the handshake and before the first Read after it. Close ends it.
func (c *bufferedConn) start() {
	c.mu.Lock()
	c.out = bufio.NewWriterSize(c.Conn, bufferSize)
	c.in = bufio.NewReaderSize(c.in, bufferSize)
	c.mu.Unlock()
	go func() {
		for {
			select {
			case <-c.dirty:
				c.mu.Lock()
				_ = c.out.Flush() // the next Write returns its error
				c.mu.Unlock()
			case <-c.done:
				return
			}
		}
	}()
}

func (c *bufferedConn) Read(p []byte) (int, error) { return c.in.Read(p) }

func (c *bufferedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out == nil {
		return c.Conn.Write(p)
	}
	n, err := c.out.Write(p)
	select {
	case c.dirty <- struct{}{}:
	default:
	}
	return n, err
}

func (c *bufferedConn) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Conn.Close()
}
