// Package publicip tells the addresses of the internet's hosts from all others.
package publicip

import "net/netip"

// special are the networks within 0.0.0.0/0 and 2000::/3 that are no addresses of the internet's
// hosts (IANA's special-purpose registries). 6to4 and Teredo lead to any IPv4 address.
var special = func() (networks []netip.Prefix) {
	for _, text := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
		"192.88.99.0/24", "192.168.0.0/16",
		"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
		"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	} {
		networks = append(networks, netip.MustParsePrefix(text))
	}
	return networks
}()

// publicV6 are all addresses of IPv6 that hosts of the internet have. Outside are loopback,
// private, link-local and multicast addresses, addresses that are mapped from IPv4, and NAT64.
var publicV6 = netip.MustParsePrefix("2000::/3")

// Is reports whether an address is public.
func Is(addr netip.Addr) bool {
	if !addr.IsValid() || addr.Zone() != "" || addr.Is6() && !publicV6.Contains(addr) {
		return false
	}
	return !In(special, addr)
}

// In reports whether one of the networks has the address.
func In(networks []netip.Prefix, addr netip.Addr) bool {
	for _, network := range networks {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}
