package health

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// errTimeout reports that a check did not answer in time, and errNotYet that it has not answered
// yet.
var (
	errTimeout = errors.New("no answer in time")
	errNotYet  = errors.New("no answer yet")
)

// failureAge is how long a failure is cached at most: a repair is seen soon, and many callers still
// cause one check.
const failureAge = time.Second

// cached is a check that runs at most once at a time and whose last result is cached. The check may
// hang (on a dead network disk): then callers get errTimeout, and it does not run again until it
// has returned.
type cached[T any] struct {
	name    string
	ask     func(ctx context.Context) (T, error)
	timeout time.Duration
	now     func() time.Time
	log     *slog.Logger

	mu      sync.Mutex
	answer  T // beside an error: the part that is known
	err     error
	at      time.Time     // of the last answer; zero: none yet
	asking  chan struct{} // closed when the running check ends; nil: none runs
	askedAt time.Time     // when it began
	failing bool          // the last log line reported a failure
}

// get returns an answer that is at most maxAge old, or runs the check. It always returns within the
// timeout.
func (l *cached[T]) get(ctx context.Context, maxAge time.Duration) (T, error) {
	return l.soon(ctx, maxAge, 0)
}

// neverWait is a staleAge.
const neverWait time.Duration = -1

// soon is get, except that it does not wait for the check while there is an answer that is too old
// by at most staleAge. With neverWait, it does not wait at all: see known.
func (l *cached[T]) soon(ctx context.Context, maxAge, staleAge time.Duration) (T, error) {
	l.mu.Lock()
	if l.fresh(maxAge) {
		defer l.mu.Unlock()
		return l.answer, l.err
	}
	answered := l.asking
	if answered == nil {
		answered = make(chan struct{})
		l.asking, l.askedAt = answered, l.now()
		go l.refresh(answered)
	}
	if staleAge == neverWait {
		defer l.mu.Unlock()
		return l.known()
	}
	if age := l.now().Sub(l.at); staleAge > 0 && !l.at.IsZero() && age >= 0 && age <= maxAge+staleAge {
		defer l.mu.Unlock()
		return l.answer, l.err
	}
	l.mu.Unlock()

	var none T
	select {
	case <-answered:
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.answer, l.err
	case <-time.After(l.timeout):
		l.mu.Lock()
		defer l.mu.Unlock()
		l.note(errTimeout)
		return none, errTimeout
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// known returns the last answer, however old; errTimeout while a check takes too long, and
// errNotYet before the first answer. It needs mu.
func (l *cached[T]) known() (answer T, err error) {
	switch {
	case l.asking != nil && l.now().Sub(l.askedAt) > l.timeout:
		l.note(errTimeout)
		return answer, errTimeout
	case l.at.IsZero():
		return answer, errNotYet
	}
	return l.answer, l.err
}

// fresh needs mu. A clock that was set back makes every answer old.
func (l *cached[T]) fresh(maxAge time.Duration) bool {
	if l.err != nil {
		maxAge = min(maxAge, failureAge)
	}
	age := l.now().Sub(l.at)
	return !l.at.IsZero() && age >= 0 && age <= maxAge
}

// refresh runs the check without a caller's context, since others wait for the same answer.
func (l *cached[T]) refresh(answered chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
	defer cancel()
	answer, err := l.ask(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answer, l.err, l.at, l.asking = answer, err, l.now(), nil
	l.note(err)
	close(answered)
}

// note logs changes only, since load balancers ask every second. It needs mu.
func (l *cached[T]) note(err error) {
	if bad := err != nil; bad != l.failing {
		l.failing = bad
		if bad {
			l.log.Warn("a health check fails", "check", l.name, "error", err)
		} else {
			l.log.Info("a health check is good again", "check", l.name)
		}
	}
}
