package sessions

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"secbox/fault"
)

func TestFailuresOfAnAddress(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	f := failures{now: func() time.Time { return now }}
	for n := range maxFailures {
		if err := f.check("2001:db8::1"); err != nil {
			t.Fatal(err)
		}
		f.add(fmt.Sprintf("2001:db8::%x", n)) // one network
	}
	err := f.check("2001:db8::ffff")
	if !fault.Is(err, fault.TooManySignIns) || fault.From(err).RetryAfter != time.Minute {
		t.Errorf("after %d failures: %v", maxFailures, err)
	}
	for _, other := range []string{"2001:db8:0:1::1", "192.0.2.1"} {
		if err := f.check(other); err != nil {
			t.Errorf("%s: %v", other, err)
		}
	}
	now = now.Add(time.Minute)
	if err := f.check("2001:db8::1"); err != nil {
		t.Errorf("a minute later: %v", err)
	}
}

// TestFailuresOfManyAddresses: they keep no other address out, and take bounded memory; an address
// that fails on stays out.
func TestFailuresOfManyAddresses(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	f := failures{now: func() time.Time { return now }}
	for n := range 3 * maxNetworks {
		now = now.Add(time.Millisecond)
		f.add(fmt.Sprintf("192.%d.%d.1", n/256, n%256))
	}
	if err := f.check("198.51.100.1"); err != nil || len(f.by) > maxNetworks {
		t.Errorf("another address beside %d: %v", len(f.by), err)
	}
	for range maxFailures {
		f.add("198.51.100.1")
	}
	now = now.Add(20*time.Second + time.Millisecond)
	if err := f.check("198.51.100.1"); err == nil || fault.From(err).RetryAfter > 40*time.Second || !strings.Contains(err.Error(), "in 40 seconds") {
		t.Errorf("the address that failed %d times: %v", maxFailures, err)
	}
}
