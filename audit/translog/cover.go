package translog

import (
	"context"
	"errors"
	"time"
)

const (
	coverPoll  = 100 * time.Millisecond // between two looks at the log
	coverBatch = 256                    // events of one look
)

// Cover is a checkpoint and the log's size in it. An empty log has no checkpoint.
type Cover struct {
	Checkpoint string
	Size       int64
	NoState    bool // the database has lost its checkpoint, and nothing is covered
}

// Cover waits until the log has every event of an exec that is visible now, but no longer than
// patience, and returns the newest checkpoint. Before it returns, it calls lacking with the ids of
// execs that have such events which the checkpoint may not cover; an id may come more than once.
func (l Log) Cover(ctx context.Context, patience time.Duration, lacking func(execIDs []string) error) (Cover, error) {
	newest, err := l.Store.NewestEvent(ctx)
	if err != nil {
		return Cover{}, err
	}
	state, err := l.Store.State(ctx)
	if errors.Is(err, ErrNoState) {
		return Cover{NoState: true}, nil
	}
	if err != nil {
		return Cover{}, err
	}
	floor := state.Floors[Execs]
	var events []Event
	for until := time.Now().Add(patience); ; {
		if events, err = l.Store.Lacking(ctx, floor, newest, coverBatch); err != nil {
			return Cover{}, err
		}
		if len(events) == 0 || time.Now().After(until) {
			break
		}
		select {
		case <-ctx.Done():
			return Cover{}, ctx.Err()
		case <-time.After(coverPoll):
		}
	}
	for len(events) > 0 {
		var ids []string
		for _, e := range events {
			if len(ids) == 0 || ids[len(ids)-1] != e.ExecID {
				ids = append(ids, e.ExecID)
			}
		}
		if err := lacking(ids); err != nil {
			return Cover{}, err
		}
		if events, err = l.Store.Lacking(ctx, events[len(events)-1].Seq, newest, coverBatch); err != nil {
			return Cover{}, err
		}
	}
	// After the events, so that it covers the events that were not lacking.
	state, err = l.Store.State(ctx)
	return Cover{Checkpoint: state.Checkpoint, Size: state.Size}, err
}
