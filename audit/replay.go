package audit

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"secbox/fault"
	"secbox/tally"
)

// Recover updates the database after this node's last end: it replays the spool and then ends the node's open rows as lost, except those
// whose results it could not write yet. It returns the lost ids. Call it before anything runs, and after the node's containers are gone.
// After fault.DatabaseUnavailable, when no row was ended, call it again.
func (l *Log) Recover(ctx context.Context) (lost []string, err error) {
	if err := l.replay(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	except := slices.Collect(maps.Keys(l.waiting))
	l.mu.Unlock()
	return l.store.LoseOpen(ctx, l.cfg.NodeID, except)
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

// replay writes the waiting results, oldest first, and stops when the database does not answer. It sets a record aside that the database
// refuses, since it would be refused again.
func (l *Log) replay(ctx context.Context) error {
	l.replaying.Lock()
	defer l.replaying.Unlock()

	l.keepHeld()
	for _, r := range l.oldestFirst() {
		_, err := l.store.Close(ctx, r)
		if err != nil && outcomeUnknown(err) {
			return err
		}
		l.settle(r.ExecID, err)
	}
	l.mu.Lock()
	uncertain := slices.Collect(maps.Keys(l.uncertain))
	l.mu.Unlock()
	for _, id := range uncertain {
		if err := l.endUncertain(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// oldestFirst returns the waiting results in the order of their ends.
func (l *Log) oldestFirst() []Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Collect(maps.Values(l.waiting))
	slices.SortFunc(all, func(a, b Record) int {
		return cmp.Or(a.EndedAt.Compare(b.EndedAt), cmp.Compare(a.ExecID, b.ExecID))
	})
	return all
}

// settle removes a result that the store has, or sets one aside that the store refuses.
func (l *Log) settle(execID string, refused error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if refused != nil {
		if l.held[execID] { // there is no file to set aside, only this log line
			l.cfg.Logger.Error("the database refuses the end of an exec, and it is in no file", "record", l.waiting[execID], "err", refused)
		} else {
			l.setAside(spoolFile(execID), refused)
		}
	} else if !l.held[execID] {
		if err := l.spool.remove(execID); err != nil {
			// The next start writes it again, which changes nothing.
			l.cfg.Logger.Warn("cannot remove a file of the audit spool that is no longer needed", "exec_id", execID, "err", err)
		}
	}
	delete(l.waiting, execID)
	delete(l.held, execID)
}

// keepHeld tries to write the results in memory to the spool.
func (l *Log) keepHeld() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.held {
		if l.spool.write(l.waiting[id]) == nil {
			delete(l.held, id)
		}
	}
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
