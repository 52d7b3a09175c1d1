package server

import (
	"net"
	"net/netip"
	"sync"
)

// boundedListener closes connections over a limit right after it has accepted them. The limit per
// client keeps some for other clients while one opens connections without using them.
type boundedListener struct {
	net.Listener
	total, perClient int            // at most
	proxies          []netip.Prefix // all clients behind one have its address: they have no limit of their own

	mu       sync.Mutex
	open     int
	byClient map[netip.Prefix]int
}

// newBoundedListener makes a listener with at most limit connections, three quarters of them from
// one client that is no proxy.
func newBoundedListener(l net.Listener, limit int, proxies []netip.Prefix) *boundedListener {
	return &boundedListener{Listener: l, total: limit, perClient: limit * 3 / 4, proxies: proxies, byClient: map[netip.Prefix]int{}}
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if tcp, ok := conn.(*net.TCPConn); ok { // net/http needs CloseWrite, which net.Conn lacks
			from := tcp.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().WithZone("")
			if l.enter(from) {
				return &countedConn{TCPConn: tcp, leave: sync.OnceFunc(func() { l.leave(from) })}, nil
			}
		}
		_ = conn.Close()
	}
}

// client returns the part of an address that one client cannot choose freely: of IPv6 the first 64
// bits.
func client(from netip.Addr) netip.Prefix {
	network, _ := from.Prefix(min(64, from.BitLen())) // the number of bits is valid
	return network
}

func (l *boundedListener) enter(from netip.Addr) bool {
	most := l.perClient
	for _, network := range l.proxies {
		if network.Contains(from) {
			most = l.total
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.total || l.byClient[client(from)] >= most {
		return false
	}
	l.open++
	l.byClient[client(from)]++
	return true
}

func (l *boundedListener) leave(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.byClient[client(from)]--; l.byClient[client(from)] == 0 {
		delete(l.byClient, client(from))
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
