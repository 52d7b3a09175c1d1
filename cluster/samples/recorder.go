package samples

import (
	"context"
	"log/slog"
	"time"
)

// Recorder takes samples of a node and keeps them.
type Recorder struct {
	Store Store
	// Take returns the numbers now. It may wait for some seconds.
	Take   func(ctx context.Context) Sample
	Logger *slog.Logger

	dropped int // since the last sample that was kept
}

// Run records now and once a minute until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		r.Record(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Record takes a sample and keeps it, or drops it if the database does not take it.
func (r *Recorder) Record(ctx context.Context) { r.report(ctx, r.Store.Add(ctx, r.Take(ctx))) }

// report logs the first sample that is dropped, and how many were when one is kept again.
func (r *Recorder) report(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil:
		if r.dropped == 0 {
			r.Logger.Warn("a sample of this node's numbers is dropped; the charts of the console have a gap until one is kept", "error", err)
		}
		r.dropped++
	case r.dropped > 0:
		r.Logger.Info("samples of this node's numbers are kept again", "dropped", r.dropped)
		r.dropped = 0
	}
}
