package admission_test

import (
	"testing"

	"secbox/internal/admission"
)

// TestShares: one client leaves a place at work and a part of the queue to others.
func TestShares(t *testing.T) {
	t.Parallel()
	g := admission.NewShared(2, 4, admission.Share{AtOnce: 1, Queue: 3})
	enter := func(name string, waits bool) *admission.Ticket {
		t.Helper()
		ticket, _ := g.EnterAs(name)
		if ticket == nil || ticket.MustWait() != waits {
			t.Fatalf("%s: %+v", name, ticket)
		}
		return ticket
	}
	greedy := []*admission.Ticket{enter("greedy", false), enter("greedy", true), enter("greedy", true), enter("greedy", true)}
	if ticket, its := g.EnterAs("greedy"); ticket != nil || !its {
		t.Errorf("a fifth: %v, its own bound: %v", ticket, its)
	}
	other := enter("other", false) // at once, though three wait
	late := enter("other", true)
	if ticket, its := g.EnterAs("third"); ticket != nil || its {
		t.Errorf("a full queue: %v, its own bound: %v", ticket, its)
	}
	if ticket, its := g.EnterAs(""); ticket != nil || its {
		t.Errorf("a full queue: %v, its own bound: %v", ticket, its)
	}

	other.Leave()
	if err := late.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	late.Leave()
	if waiting, free := g.Load(); waiting != 3 || free != 1 {
		t.Errorf("the client that has its share was given more: %d wait, %d free", waiting, free)
	}
	for i, ticket := range greedy {
		if err := ticket.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if waiting, _ := g.Load(); waiting != 3-i {
			t.Errorf("%d wait while %d is at work", waiting, i)
		}
		ticket.Leave()
	}
	if waiting, free := g.Load(); waiting != 0 || free != 2 {
		t.Errorf("afterwards %d wait, %d are free", waiting, free)
	}
}

// TestClientsTakeTurns: two waiting clients alternate, however many callers the first one has.
func TestClientsTakeTurns(t *testing.T) {
	t.Parallel()
	g := admission.New(1, 10)
	at := g.Enter()
	var tickets []*admission.Ticket
	for _, name := range []string{"a", "a", "a", "b", "b"} {
		ticket, _ := g.EnterAs(name)
		tickets = append(tickets, ticket)
	}
	for _, i := range []int{0, 3, 1, 4, 2} {
		at.Leave()
		at = tickets[i]
		if err := at.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	at.Leave()
	if waiting, free := g.Load(); waiting != 0 || free != 1 {
		t.Errorf("afterwards %d wait, %d are free", waiting, free)
	}
}
