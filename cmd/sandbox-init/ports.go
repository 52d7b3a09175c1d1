//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"secbox/engine/initproto"
)

// openPorts begins to accept connections from core-api to ports of the loopback. The caller must
// call begin and close. Only this process carries them: a program with the uid of the jobs could be
// made to send anything.
func (m *multiServer) openPorts(send func(chunk []byte) error) (*network, error) {
	n, err := newNetwork(send)
	if err == nil {
		n.accepts = func() {
			for {
				stream, err := n.session.AcceptStream()
				if err != nil {
					return
				}
				go m.toPort(n, stream)
			}
		}
	}
	return n, err
}

// portTimeout is how long a connection to the loopback may take: its queue of new ones may be full.
const portTimeout = 5 * time.Second

// toPort reads the port that a connection is for, dials it, says what became of that, and carries
// the connection.
func (m *multiServer) toPort(n *network, stream net.Conn) {
	defer stream.Close()
	var header [2]byte
	_ = stream.SetReadDeadline(time.Now().Add(portTimeout))
	if _, err := io.ReadFull(stream, header[:]); err != nil {
		return
	}
	_ = stream.SetReadDeadline(time.Time{})
	conn, said := m.dialPort(int(binary.BigEndian.Uint16(header[:])))
	if _, err := stream.Write([]byte{said}); err != nil || conn == nil {
		if conn != nil {
			_ = conn.Close()
		}
		return
	}
	carry(conn, stream)
}

// dialPort dials a port of the loopback, except the proxies of jobs, which are this process's own.
func (m *multiServer) dialPort(port int) (*net.TCPConn, byte) {
	m.mu.Lock()
	for _, c := range m.commands {
		if c.network != nil && c.network.listener != nil && c.network.listener.Addr().(*net.TCPAddr).Port == port {
			m.mu.Unlock()
			return nil, initproto.PortRefused
		}
	}
	m.mu.Unlock()
	said := initproto.PortRefused
	for _, host := range []string{"127.0.0.1", "::1"} {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(host, strconv.Itoa(port)), portTimeout)
		if err == nil {
			return conn.(*net.TCPConn), initproto.PortOpen
		}
		if host == "127.0.0.1" && !errors.Is(err, unix.ECONNREFUSED) {
			said = initproto.PortFailed
		}
	}
	return nil, said
}
