package e2e

import (
	"bytes"
	"net"
	"strings"
	"sync"
	"testing"
)

// cable passes bytes between clients and a server. While it is pulled, bytes wait, as on a network
// that is down, and connections stay open.
type cable struct {
	url string

	mu     sync.Mutex
	to     string        // the server's address
	flows  chan struct{} // closed unless the cable is pulled
	trap   []byte        // from the server; the cable is pulled behind it
	sprung chan struct{}
	ends   map[net.Conn]bool
}

// newCable lays a cable to a server, given by its address.
func newCable(t testing.TB, to string) *cable {
	t.Helper()
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{url: "http://" + in.Addr().String(), to: to, flows: make(chan struct{}), ends: map[net.Conn]bool{}}
	close(c.flows)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			near, err := in.Accept()
			if err != nil {
				return
			}
			c.mu.Lock()
			to := c.to
			c.mu.Unlock()
			far, err := net.Dial("tcp", strings.TrimPrefix(to, "http://"))
			if err != nil {
				near.Close()
				continue
			}
			c.mu.Lock()
			c.ends[near], c.ends[far] = true, true
			c.mu.Unlock()
			all.Go(func() { c.pass(far, near, false) })
			all.Go(func() { c.pass(near, far, true) })
		}
	})
	t.Cleanup(func() {
		in.Close()
		c.mend()
		c.snap()
		all.Wait()
	})
	return c
}

// lead makes the cable lead to another server, for later connections.
func (c *cable) lead(to string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.to = to
}

// pass passes bytes on until one of the ends is closed.
func (c *cable) pass(to, from net.Conn, fromServer bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if fromServer && c.springs(buf[:n]) {
			_, _ = to.Write(buf[:n])
			continue
		}
		c.mu.Lock()
		flows := c.flows
		c.mu.Unlock()
		<-flows
		if _, e := to.Write(buf[:n]); e != nil || err != nil {
			return
		}
	}
}

// springs pulls the cable if the bytes contain the bytes of the trap. That disarms the trap.
func (c *cable) springs(p []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trap == nil || !bytes.Contains(p, c.trap) {
		return false
	}
	c.trap, c.flows = nil, make(chan struct{})
	close(c.sprung)
	return true
}

// pullBehind pulls the cable behind a message of the server with this text. The channel is closed
// then.
func (c *cable) pullBehind(text string) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trap, c.sprung = []byte(text), make(chan struct{})
	return c.sprung
}

// pull stops the bytes in both directions.
func (c *cable) pull() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flows = make(chan struct{})
}

// mend passes bytes on again. Safe to call when nothing is pulled.
func (c *cable) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.flows:
	default:
		close(c.flows)
	}
}

// snap closes all connections.
func (c *cable) snap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for end := range c.ends {
		end.Close()
	}
	clear(c.ends)
}
