package remote

import (
	"testing"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

// TestWaitingBytesAreBounded: waiting requests are bounded by their bytes, not only by their number.
func TestWaitingBytesAreBounded(t *testing.T) {
	t.Parallel()
	p := newPermits()
	long := weight(wire.MaxMessage)
	all := []*waiter{}
	for {
		w, err := p.enter(long, sandbox.User{})
		if err != nil {
			if !fault.Is(err, fault.SandboxBusy) {
				t.Fatal(err)
			}
			break
		}
		all = append(all, w)
	}
	if kept := len(all) * wire.MaxMessage; kept > 600<<20 {
		t.Errorf("%d MiB are kept", kept>>20)
	}
	p.refuse(func(sandbox.User) bool { return len(p.waiting)%2 == 0 }, errShuttingDown())
	for _, w := range all {
		p.leave(w)
	}
	if p.wanted != 0 || p.free != wire.MaxInFlight || len(p.waiting) != 0 {
		t.Errorf("%+v when all have left", p)
	}
}
