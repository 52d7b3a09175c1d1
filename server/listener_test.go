package server

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
)

// TestNumberOfConnectionsIsLimited: further connections are closed unread until another one ends.
func TestNumberOfConnectionsIsLimited(t *testing.T) {
	t.Parallel()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	l := newBoundedListener(plain, 4, nil) // three of one address
	accepted := make(chan net.Conn)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- conn
		}
	}()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", plain.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	var open []net.Conn
	for range 3 {
		dial()
		open = append(open, <-accepted)
	}
	if _, err := dial().Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the fourth of one address: %v", err)
	}
	open[0].Close()
	open[0].Close() // counts once
	dial()
	open = append(open, <-accepted)
	if _, err := dial().Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("one beyond, after one has gone: %v", err)
	}
	if _, ok := open[1].(interface{ CloseWrite() error }); !ok {
		t.Error("the server cannot close one half of a connection")
	}
	for _, conn := range open {
		conn.Close()
	}
	if l.open != 0 || len(l.byClient) != 0 {
		t.Errorf("%d open, %v", l.open, l.byClient)
	}
}

// TestOnlyProxiesMayHaveAllConnections: a client has three quarters of the connections, also where
// proxies are trusted. Addresses of one IPv6 network are one client.
func TestOnlyProxiesMayHaveAllConnections(t *testing.T) {
	t.Parallel()
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("2001:db8:1::5/128")}
	for _, c := range []struct {
		from string
		most int
	}{
		{"10.0.0.5", 8}, {"2001:db8:1::5", 8}, {"10.0.1.5", 6}, {"127.0.0.1", 6}, {"2001:db8:1::6", 6},
	} {
		l := newBoundedListener(nil, 8, proxies)
		from, open := netip.MustParseAddr(c.from), 0
		for l.enter(from) {
			open++
		}
		if open != c.most {
			t.Errorf("%s has %d connections of 8, want %d", from, open, c.most)
		}
		if other := l.enter(netip.MustParseAddr("192.0.2.1")); other != (c.most < 8) {
			t.Errorf("another client beside %s gets one: %v", from, other)
		}
	}
	l := newBoundedListener(nil, 8, proxies)
	from := netip.MustParseAddr("2001:db8:2::1")
	for open := 0; l.enter(from); open++ {
		if from = from.Next(); open == 6 {
			t.Fatalf("one network has more than six connections")
		}
	}
}
