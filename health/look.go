package health

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// errSilent says that whoever was asked had not answered when the patience was over.
var errSilent = errors.New("no answer in time")

// failureAge is how long a bad answer is believed at most: what was repaired is to be seen soon, and a storm of callers is still one
// question.
const failureAge = time.Second

// look is one question that is asked at most once at a time and whose last answer is remembered. What it asks may hang for ever (a dead
// network disk does): then callers get errSilent, and nobody asks again until it has returned.
type look[T any] struct {
	name     string
	ask      func(ctx context.Context) (T, error)
	patience time.Duration
	now      func() time.Time
	log      *slog.Logger

	mu      sync.Mutex
	answer  T // beside an error: what is known in spite of it
	err     error
	at      time.Time     // when the last answer came; zero: never
	asking  chan struct{} // closed when the question under way is answered; nil: none is
	trouble bool          // the last thing that was logged about it was bad
}

// get returns an answer that is at most maxAge old, or asks. It returns within the patience, whatever happens.
func (l *look[T]) get(ctx context.Context, maxAge time.Duration) (T, error) {
	l.mu.Lock()
	if l.fresh(maxAge) {
		defer l.mu.Unlock()
		return l.answer, l.err
	}
	answered := l.asking
	if answered == nil {
		answered = make(chan struct{})
		l.asking = answered
		go l.question(answered)
	}
	l.mu.Unlock()

	late := time.NewTimer(l.patience)
	defer late.Stop()
	var none T
	select {
	case <-answered:
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.answer, l.err
	case <-late.C:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.note(errSilent)
		return none, errSilent
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// fresh is called with mu held. A clock that was set back makes every answer old.
func (l *look[T]) fresh(maxAge time.Duration) bool {
	if l.err != nil {
		maxAge = min(maxAge, failureAge)
	}
	age := l.now().Sub(l.at)
	return !l.at.IsZero() && age >= 0 && age <= maxAge
}

// question is not bound to the caller who happened to be first: others wait for the same answer.
func (l *look[T]) question(answered chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), l.patience)
	defer cancel()
	answer, err := l.ask(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answer, l.err, l.at, l.asking = answer, err, l.now(), nil
	l.note(err)
	close(answered)
}

// note logs changes only: a load balancer asks every second. It is called with mu held.
func (l *look[T]) note(err error) {
	if bad := err != nil; bad != l.trouble {
		l.trouble = bad
		if bad {
			l.log.Warn("a health check fails", "check", l.name, "error", err)
		} else {
			l.log.Info("a health check is good again", "check", l.name)
		}
	}
}
