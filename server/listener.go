package server

import (
	"net"
	"sync"
)

// boundedListener closes connections over a limit right after it has accepted them. The limit per address keeps some for other clients while
// one address opens connections without using them.
type boundedListener struct {
	net.Listener
	total, perAddress int // at most

	mu        sync.Mutex
	open      int
	byAddress map[string]int // without the port
}

// newBoundedListener makes a listener with at most limit connections, three quarters of them from one address. Behind a proxy, all come from one
// address.
func newBoundedListener(l net.Listener, limit int, proxied bool) *boundedListener {
	perAddress := limit * 3 / 4
	if proxied {
		perAddress = limit
	}
	return &boundedListener{Listener: l, total: limit, perAddress: perAddress, byAddress: map[string]int{}}
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
		if tcp, ok := conn.(*net.TCPConn); ok && l.enter(host) { // net/http needs CloseWrite, which net.Conn lacks
			return &countedConn{TCPConn: tcp, leave: sync.OnceFunc(func() { l.leave(host) })}, nil
		}
		_ = conn.Close()
	}
}

func (l *boundedListener) enter(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.total || l.byAddress[host] >= l.perAddress {
		return false
	}
	l.open++
	l.byAddress[host]++
	return true
}

func (l *boundedListener) leave(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.byAddress[host]--; l.byAddress[host] == 0 {
		delete(l.byAddress, host)
	}
}

// countedConn leaves its listener's count when it is closed.
type countedConn struct {
	*net.TCPConn
	leave func()
}

func (c *countedConn) Close() error {
	defer c.leave()
	return c.TCPConn.Close()
}
