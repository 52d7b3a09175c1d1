package admission_test

import (
	"testing"

	"secbox/internal/admission"
)

// TestBackground: callers from the background leave places to others, count towards the share of
// their client, and hear of places that come free.
func TestBackground(t *testing.T) {
	t.Parallel()
	g := admission.NewShared(3, 3, admission.Share{AtOnce: 1, Queue: 1})
	freed := 0
	g.AllowBackground(2, func() { freed++ })
	a, b := g.EnterBackground(), g.EnterBackground()
	if a == nil || b == nil || g.EnterBackground() != nil {
		t.Fatalf("%v, %v and a third", a, b)
	}
	free := func(want int) {
		t.Helper()
		if _, got := g.Load(); got != want {
			t.Errorf("%d places are free, want %d", got, want)
		}
	}
	free(3)
	a.WorkFor("a")
	free(2)
	if g.MayRun("a") || !g.MayRun("b") {
		t.Error("the share of a is used up, and that of b is not")
	}
	waits, _ := g.EnterAs("a")
	other, _ := g.EnterAs("other")
	if waits == nil || !waits.MustWait() || other == nil || other.MustWait() {
		t.Errorf("a second caller of a must wait, another client need not: %v, %v", waits, other)
	}
	free(1)
	b.Leave()
	free(1)
	if freed != 0 {
		t.Error("a place that was not used is told of")
	}
	if again := g.EnterBackground(); again == nil {
		t.Error("its place is gone")
	} else {
		again.WorkFor("b")
	}
	a.Leave()
	a.Leave()
	if freed != 1 {
		t.Errorf("told %d times", freed)
	}
	if err := waits.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if g.EnterBackground() != nil {
		t.Error("the place of a caller that waited was given twice")
	}
	other.Leave()
	if g.EnterBackground() == nil || freed != 2 {
		t.Errorf("told %d times", freed)
	}
}
