package server

import (
	"errors"
	"io"
	"net"
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
	l := newBoundedListener(plain, 4, false) // three of one address
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
	if l.open != 0 || len(l.byAddress) != 0 {
		t.Errorf("%d open, %v", l.open, l.byAddress)
	}
}
