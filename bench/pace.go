package bench

import (
	"context"
	"time"
)

// pacer starts turns at an even pace. A turn that takes longer than that makes the next one late, and the pace goes on from there: nothing is
// made up for, since two turns in a row would disturb each other.
type pacer struct {
	every       time.Duration
	next        time.Time
	turns, late int
}

// wait returns when the next turn is to start.
func (p *pacer) wait(ctx context.Context) error {
	start := time.Now()
	p.turns++
	if p.turns > 1 {
		if start.After(p.next) {
			p.late++
		} else {
			start = p.next
			if err := sleepUntil(ctx, start); err != nil {
				return err
			}
		}
	}
	p.next = start.Add(p.every)
	return nil
}

// paced is a side whose turns wait for the pace.
func paced[R any](p *pacer, side func(context.Context) (R, error)) func(context.Context) (R, error) {
	return func(ctx context.Context) (r R, err error) {
		if err := p.wait(ctx); err != nil {
			return r, err
		}
		return side(ctx)
	}
}

func sleepUntil(ctx context.Context, then time.Time) error {
	timer := time.NewTimer(time.Until(then))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
