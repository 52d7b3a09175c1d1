package sessions

import (
	"net/netip"
	"sync"
	"time"

	"secbox/fault"
)

const (
	maxFailures  = 10    // of a network in a minute, after which its sign-ins wait
	maxNetworks  = 1_000 // that are remembered: the one whose failures began first is forgotten
	failureLimit = time.Minute
)

// failures counts sign-ins that failed, by network. Failures of one network never keep others out:
// a token cannot be guessed, so that many networks have no better chance than one.
type failures struct {
	now func() time.Time

	mu sync.Mutex
	by map[string]*failed
}

// failed is the failures of a network in a minute.
type failed struct {
	since time.Time
	count int
}

// check returns fault.TooManySignIns if the network of an address has failed too often in its
// minute.
func (f *failures) check(address string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	one, now := f.by[network(address)], f.now()
	if one == nil || one.count < maxFailures || over(one, now) {
		return nil
	}
	left := one.since.Add(failureLimit).Sub(now)
	e := fault.New(fault.TooManySignIns, "too many sign-ins from this address have failed; try again in %d seconds",
		(left+time.Second-1)/time.Second)
	e.RetryAfter = left
	return e
}

// over reports whether the minute of some failures has passed, also on a clock that was set back.
func over(one *failed, now time.Time) bool {
	passed := now.Sub(one.since)
	return passed < 0 || passed >= failureLimit
}

func (f *failures) add(address string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	where, now := network(address), f.now()
	if f.by == nil {
		f.by = map[string]*failed{}
	}
	one := f.by[where]
	if one == nil || over(one, now) {
		if one == nil && len(f.by) >= maxNetworks {
			f.forget()
		}
		one = &failed{since: now}
		f.by[where] = one
	}
	one.count++
}

// forget removes the network whose failures began first.
func (f *failures) forget() {
	oldest := ""
	for where, one := range f.by {
		if oldest == "" || one.since.Before(f.by[oldest].since) {
			oldest = where
		}
	}
	delete(f.by, oldest)
}

// network returns the part of an address that one client can choose freely no more: of IPv6 the
// first 64 bits.
func network(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil || ip.Unmap().Is4() {
		return address
	}
	prefix, _ := ip.WithZone("").Prefix(64) // an IPv6 address has 128 bits
	return prefix.String()
}
