package admission_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"secbox/internal/admission"
)

func TestGateLimits(t *testing.T) {
	t.Parallel()
	const slots, queue = 3, 50
	a := admission.New(slots, queue)
	var running, most atomic.Int32
	var all sync.WaitGroup
	for range slots + queue {
		ticket := a.Enter()
		if ticket == nil {
			t.Fatal("there is no place")
		}
		all.Go(func() {
			defer ticket.Leave()
			if err := ticket.Wait(context.Background()); err != nil {
				t.Error(err)
			}
			now := running.Add(1)
			for {
				seen := most.Load()
				if now <= seen || most.CompareAndSwap(seen, now) {
					break
				}
			}
			running.Add(-1)
		})
	}
	all.Wait()
	if most.Load() > slots {
		t.Errorf("%d ran at once", most.Load())
	}
	if waiting, free := a.Load(); waiting != 0 || free != slots {
		t.Errorf("afterwards %d wait, %d are free", waiting, free)
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	a := admission.New(1, 2)
	first := a.Enter()
	second := a.Enter()
	third := a.Enter()
	if first.MustWait() || !second.MustWait() || !third.MustWait() {
		t.Fatal("only the first may run at once")
	}
	if a.Enter() != nil {
		t.Fatal("a fourth got a place")
	}
	first.Leave()
	first.Leave() // twice must not free two places
	if err := second.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancelCause(t.Context())
	why := errors.New("why")
	cancel(why)
	if err := third.Wait(canceled); !errors.Is(err, why) {
		t.Fatalf("the third waits although the second runs: %v", err)
	}
	if waiting, _ := a.Load(); waiting != 0 {
		t.Fatal("who gave up still waits")
	}
	second.Leave()
	if _, free := a.Load(); free != 1 {
		t.Fatalf("%d places are free", free)
	}
}

// TestTurnDuringCancelIsPassedOn: a ticket whose turn comes at the end of its ctx must not keep its
// place.
func TestTurnDuringCancelIsPassedOn(t *testing.T) {
	t.Parallel()
	for range 500 {
		a := admission.New(1, 1)
		first := a.Enter()
		second := a.Enter()
		ctx, cancel := context.WithCancel(context.Background())
		var both sync.WaitGroup
		both.Go(first.Leave)
		both.Go(cancel)
		err := second.Wait(ctx)
		both.Wait()
		if err == nil {
			second.Leave()
		}
		if waiting, free := a.Load(); waiting != 0 || free != 1 {
			t.Fatalf("%d wait, %d free", waiting, free)
		}
	}
}
