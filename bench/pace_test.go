package bench

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		p := &pacer{every: 500 * time.Millisecond}
		var starts []time.Duration
		// The third turn takes longer than the pace: the fourth starts late, and the fifth a whole pace after that.
		for _, takes := range []time.Duration{100, 499, 1200, 10, 500, 0} {
			if err := p.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			starts = append(starts, time.Since(begun)/time.Millisecond)
			time.Sleep(takes * time.Millisecond)
		}
		if want := []time.Duration{0, 500, 1000, 2200, 2700, 3200}; !slices.Equal(starts, want) {
			t.Errorf("turns started at %d ms, want %d", starts, want)
		}
		if p.turns != 6 || p.late != 1 {
			t.Errorf("%d turns, %d late", p.turns, p.late)
		}
	})
}

func TestPaceEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancelCause(t.Context())
		turn := paced(&pacer{every: time.Hour}, func(context.Context) (int, error) { return 1, nil })
		if n, err := turn(ctx); n != 1 || err != nil {
			t.Errorf("the first turn: %d %v", n, err)
		}
		time.AfterFunc(time.Second, func() { stop(errTimeLimit) })
		if n, err := turn(ctx); n != 0 || !errors.Is(err, errTimeLimit) {
			t.Errorf("the second turn: %d %v", n, err)
		}
	})
}
