package remote_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"

	"secbox/sandbox/remote"
)

// fakeTime runs a test with a fake clock. Its servers must come from serveInMemory: sockets do not
// let the clock advance.
func fakeTime(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// serveInMemory is serve over connections in memory.
func serveInMemory(t testing.TB, change ...func(*remote.Config)) *server {
	t.Helper()
	s := newServer(t, change...)
	s.listenInMemory()
	return s
}

// listenInMemory starts the server of s over connections in memory; configure may change it before.
func (s *server) listenInMemory(configure ...func(*http.Server)) {
	n := &memoryNetwork{conns: make(chan net.Conn), closed: make(chan struct{})}
	s.client = &http.Client{Transport: &http.Transport{DialContext: n.dial, DisableKeepAlives: true}}
	web := &httptest.Server{Listener: n, Config: &http.Server{Handler: s.handler()}}
	for _, c := range configure {
		c(web.Config)
	}
	web.Start()
	s.started(web)
}

// memoryNetwork is a listener with the connections to it.
type memoryNetwork struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (n *memoryNetwork) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case n.conns <- theirs:
		return ours, nil
	case <-n.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n *memoryNetwork) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *memoryNetwork) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

func (n *memoryNetwork) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }
