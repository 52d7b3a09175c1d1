package runner

import (
	"context"
	"sync"
	"time"

	"secbox/audit"
	"secbox/fault"
)

// The interval at which the status of an exec is read while it waits, or while another node may run
// it. It doubles from pollFirst to pollLast.
const (
	pollFirst = 100 * time.Millisecond
	pollLast  = time.Second
)

// pollHere is the interval while the exec runs on this node, which notifies WaitEnd of the end.
// Only another node may have ended the row before, as lost.
const pollHere = 15 * time.Second

// WaitEnd waits until an exec has ended, and returns its record. When ctx ends first, it returns
// the record as it was a moment ago, and no error. It is notified of the ends on this node, and
// polls the status of other execs.
func (r *Runner) WaitEnd(ctx context.Context, record audit.Record) (audit.Record, error) {
	for poll := pollFirst; !record.Status.Final() && ctx.Err() == nil; poll = min(2*poll, pollLast) {
		told, release := r.ends.wait(record.ExecID)
		ended := r.commands.Ended(record.ExecID)
		now, err := r.cfg.Log.Newer(ctx, record) // after both: it may have ended before
		if err != nil {
			release()
			if ctx.Err() != nil {
				return record, nil
			}
			return record, err
		}
		if record = now; record.Status.Final() {
			release()
			break
		}
		pause := poll
		if ended != nil && record.Status == audit.Running {
			pause = pollHere
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-told:
		case <-ended:
		case <-timer.C:
		}
		timer.Stop()
		release()
	}
	return record, nil
}

// awaitEnd is WaitEnd for a client that needs the end.
func (r *Runner) awaitEnd(ctx context.Context, record audit.Record) (audit.Record, error) {
	record, err := r.WaitEnd(ctx, record)
	if err == nil && !record.Status.Final() {
		err = fault.Wrap(fault.Internal, ctx.Err(), "the client left while exec %s ran", record.ExecID)
	}
	return record, err
}

// ends notifies waiters of the ends of asynchronous execs, which may end before they have started.
// The zero value is ready.
type ends struct {
	mu      sync.Mutex
	waiting map[string]*end
}

type end struct {
	ended chan struct{}
	users int
}

// wait returns a channel that is closed when notify is called for the exec. The caller must call
// release.
func (e *ends) wait(execID string) (ended <-chan struct{}, release func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiting == nil {
		e.waiting = map[string]*end{}
	}
	w := e.waiting[execID]
	if w == nil {
		w = &end{ended: make(chan struct{})}
		e.waiting[execID] = w
	}
	w.users++
	return w.ended, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if w.users--; w.users == 0 && e.waiting[execID] == w {
			delete(e.waiting, execID)
		}
	}
}

func (e *ends) notify(execID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w := e.waiting[execID]; w != nil {
		close(w.ended)
		delete(e.waiting, execID)
	}
}
