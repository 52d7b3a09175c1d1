package remote

import (
	"testing"

	"secbox/sandbox/remote/wire"
)

// Output is passed on without the lock: what one link has read must be where it belongs before the next one says how far it has come.
func TestALinkWaitsForTheReaderOfTheOneBefore(t *testing.T) {
	t.Parallel()
	h := NewHub(Config{})
	hello := &wire.Hello{Session: "s", Name: "laptop"}
	link := func() *link {
		return &link{hub: h, caller: Caller{TokenID: "t", UserID: "u"}, gone: make(chan struct{}), wake: make(chan struct{}, 1)}
	}
	first, next := link(), link()
	if former, refusal := h.attach(first, hello); former != nil || refusal != nil {
		t.Fatal(former, refusal)
	}
	h.mu.Lock()
	first.machine.pending["e"] = &request{id: "e", sent: true, m: first.machine}
	first.ending = &closing{wire.StatusProtocol, "it lies"}
	h.detach(first)
	h.mu.Unlock()
	if former, refusal := h.attach(next, hello); former != first || refusal != nil {
		t.Fatal("it is attached while the one before is read")
	}
	close(first.gone)
	if former, refusal := h.attach(next, hello); former != nil || refusal != nil || next.machine != first.machine {
		t.Fatal(former, refusal)
	}
}
