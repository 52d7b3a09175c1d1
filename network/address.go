package network

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"secbox/internal/publicip"
)

// refused says why no job may reach an address; "" if jobs may. The settings can allow networks,
// but not an address in another form, such as IPv4 in IPv6.
func (n *Network) refused(addr netip.Addr) string {
	addr = addr.Unmap()
	switch {
	case addr.Zone() == "" && publicip.In(n.cfg.Private, addr):
		return ""
	case !publicip.Is(addr):
		return "is no public address"
	case n.own.has(addr):
		return "is an address of this machine"
	}
	return ""
}

// ownAddresses are the addresses of this machine.
type ownAddresses struct {
	mu   sync.Mutex
	read time.Time
	all  map[netip.Addr]bool
}

// ownFor is how long the addresses are taken for unchanged.
const ownFor = 10 * time.Second

func (o *ownAddresses) has(addr netip.Addr) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := time.Now(); o.all == nil || now.Sub(o.read) > ownFor {
		o.read, o.all = now, map[netip.Addr]bool{}
		list, _ := net.InterfaceAddrs()
		for _, a := range list {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				o.all[p.Addr().Unmap()] = true
			}
		}
	}
	return o.all[addr]
}
