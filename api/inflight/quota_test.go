package inflight

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"

	"secbox/fault"
)

func TestQueue(t *testing.T) {
	t.Parallel()
	queue := NewQueue(1, 2)
	leave, err := queue.Enter(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	// Each waits in the queue before the next one enters.
	turns := make(chan int)
	leaves := make(chan func(), 1)
	waiting := func() int {
		n, _ := queue.gate.Load()
		return n
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	given := make(chan error)
	go func() {
		_, err := queue.Enter(ctx, "")
		given <- err
	}()
	for waiting() < 1 {
		runtime.Gosched()
	}
	go func() {
		next, err := queue.Enter(t.Context(), "")
		if err != nil {
			t.Error(err)
		}
		leaves <- next
		turns <- 2
	}()
	for waiting() < 2 {
		runtime.Gosched()
	}
	_, err = queue.Enter(t.Context(), "")
	if !fault.Is(err, fault.SkillsBusy) || fault.From(err).RetryAfter <= 0 {
		t.Errorf("a third in the queue: %v", err)
	}
	cancel(gone)
	if err := <-given; !errors.Is(err, gone) {
		t.Errorf("who gave up: %v", err)
	}
	if n := waiting(); n != 1 {
		t.Errorf("%d wait after one gave up", n)
	}
	leave()
	leave() // not twice
	if n := <-turns; n != 2 {
		t.Errorf("it was the turn of %d", n)
	}
	(<-leaves)()
	if waiting, free := queue.gate.Load(); free != 1 || waiting != 0 {
		t.Errorf("%d free, %d wait", free, waiting)
	}
}

// TestQueueIsShared: one token leaves a half of the places and of the queue to others.
func TestQueueIsShared(t *testing.T) {
	t.Parallel()
	queue := NewQueue(2, 2)
	enter := func(token string) func() {
		t.Helper()
		leave, err := queue.Enter(t.Context(), token)
		if err != nil {
			t.Fatal(err)
		}
		return leave
	}
	leave := enter("greedy")
	waits := make(chan func())
	go func() {
		next, err := queue.Enter(t.Context(), "greedy")
		if err != nil {
			t.Error(err)
		}
		waits <- next
	}()
	for n := 0; n < 1; n, _ = queue.gate.Load() {
		runtime.Gosched()
	}
	if _, err := queue.Enter(t.Context(), "greedy"); !fault.Is(err, fault.SkillsBusy) || !strings.Contains(err.Error(), "token limit") {
		t.Errorf("a third of one token: %v", err)
	}
	enter("other")() // at once
	leave()
	(<-waits)()
}

func TestQuota(t *testing.T) {
	t.Parallel()
	q := NewQuota("uploads", Share{3, 100}, Share{2, 60})
	enter := func(token string, promised int64, fits bool) *Reservation {
		t.Helper()
		s, err := q.Enter(token, promised)
		if (err == nil) != fits || err != nil && !fault.Is(err, fault.SkillsBusy) {
			t.Errorf("%s with %d bytes: %v", token, promised, err)
		}
		return s
	}
	grow := func(s *Reservation, n int64, fits bool) {
		t.Helper()
		if err := s.Grow(n); (err == nil) != fits || err != nil && !fault.Is(err, fault.SkillsBusy) {
			t.Errorf("%s by %d bytes: %v", s.token, n, err)
		}
	}
	enter("a", 61, false)
	enter("a", math.MaxInt64, false)
	a1 := enter("a", 60, true) // an announcement takes nothing from others
	a2 := enter("a", -1, true)
	enter("a", 0, false)
	grow(a1, 50, true)
	grow(a2, 11, false)
	grow(a2, 10, true)
	b := enter("b", 40, true)
	enter("c", 0, false)
	grow(b, 41, false)
	grow(b, 40, true)
	a1.Leave()
	a1.Leave()
	c := enter("c", 50, true)
	enter("c", 51, false)
	for _, s := range []*Reservation{a2, b, c} {
		s.Leave()
	}
	if q.used != (Share{}) || len(q.byToken) != 0 {
		t.Errorf("left: %+v %v", q.used, q.byToken)
	}
}
