package network

import (
	"context"
	"encoding/binary"
	"io"
	"net/netip"
	"time"

	"secbox/audit"
)

// SOCKS5, RFC 1928.
const (
	socksVersion = 5
	socksNoAuth  = 0
	socksNone    = 0xff // none of the offered methods
	socksConnect = 1

	socksIPv4 = 1
	socksName = 3
	socksIPv6 = 4

	socksDone        = 0
	socksNotAllowed  = 2
	socksUnreachable = 4
	socksRefused     = 5
	socksCommand     = 7
	socksAddress     = 8
)

// serveSOCKS reads a request, and carries the connection.
func (w *Way) serveSOCKS(ctx context.Context, c *clientConn) {
	asked := false
	defer func() {
		defer abort(c)
		if !asked {
			w.recordRefusal(audit.ProtocolSOCKS5, "", 0, refuse(audit.ConnProtocol, "no whole request of SOCKS5 came; the proxy takes names, IPv4 and "+
				"IPv6, and no sign-in"))
		}
	}()
	_ = c.SetReadDeadline(time.Now().Add(headerTimeout))
	var head [4]byte
	if _, err := io.ReadFull(c, head[:2]); err != nil {
		return
	}
	methods := make([]byte, head[1])
	if _, err := io.ReadFull(c, methods); err != nil {
		return
	}
	method := byte(socksNone)
	for _, m := range methods {
		if m == socksNoAuth {
			method = socksNoAuth
		}
	}
	if _, err := c.Write([]byte{socksVersion, method}); err != nil || method == socksNone {
		return
	}
	if _, err := io.ReadFull(c, head[:]); err != nil || head[0] != socksVersion {
		return
	}
	host, ok := socksHost(c, head[3])
	answer := func(code byte) { _, _ = c.Write([]byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0}) }
	if !ok {
		answer(socksAddress)
		return
	}
	var port [2]byte
	if _, err := io.ReadFull(c, port[:]); err != nil {
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	asked = true
	if head[1] != socksConnect {
		w.recordRefusal(audit.ProtocolSOCKS5, host, binary.BigEndian.Uint16(port[:]),
			refuse(audit.ConnProtocol, "SOCKS5 connects; it neither binds nor carries UDP"))
		answer(socksCommand)
		return
	}
	l, refused := w.connect(ctx, audit.ProtocolSOCKS5, host, binary.BigEndian.Uint16(port[:]))
	if refused != nil {
		switch refused.end {
		case audit.ConnFailed:
			answer(socksRefused)
		case audit.ConnUnresolved:
			answer(socksUnreachable)
		case audit.ConnName:
			answer(socksAddress)
		default:
			answer(socksNotAllowed)
		}
		return
	}
	answer(socksDone)
	w.tunnel(c, l)
}

// socksHost reads an address of a type.
func socksHost(r io.Reader, kind byte) (string, bool) {
	size := [1]byte{4}
	switch kind {
	case socksIPv4:
	case socksIPv6:
		size[0] = 16
	case socksName:
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return "", false
		}
	default:
		return "", false
	}
	host := make([]byte, size[0])
	if _, err := io.ReadFull(r, host); err != nil {
		return "", false
	}
	if kind == socksName {
		return string(host), true
	}
	addr, ok := netip.AddrFromSlice(host)
	return addr.Unmap().String(), ok
}
