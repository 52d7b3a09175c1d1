package bench

import (
	"context"
	"errors"
)

var errTimeLimit = errors.New("the time limit of the section is over (--time-limit)")

// alternate runs both sides n times in turns, the first of a pair being now one, now the other, and returns what complete pairs gave.
// It ends early, without an error, when the section's time limit is over and at least `least` pairs are complete.
func alternate[A, B any](ctx context.Context, n, least int, a func(context.Context) (A, error), b func(context.Context) (B, error)) ([]A, []B, error) {
	var as []A
	var bs []B
	for i := range n {
		var ra A
		var rb B
		var err error
		if i%2 == 0 {
			if ra, err = a(ctx); err == nil {
				rb, err = b(ctx)
			}
		} else {
			if rb, err = b(ctx); err == nil {
				ra, err = a(ctx)
			}
		}
		if ctx.Err() != nil { // whatever the error says
			err = context.Cause(ctx)
		}
		switch {
		case errors.Is(err, errTimeLimit) && i >= least:
			return as, bs, nil
		case err != nil:
			return nil, nil, err
		}
		as, bs = append(as, ra), append(bs, rb)
	}
	return as, bs, nil
}
