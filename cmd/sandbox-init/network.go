//go:build linux

package main

import (
	"fmt"
	"io"
	"net"

	"github.com/hashicorp/yamux"

	"secbox/engine/initproto"
)

// network is the way out of one job: a listener on the loopback whose connections go to core-api as
// they are. core-api speaks the proxy protocols, decides and dials. Or it is the way in, from
// core-api to ports of the loopback.
type network struct {
	listener net.Listener // nil: it is the way in
	accepts  func()       // accepts connections until close
	send     func(chunk []byte) error
	wire     *initproto.Wire
	session  *yamux.Session
	places   chan struct{} // taken by connections
	ca       authorities
}

// openNetwork listens, for a job that asks for it, and sets the job's environment, in which
// programs find the proxy and the job's authority unless it says otherwise; nil if the job does not
// ask. The caller must call begin and close.
func openNetwork(spec *initproto.Job, send func(chunk []byte) error) (*network, error) {
	if !spec.Network {
		return nil, nil
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("the network's proxy: %w", err)
	}
	n, err := newNetwork(send)
	if err != nil {
		return nil, err
	}
	n.listener, n.accepts = listener, n.accept
	spec.Env = initproto.WithDefaults(spec.Env, initproto.ProxyEnv(listener.Addr().String()))
	if spec.NetworkCA != "" {
		if n.ca, err = writeAuthorities(spec.NetworkCA); err != nil {
			n.close()
			return nil, fmt.Errorf("the network's certificate authority: %w", err)
		}
		spec.Env = initproto.WithDefaults(spec.Env, initproto.CAEnv(n.ca.bundle, n.ca.own))
	}
	return n, nil
}

func newNetwork(send func(chunk []byte) error) (n *network, err error) {
	n = &network{send: send, wire: initproto.NewWire(send), places: make(chan struct{}, initproto.MaxConnections)}
	n.session, err = yamux.Client(n.wire, initproto.Mux())
	return n, err
}

// begin tells core-api that the network is there, and accepts connections.
func (n *network) begin() {
	if n != nil {
		_ = n.send(nil)
		go n.accepts()
	}
}

func (n *network) accept() {
	for {
		n.places <- struct{}{}
		conn, err := n.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { <-n.places }()
			n.pass(conn.(*net.TCPConn))
		}()
	}
}

// pass passes a connection on.
func (n *network) pass(conn *net.TCPConn) {
	stream, err := n.session.OpenStream()
	if err != nil {
		_ = conn.Close()
		return
	}
	carry(conn, stream)
}

// carry carries a connection until both sides are done, or one fails, and closes both.
func carry(conn *net.TCPConn, stream net.Conn) {
	defer conn.Close()
	defer stream.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, err := io.CopyBuffer(onlyWriter{stream}, onlyReader{conn}, make([]byte, initproto.MaxWrite))
		if err != nil { // the other direction cannot notice
			_ = conn.Close()
		}
		_ = stream.Close()
	}()
	_, err := io.CopyBuffer(onlyWriter{conn}, onlyReader{stream}, make([]byte, initproto.MaxWrite))
	if err != nil || conn.CloseWrite() != nil {
		_ = conn.Close()
	}
	<-sent
}

// onlyWriter hides other methods of a connection, so that io.CopyBuffer uses its buffer.
type onlyWriter struct{ io.Writer }

// close ends all connections.
func (n *network) close() {
	if n == nil {
		return
	}
	if n.listener != nil {
		_ = n.listener.Close()
	}
	_ = n.session.Close()
	n.ca.remove()
}
