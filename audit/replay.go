package audit

import (
	"context"
	"maps"
	"slices"
	"time"

	"secbox/fault"
	"secbox/internal/quota"
)

// Recover updates the database after this node's last end: it replays the spool and then ends the
// node's open rows as lost, except the rows whose results it could not write yet, and the rows of
// damaged files. It returns the lost ids. Call it before anything runs, and after the node's
// containers are gone. After fault.DatabaseUnavailable, when no row was ended, call it again.
func (l *Log) Recover(ctx context.Context) (lost []string, err error) {
	l.tryNow()
	l.report(ctx, l.replay(ctx)) // results that the database does not take wait on
	return l.store.LoseOpen(ctx, l.cfg.NodeID, l.SpooledIDs())
}

// Run writes waiting results as soon as the database accepts them, and writes the counts of
// refusals. It returns when ctx ends; results that still wait are in the spool for the next start.
func (l *Log) Run(ctx context.Context) {
	retry := time.NewTicker(l.cfg.Retry)
	defer retry.Stop()
	count := time.NewTicker(quota.Period)
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

// report logs when the database stops taking results and when it takes them again, not every
// attempt.
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
		l.cfg.Logger.Error("the database takes no results of execs; they wait in the state dir until it does", "waiting", waiting, "err",
			err)
	case err == nil && before:
		l.cfg.Logger.Info("the database takes the results of execs again", "waiting", waiting)
	}
}

func (l *Log) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) == 0 && len(l.uncertain) == 0
}

// replay writes the waiting results whose time has come, oldest first. A result that the database
// does not take waits longer each time: the cause may go away, such as a trigger, a missing right
// or a locked row. When the database seems not to answer, a second result is tried and then the
// others wait: the next round begins with them, so that no result keeps the others from being
// written.
func (l *Log) replay(ctx context.Context) error {
	l.replaying.Lock()
	defer l.replaying.Unlock()

	l.keepHeld()
	var failed error
	for _, r := range l.due() {
		_, err := closeFinally(ctx, l.store, r)
		switch {
		case err == nil:
			l.settle(r.ExecID)
		case ctx.Err() != nil:
			return err
		case outcomeUnknown(err) && failed != nil:
			l.refused(r.ExecID, err)
			return err
		case outcomeUnknown(err):
			failed = err
			fallthrough
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

// closeFinally is Store.Close for a result that is given up afterwards: the row must have ended.
func closeFinally(ctx context.Context, s Store, r Record) (Status, error) {
	status, err := s.Close(ctx, r)
	if err == nil && !status.Final() {
		err = fault.New(fault.Internal, "the record of exec %s is %s and of another node than %s", r.ExecID, status, r.NodeID)
	}
	return status, err
}

// uncertainTime is how long a row may still appear after the timeout of its opening, since the
// database may be about to commit it. It is longer than the timeouts of statements.
const uncertainTime = 30 * time.Second

// endUncertain ends the row of an opening without an answer, if it exists. It does nothing for
// other execs.
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
