package sessions

import (
	"fmt"
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
	if !fault.Is(err, fault.ServerBusy) || fault.From(err).RetryAfter != time.Minute {
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

func TestFailuresOfAll(t *testing.T) {
	t.Parallel()
	f := failures{now: time.Now}
	for n := range maxAllFailures {
		f.add(fmt.Sprintf("192.0.%d.%d", n/256, n%256))
	}
	if err := f.check("198.51.100.1"); !fault.Is(err, fault.ServerBusy) || len(f.by) > maxAllFailures {
		t.Errorf("after %d failures: %v", maxAllFailures, err)
	}
}
