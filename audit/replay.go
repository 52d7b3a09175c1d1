package audit

import (
	"context"
	"maps"
	"slices"
	"time"

	"secbox/fault"
	"secbox/tally"
)

// Recover updates the database after this node's last end: it replays the spool and then ends the node's open rows as lost, except those
// whose results it could not write yet, and those of damaged files. It returns the lost ids. Call it before anything runs, and after the node's containers are gone.
// After fault.DatabaseUnavailable, when no row was ended, call it again.
func (l *Log) Recover(ctx context.Context) (lost []string, err error) {
	if err := l.replay(ctx); err != nil {
		return nil, err
	}
	return l.store.LoseOpen(ctx, l.cfg.NodeID, l.SpooledIDs())
}

// Run writes waiting results as soon as the database accepts them, and writes the counts of refusals. It returns when ctx
// ends; results that still wait are in the spool for the next start.
func (l *Log) Run(ctx context.Context) {
	retry := time.NewTicker(l.cfg.Retry)
	defer retry.Stop()
	count := time.NewTicker(tally.Period)
	defer count.Stop()
	defer l.countRefusals(context.WithoutCancel(ctx))
	for {
		select {
		case <-ctx.Done():
			return
		case <-count.C:
			l.countRefusals(ctx)
			l.lookAgain()
			continue
		case <-retry.C:
		case <-l.kick:
		}
		if l.idle() {
			continue
		}
		l.report(ctx, l.replay(ctx))
	}
}

// report logs when the database stops taking results and when it takes them again, not every attempt.
func (l *Log) report(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	before := l.down
	l.down = err != nil
	waiting := len(l.waiting)
	l.mu.Unlock()
	switch {
	case err != nil && !before:
		l.cfg.Logger.Error("the database takes no results of execs; they wait in the state dir until it does", "waiting", waiting, "err", err)
	case err == nil && before:
		l.cfg.Logger.Info("the database takes the results of execs again", "waiting", waiting)
	}
}

func (l *Log) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) == 0 && len(l.uncertain) == 0
}

// replay writes the waiting results whose time has come, oldest first, and stops when the database does not answer twice: once may be a row
// that another transaction has locked. A result that the database refuses waits longer each time: the cause may go away, such as a trigger,
// a missing right or a renamed column.
func (l *Log) replay(ctx context.Context) error {
	l.replaying.Lock()
	defer l.replaying.Unlock()

	l.keepHeld()
	var failed error
	for _, r := range l.due() {
		_, err := l.store.Close(ctx, r)
		switch {
		case err == nil:
			l.settle(r.ExecID)
		case outcomeUnknown(err) && failed != nil:
			return err
		case outcomeUnknown(err):
			failed = err
		default:
			l.refused(r.ExecID, err)
		}
	}
	l.mu.Lock()
	uncertain := slices.Collect(maps.Keys(l.uncertain))
	l.mu.Unlock()
	for _, id := range uncertain {
		if err := l.endUncertain(ctx, id); err != nil && failed != nil {
			return err
		} else if err != nil {
			failed = err
		}
	}
	return failed
}

// uncertainTime is how long a row may still appear after the timeout of its opening, since the database may be about to commit it. It is
// longer than the timeouts of statements.
const uncertainTime = 30 * time.Second

// endUncertain ends the row of an opening without an answer, if it exists. It does nothing for other execs.
func (l *Log) endUncertain(ctx context.Context, execID string) error {
	l.mu.Lock()
	since, ok := l.uncertain[execID]
	l.mu.Unlock()
	if !ok {
		return nil
	}
	stored, err := l.store.Get(ctx, execID)
	switch {
	case fault.Is(err, fault.UnknownExec) && time.Since(since) < uncertainTime:
		return nil // try again later
	case fault.Is(err, fault.UnknownExec):
	case err != nil:
		return err
	case stored.Async && stored.Status == Running: // a node has taken it
	case !stored.Status.Final():
		stored.Status, stored.ErrorReason = Errored, StartFailed
		stored.IdempotencyKey = "" // the same request may be tried again
		stored.Detail = "nothing ran: the database did not confirm the opening of this record in time; post the exec again"
		stored.EndedAt = stored.CreatedAt
		if stored.StartedAt.After(stored.EndedAt) {
			stored.EndedAt = stored.StartedAt
		}
		if _, err := l.store.Close(ctx, stored); err != nil {
			return err
		}
	}
	l.mu.Lock()
	delete(l.uncertain, execID)
	l.mu.Unlock()
	return nil
}
