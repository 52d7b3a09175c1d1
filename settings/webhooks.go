package settings

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"secbox/internal/whole"
	"secbox/runner/webhooks"
)

func (w Webhooks) check(p *problems) {
	for i, pattern := range w.Allow {
		name, port, err := net.SplitHostPort(pattern)
		if err != nil {
			name, port = strings.Trim(pattern, "[]"), "443"
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || !isHost(strings.TrimPrefix(name, "*.")) {
			p.addf(fmt.Sprintf("webhooks.allow[%d]", i), "%q is no host; write hooks.example.com, *.example.com or hooks.example.com:8443",
				whole.Shorten(pattern))
		}
	}
	for i, network := range w.AllowNetworks {
		if _, err := parseNetwork(network); err != nil {
			p.addf(fmt.Sprintf("webhooks.allow_networks[%d]", i), "%q is no address and no network; write 10.0.0.5 or 10.0.0.0/24",
				whole.Shorten(network))
		}
	}
}

func parseNetwork(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.Prefix(addr.BitLen())
	}
	return netip.ParsePrefix(text)
}

// Policy is the settings for package webhooks.
func (w Webhooks) Policy() webhooks.Policy {
	return webhooks.Policy{Allow: w.Allow, AllowHTTP: w.AllowHTTP, Networks: networks(w.AllowNetworks)}
}

func networks(texts []string) (list []netip.Prefix) {
	for _, text := range texts {
		if network, err := parseNetwork(text); err == nil { // check has refused others
			list = append(list, network)
		}
	}
	return list
}
