package server

import (
	"net"
	"sync"
)

// boundedListener closes connections beyond a number, in all and from one address, as soon as it has accepted them. The address' part keeps a
// rest for others, who have a token, say, while one address only opens connections.
type boundedListener struct {
	net.Listener
	all, each int // at most

	mu   sync.Mutex
	open int
	by   map[string]int // by the remote address without its port
}

// newBoundedListener bounds l. Behind a proxy all connections come from one address.
func newBoundedListener(l net.Listener, most int, proxied bool) *boundedListener {
	each := most * 3 / 4
	if proxied {
		each = most
	}
	return &boundedListener{Listener: l, all: most, each: each, by: map[string]int{}}
}

// Accept implements net.Listener.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
		if tcp, ok := conn.(*net.TCPConn); ok && l.enter(host) { // the server closes one half of it first, which a net.Conn cannot
			return &countedConn{TCPConn: tcp, leave: sync.OnceFunc(func() { l.leave(host) })}, nil
		}
		_ = conn.Close()
	}
}

func (l *boundedListener) enter(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.all || l.by[host] >= l.each {
		return false
	}
	l.open++
	l.by[host]++
	return true
}

func (l *boundedListener) leave(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.by[host]--; l.by[host] == 0 {
		delete(l.by, host)
	}
}

// countedConn gives its place back when it is closed.
type countedConn struct {
	*net.TCPConn
	leave func()
}

// Close implements io.Closer.
func (c *countedConn) Close() error {
	defer c.leave()
	return c.TCPConn.Close()
}
