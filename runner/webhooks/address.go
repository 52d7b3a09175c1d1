package webhooks

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"secbox/fault"
	"secbox/internal/publicip"
)

// MaxURL is the longest callback_url, in bytes.
const MaxURL = 2048

// Policy says which addresses callbacks may have.
type Policy struct {
	Allow     []string // hosts, as HOST, HOST:PORT, *.HOST or *.HOST:PORT; none: webhooks are off
	AllowHTTP bool
	Networks  []netip.Prefix // addresses that are not public, and may be dialled all the same
}

// WithoutQuery cuts the query from an address, also from a stored address, to show it: a query
// often has a password.
func WithoutQuery(url string) string {
	url, _, _ = strings.Cut(strings.TrimPrefix(url, sealedPrefix), "?")
	return url
}

// On reports whether webhooks are on.
func (p Policy) On() bool { return len(p.Allow) > 0 }

// Check returns the host of a callback_url and its port, in the only spelling that they have here.
// Its error names what is wrong, and never repeats the URL.
func (p Policy) Check(text string) (host string, err error) {
	const field = "callback_url"
	u, err := url.Parse(text)
	switch {
	case !p.On():
		return "", fault.BadField(field, "is not possible: webhooks are off; the setting webhooks.allow names the hosts that may be called")
	case len(text) > MaxURL:
		return "", fault.BadField(field, "has %d bytes, at most %d are possible", len(text), MaxURL)
	case err != nil || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) || u.Opaque != "" || u.Hostname() == "":
		return "", fault.BadField(field, "is no URL of printable ASCII such as https://hooks.example.com/secbox")
	case u.User != nil:
		return "", fault.BadField(field, "has a user or password; leave it out: requests are signed, see POST /webhooks/secret")
	case u.Fragment != "":
		return "", fault.BadField(field, "has a fragment (#…); leave it out")
	case u.Scheme != "https" && (u.Scheme != "http" || !p.AllowHTTP):
		return "", fault.BadField(field, "must begin with https:// (http:// if the setting webhooks.allow_http is true)")
	}
	name, port, err := hostOf(u)
	switch {
	case err != nil:
		return "", fault.BadField(field, "has no valid port")
	case strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }): // percent-encoded
		return "", fault.BadField(field, "has a host name that is not ASCII; write its labels as xn--…")
	}
	for _, pattern := range p.Allow {
		if matches(pattern, name, port, u.Scheme) {
			return net.JoinHostPort(name, port), nil
		}
	}
	return "", fault.BadField(field, "has a host or port that the setting webhooks.allow does not have")
}

var defaultPorts = map[string]string{"https": "443", "http": "80"}

// hostOf returns the host and the port of an address in the only spelling that they have here: in
// lower case, IPv6 without brackets and as short as possible, a port without leading zeros and also
// where it is the scheme's.
func hostOf(u *url.URL) (name, port string, err error) {
	port = u.Port()
	if port == "" {
		port = defaultPorts[u.Scheme]
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err == nil && n == 0 {
		err = strconv.ErrRange
	}
	return canonicalName(u.Hostname()), strconv.FormatUint(n, 10), err
}

func canonicalName(name string) string {
	if addr, err := netip.ParseAddr(name); err == nil {
		return addr.Unmap().String()
	}
	return strings.ToLower(name)
}

// countedHost is the host of a stored delivery as Check returns it. Older versions stored it as the
// client had spelled it.
func countedHost(d Delivery) string {
	u, err := url.Parse(WithoutQuery(d.URL))
	if err != nil {
		return d.Host
	}
	name, port, err := hostOf(u)
	if err != nil {
		return d.Host
	}
	return net.JoinHostPort(name, port)
}

// storedHosts returns the spellings of hosts in stored deliveries: as Check returns them, and
// without a scheme's default port, as older versions stored them.
func storedHosts(hosts []string) (all []string) {
	for _, host := range hosts {
		all = append(all, host)
		for _, port := range defaultPorts {
			if bare, ok := strings.CutSuffix(host, ":"+port); ok {
				all = append(all, bare)
			}
		}
	}
	return all
}

// splitPattern returns the host and the port of a pattern; the port may be empty.
func splitPattern(pattern string) (host, port string) {
	host, port, err := net.SplitHostPort(pattern)
	if err != nil {
		return canonicalName(strings.Trim(pattern, "[]")), ""
	}
	return canonicalName(host), port
}

// matches reports whether a pattern allows a host. One without a port allows the port of the
// scheme.
func matches(pattern, name, port, scheme string) bool {
	host, want := splitPattern(pattern)
	if want == "" {
		want = defaultPorts[scheme]
	}
	if port != want {
		return false
	}
	if suffix, ok := strings.CutPrefix(host, "*"); ok {
		return len(name) > len(suffix) && strings.HasSuffix(name, suffix)
	}
	return name == host
}

var errNotPublic = errors.New("the host has an address that is not public, and that the setting webhooks.allow_networks does not have")

// dials returns nil if an address may be dialled.
func (p Policy) dials(addr netip.Addr) error {
	if addr.Zone() == "" && publicip.In(p.Networks, addr) || publicip.Is(addr) {
		return nil
	}
	return errNotPublic
}

// control is net.Dialer.Control: it checks the address that the name resolved to, immediately
// before the connection.
func (p Policy) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return errNotPublic
	}
	return p.dials(to.Addr())
}
