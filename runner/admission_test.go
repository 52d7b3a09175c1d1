package runner

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"secbox/fault"
)

func TestAdmissionKeepsItsBounds(t *testing.T) {
	t.Parallel()
	const slots, queue = 3, 50
	a := newAdmission(slots, queue)
	var running, most atomic.Int32
	var all sync.WaitGroup
	for range slots + queue {
		ticket, err := a.enter()
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			defer ticket.leave()
			if err := ticket.wait(context.Background()); err != nil {
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
	if waiting, free := a.load(); waiting != 0 || free != slots {
		t.Errorf("afterwards %d wait, %d are free", waiting, free)
	}
}

func TestAdmissionIsFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	a := newAdmission(1, 2)
	first, _ := a.enter()
	second, _ := a.enter()
	third, _ := a.enter()
	if first.mustWait() || !second.mustWait() || !third.mustWait() {
		t.Fatal("only the first may run at once")
	}
	if _, err := a.enter(); !fault.Is(err, fault.QueueFull) || fault.From(err).RetryAfter <= 0 {
		t.Fatalf("a fourth got %v", err)
	}
	first.leave()
	first.leave() // twice must not free two places
	if err := second.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancelCause(t.Context())
	why := errors.New("why")
	cancel(why)
	if err := third.wait(canceled); !errors.Is(err, why) {
		t.Fatalf("the third waits although the second runs: %v", err)
	}
	if waiting, _ := a.load(); waiting != 0 {
		t.Fatal("who gave up still waits")
	}
	second.leave()
	if _, free := a.load(); free != 1 {
		t.Fatalf("%d places are free", free)
	}
}

// TestATurnThatCameWithTheCancelIsPassedOn: a ticket whose turn has come and whose ctx ended in the same instant must not keep its place.
func TestATurnThatCameWithTheCancelIsPassedOn(t *testing.T) {
	t.Parallel()
	for range 500 {
		a := newAdmission(1, 1)
		first, _ := a.enter()
		second, _ := a.enter()
		ctx, cancel := context.WithCancel(context.Background())
		var both sync.WaitGroup
		both.Go(first.leave)
		both.Go(cancel)
		err := second.wait(ctx)
		both.Wait()
		if err == nil {
			second.leave()
		}
		if waiting, free := a.load(); waiting != 0 || free != 1 {
			t.Fatalf("%d wait, %d free", waiting, free)
		}
	}
}
