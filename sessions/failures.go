package sessions

import (
	"net/netip"
	"sync"
	"time"

	"secbox/fault"
)

// Bounds of failures in a minute, after which sign-ins wait for the next.
const (
	maxFailures    = 10   // of an address
	maxAllFailures = 1000 // of all addresses; also bounds the memory
)

// failures counts sign-ins that failed.
type failures struct {
	now func() time.Time

	mu     sync.Mutex
	minute time.Time
	all    int
	by     map[string]int
}

// check returns fault.ServerBusy if the address, or all together, have failed too often in this minute.
func (f *failures) check(address string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.begin()
	if f.by[network(address)] < maxFailures && f.all < maxAllFailures {
		return nil
	}
	e := fault.New(fault.ServerBusy, "too many sign-ins have failed; wait a minute and try again")
	e.RetryAfter = f.minute.Add(time.Minute).Sub(now)
	return e
}

func (f *failures) add(address string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begin()
	f.all++
	f.by[network(address)]++
}

// begin starts a new minute if the last one is over, and returns the time. It needs mu.
func (f *failures) begin() time.Time {
	now := f.now()
	if passed := now.Sub(f.minute); passed < 0 || passed >= time.Minute || f.by == nil {
		f.minute, f.all, f.by = now, 0, map[string]int{}
	}
	return now
}

// network returns the part of an address that one client can choose freely no more: of IPv6 the first 64 bits.
func network(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil || ip.Unmap().Is4() {
		return address
	}
	prefix, _ := ip.WithZone("").Prefix(64) // an IPv6 address has 128 bits
	return prefix.String()
}
