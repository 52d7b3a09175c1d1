// Package ports is the HTTP of ports of sessions, from outside: host names, links, and a proxy that
// keeps the page of a session apart from the console, from other sessions and from secrets of
// secbox. A request goes through in this order:
//
//	host.go   the port and the session that a Host header names
//	link.go   links and cookies: who may use a port, signed
//	origin.go pages of others, which may not use the cookie
//	proxy.go  what is taken out of requests and answers on the way
//	pace.go   clients that do not read
//
// It must not know tokens, records or routes.
package ports

import (
	"net"
	"regexp"
	"strconv"
	"strings"
)

// Port numbers that can be reached: jobs are not root.
const (
	MinPort = 1024
	MaxPort = 65535
)

// Address is a port of a session.
type Address struct {
	Session string // id
	Port    uint16
}

// ParsePort returns the port of a text.
func ParsePort(text string) (uint16, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil && n >= MinPort && strconv.FormatUint(n, 10) == text
}

// Domain is a domain name in lower case below which each port of each session has a host.
type Domain string

// label is a host's first label: the port and the session's id, a UUID.
var label = regexp.MustCompile(`^([0-9]{4,5})-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$`)

// Host returns the host of an address, without a port of this server.
func (d Domain) Host(a Address) string {
	return strconv.Itoa(int(a.Port)) + "-" + a.Session + "." + string(d)
}

// Find returns the address that a Host header names. within reports whether the header is in the
// domain, in any form: such a request must not reach another handler, and without ok, it names
// nothing.
func (d Domain) Find(hostHeader string) (a Address, within, ok bool) {
	host := strings.ToLower(hostHeader)
	name := host
	if h, port, err := net.SplitHostPort(host); err == nil {
		name = h
		_, err := strconv.ParseUint(port, 10, 16)
		ok = err == nil
	} else {
		ok = !strings.Contains(host, ":")
	}
	bare := strings.TrimRight(strings.Trim(name, "[]"), ".")
	if bare != string(d) && !strings.HasSuffix(bare, "."+string(d)) {
		return Address{}, false, false
	}
	first, below := strings.CutSuffix(name, "."+string(d)) // a name with a final dot would be another origin
	parts := label.FindStringSubmatch(first)
	if !ok || !below || parts == nil {
		return Address{}, true, false
	}
	a = Address{Session: parts[2]}
	a.Port, ok = ParsePort(parts[1])
	return a, true, ok
}
