package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"secbox/internal/whole"
)

// HostRule is an entry of net.allow: hosts that a job may connect to, by name or by address, and
// their ports.
type HostRule struct {
	name string     // in lower case, without a trailing dot; empty: addr counts
	sub  bool       // the names below name, and not name itself
	addr netip.Addr // never IPv4 in IPv6
	port uint16     // 0: the ports of webPorts
}

// webPorts are the ports of a rule that names none: HTTP's and HTTPS's.
var webPorts = []uint16{80, 443}

// hostRules is how rules are written, for messages.
const hostRules = "a rule is api.example.org, *.example.org, 192.0.2.7 or [2001:db8::7], with or without a port such as :8443"

// ParseHostRule parses a rule.
func ParseHostRule(text string) (HostRule, error) {
	var r HostRule
	host, port, hasPort := text, "", false
	i := strings.LastIndexByte(text, ':')
	if i >= 0 && (strings.HasPrefix(text, "[") && text[i-1] == ']' || strings.Count(text, ":") == 1) {
		host, port, hasPort = text[:i], text[i+1:], true
	}
	if hasPort {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port[0] == '0' || port[0] == '+' {
			return r, fmt.Errorf("%q has no port from 1 to 65535", whole.Shorten(text))
		}
		r.port = uint16(n)
	}
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") && strings.Contains(host, ":") {
		host = host[1 : len(host)-1]
	}
	r.name, r.sub = strings.CutPrefix(host, "*.")
	if !r.sub {
		if addr, err := netip.ParseAddr(host); err == nil && addr.Zone() == "" {
			r.name, r.addr = "", addr.Unmap()
			return r, nil
		}
	}
	name, ok := HostName(r.name)
	switch {
	case !ok:
		return r, fmt.Errorf("%q is neither a host name nor an address; %s", whole.Shorten(text), hostRules)
	case r.sub && !strings.Contains(name, "."):
		return r, fmt.Errorf("%q allows a whole top-level domain; name a domain below it, as in *.example.org", whole.Shorten(text))
	}
	r.name = name
	return r, nil
}

// HostName returns a host's name in lower case and without a trailing dot. False: it is not a name
// of letters, digits, hyphens and underscores (other names are written in their xn-- form), or it
// could be read as a number, as 0x7f.1 and 2130706433 are addresses to some programs.
func HostName(host string) (string, bool) {
	host = strings.TrimSuffix(host, ".")
	if host == "" || len(host) > 253 {
		return "", false
	}
	lower := []byte(host)
	label := 0
	for i, c := range lower {
		switch {
		case 'A' <= c && c <= 'Z':
			lower[i] = c + 'a' - 'A'
		case c == '.':
			if label == 0 {
				return "", false
			}
			label = -1
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '_', c == '-' && label > 0:
		default:
			return "", false
		}
		if label++; label > 63 {
			return "", false
		}
	}
	host = string(lower)
	last := host[strings.LastIndexByte(host, '.')+1:]
	if last == "" || '0' <= last[0] && last[0] <= '9' {
		return "", false
	}
	return host, true
}

// String is the rule in its usual form.
func (r HostRule) String() string {
	host := r.name
	switch {
	case r.sub:
		host = "*." + r.name
	case r.addr.Is4():
		host = r.addr.String()
	case r.addr.IsValid() && r.port == 0:
		return r.addr.String()
	case r.addr.IsValid():
		host = "[" + r.addr.String() + "]"
	}
	if r.port != 0 {
		host += ":" + strconv.Itoa(int(r.port))
	}
	return host
}

// Allows reports whether the rule allows a connection to a host, as HostName returns it, or to an
// address.
func (r HostRule) Allows(name string, addr netip.Addr, port uint16) bool {
	if r.port != port && (r.port != 0 || !slices.Contains(webPorts, port)) {
		return false
	}
	switch {
	case r.addr.IsValid():
		return addr.Unmap() == r.addr
	case r.sub:
		return strings.HasSuffix(name, "."+r.name)
	default:
		return name == r.name && name != ""
	}
}

// AllowsName is Allows for a host with a name.
func (r HostRule) AllowsName(name string, port uint16) bool {
	return !r.addr.IsValid() && r.Allows(name, netip.Addr{}, port)
}

// covers reports whether the rule allows all that another one allows.
func (r HostRule) covers(other HostRule) bool {
	if r.port != other.port && (r.port != 0 || !slices.Contains(webPorts, other.port)) {
		return false
	}
	if other.sub {
		return r.sub && (r.name == other.name || strings.HasSuffix(other.name, "."+r.name))
	}
	return r.Allows(other.name, other.addr, max(r.port, webPorts[0]))
}
