package bench

import (
	"context"
	"errors"
	"slices"
	"testing"
)

func TestAlternate(t *testing.T) {
	t.Parallel()
	var order string
	side := func(name string, failAt int, err error, end context.CancelCauseFunc) func(context.Context) (int, error) {
		n := 0
		return func(context.Context) (int, error) {
			n++
			order += name
			if n == failAt {
				if end != nil {
					end(errTimeLimit)
				}
				return 0, err
			}
			return n, nil
		}
	}
	broken := errors.New("broken")

	as, bs, err := alternate(t.Context(), 3, 1, side("a", 0, nil, nil), side("b", 0, nil, nil))
	if order != "abbaab" || !slices.Equal(as, []int{1, 2, 3}) || !slices.Equal(bs, as) || err != nil {
		t.Errorf("%s %v %v %v", order, as, bs, err)
	}
	if _, _, err := alternate(t.Context(), 3, 1, side("a", 0, nil, nil), side("b", 2, broken, nil)); !errors.Is(err, broken) {
		t.Errorf("an error of one side gave %v", err)
	}

	// The time limit: what it cuts in two does not count, and too little is an error.
	ctx, end := context.WithCancelCause(t.Context())
	as, bs, err = alternate(ctx, 5, 2, side("a", 3, broken, end), side("b", 0, nil, nil))
	if !slices.Equal(as, []int{1, 2}) || !slices.Equal(bs, as) || err != nil {
		t.Errorf("at the time limit: %v %v %v", as, bs, err)
	}
	ctx, end = context.WithCancelCause(t.Context())
	if _, _, err = alternate(ctx, 5, 3, side("a", 3, broken, end), side("b", 0, nil, nil)); !errors.Is(err, errTimeLimit) {
		t.Errorf("too few before the time limit gave %v", err)
	}

	// Ctrl-C is no time limit.
	ctx, stop := context.WithCancelCause(t.Context())
	stop(context.Canceled)
	if _, _, err = alternate(ctx, 5, 0, side("a", 0, nil, nil), side("b", 0, nil, nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("an interruption gave %v", err)
	}
}
