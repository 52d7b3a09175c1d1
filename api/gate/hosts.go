package gate

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"secbox/api/problem"
	"secbox/fault"
)

// hosts keeps web pages from using the server through a browser. A page can send requests to
// 127.0.0.1, which its Origin header shows, and can point its own name at 127.0.0.1, which the Host
// header shows. Both matter where no token is needed.
type hosts struct {
	loopback bool            // the server listens on loopback only
	names    map[string]bool // "name" or "name:port", lower case; empty: any Host is accepted
}

// newHosts always accepts localhost, 127.0.0.1 and [::1] on loopback. Elsewhere it accepts any Host
// if allowed is empty.
func newHosts(listenAddr string, allowed []string) (hosts, error) {
	host, _, err := net.SplitHostPort(listenAddr)
	if err != nil {
		return hosts{}, fault.Wrap(fault.InvalidSettings, err, "the listen address %q is not host:port", listenAddr)
	}
	g := hosts{names: map[string]bool{}}
	ip, err := netip.ParseAddr(host)
	if g.loopback = host == "localhost" || err == nil && ip.Unmap().IsLoopback(); g.loopback {
		for _, name := range []string{"localhost", "127.0.0.1", "::1", host} {
			g.names[strings.ToLower(name)] = true
		}
	}
	for _, entry := range allowed {
		name, port, ok := splitHost(entry)
		if !ok {
			return hosts{}, fault.New(fault.InvalidSettings, "allowed host %q is neither a name nor name:port", entry)
		}
		if port != "" {
			name += ":" + port
		}
		g.names[name] = true
	}
	return g, nil
}

// check refuses what Gate.CheckHost and, if arrival is true, Gate.CheckArrival refuse.
func (g hosts) check(r *http.Request, arrival bool) error {
	if len(g.names) > 0 && !g.knows(r.Host) {
		return fault.New(fault.ForeignHost,
			"the Host header %q is not one of this server's; use localhost, or add the name to the setting http.allowed_hosts",
			problem.Clip(r.Host))
	}
	if !g.loopback {
		return nil // every request needs a token, which no page has
	}
	for _, origin := range r.Header.Values("Origin") {
		if !sameOrigin(origin, r.Host) {
			return fault.New(fault.ForeignOrigin,
				"the request comes from a page of %q; this server answers only its own pages and programs", problem.Clip(origin))
		}
	}
	if arrival && r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" &&
		r.Header.Get("Sec-Fetch-Dest") == "document" {
		return nil
	}
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return fault.New(fault.ForeignOrigin,
				"the request comes from a page of another origin; type the address into the browser, or use a program")
		}
	}
	return nil
}

// clientAddress returns the connection's address or, if that is a trusted proxy's, the last address
// in X-Forwarded-For that is not.
func clientAddress(proxies []string) (echo.IPExtractor, error) {
	if len(proxies) == 0 {
		return func(r *http.Request) string { return r.RemoteAddr }, nil
	}
	trust := []echo.TrustOption{echo.TrustLoopback(false), echo.TrustLinkLocal(false), echo.TrustPrivateNet(false)}
	for _, proxy := range proxies {
		network, err := netip.ParsePrefix(proxy)
		if addr, e := netip.ParseAddr(proxy); e == nil {
			network, err = addr.Prefix(addr.BitLen())
		}
		if err != nil {
			return nil, fault.Wrap(fault.InvalidSettings, err, "trusted proxy %q is neither an address nor a network", proxy)
		}
		trust = append(trust, echo.TrustIPRange(&net.IPNet{
			IP: network.Addr().AsSlice(), Mask: net.CIDRMask(network.Bits(), network.Addr().BitLen()),
		}))
	}
	return echo.ExtractIPFromXFFHeader(trust...), nil
}

func (g hosts) knows(hostHeader string) bool {
	name, port, ok := splitHost(hostHeader)
	return ok && (g.names[name] || port != "" && g.names[name+":"+port])
}

// sameOrigin compares an Origin header with the Host header of the same request. It ignores the
// scheme: only this server can listen on this host and port.
func sameOrigin(origin, hostHeader string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Path != "" {
		return false
	}
	name, port, ok := splitHost(u.Host)
	name2, port2, ok2 := splitHost(hostHeader)
	return ok && ok2 && name == name2 && port == port2
}

// splitHost splits a Host header into name and port, in lower case and without the brackets of an
// IPv6 address.
func splitHost(s string) (name, port string, ok bool) {
	s = strings.ToLower(s)
	if rest, v6 := strings.CutPrefix(s, "["); v6 {
		name, rest, ok = strings.Cut(rest, "]")
		if !ok || rest != "" && rest[0] != ':' {
			return "", "", false
		}
		port = strings.TrimPrefix(rest, ":")
		if rest == ":" {
			return "", "", false
		}
		if ip, err := netip.ParseAddr(name); err != nil || !ip.Is6() {
			return "", "", false
		}
	} else {
		var colon bool
		name, port, colon = strings.Cut(s, ":")
		if colon && port == "" {
			return "", "", false
		}
	}
	if port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return "", "", false
		}
	}
	return name, port, name != "" && !strings.ContainsAny(name, "/@\\ ")
}
