package audit

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Rate is how often something may happen: Burst times at once, and then PerMinute.
type Rate struct {
	Burst     int
	PerMinute float64
}

// defaultRefusals lets an agent that tries what it may not do leave its traces, and keeps one that does nothing else from filling
// the disk: a row of a refusal and its events take at most some 60 KiB.
var defaultRefusals = Rate{Burst: 60, PerMinute: 10}

const (
	countPause   = time.Minute     // between two rows that count refusals
	countTimeout = 2 * time.Second // of writing one, when the log ends
)

// refusals limits, for each token, how many refused requests are on record one by one, and counts the others.
type refusals struct {
	rate Rate

	mu sync.Mutex
	of map[string]*refuser
}

// refuser is a token whose requests were refused lately.
type refuser struct {
	left float64 // refusals that may be put on record now
	at   time.Time

	omitted     int64 // refusals that no row speaks of
	first, last time.Time
}

// take reports whether a refusal of the token may be put on record.
func (l *refusals) take(token string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.of[token]
	if r == nil {
		r = &refuser{left: float64(l.rate.Burst), at: now}
		l.of[token] = r
	}
	r.left = min(float64(l.rate.Burst), r.left+now.Sub(r.at).Minutes()*l.rate.PerMinute)
	r.at = now
	if r.left < 1 {
		return false
	}
	r.left--
	return true
}

// omit counts refusals that are not on record.
func (l *refusals) omit(token string, n int64, first, last time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.of[token]
	if r == nil {
		r = &refuser{left: float64(l.rate.Burst), at: last}
		l.of[token] = r
	}
	if r.omitted == 0 || first.Before(r.first) {
		r.first = first
	}
	if last.After(r.last) {
		r.last = last
	}
	r.omitted += n
}

// counts takes the counts out, and forgets tokens that have had none of late.
func (l *refusals) counts(now time.Time) map[string]refuser {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[string]refuser{}
	for token, r := range l.of {
		switch {
		case r.omitted > 0:
			counts[token] = *r
			r.omitted, r.first, r.last = 0, time.Time{}, time.Time{}
		case r.left+now.Sub(r.at).Minutes()*l.rate.PerMinute >= float64(l.rate.Burst):
			delete(l.of, token)
		}
	}
	return counts
}

// Refuse puts a request that never started on record: r is final. recorded is false when there is no row, because the token has been
// refused too often of late or the disk has no room; such refusals are counted, and Run puts the count on record within a minute. taken
// is as in Store.Open.
func (l *Log) Refuse(ctx context.Context, r Record) (taken *Record, recorded bool, err error) {
	now := l.cfg.Now()
	if l.room(l.cfg.FreeMinBytes) != nil || !l.refusals.take(r.RequestedBy, now) {
		l.refusals.omit(r.RequestedBy, 1, now, now)
		return nil, false, nil
	}
	taken, err = l.open(ctx, bounded(r, true))
	return taken, err == nil, err
}

// countRefusals writes a row for each token whose refusals were not put on record one by one. What cannot be written now is counted on.
func (l *Log) countRefusals(ctx context.Context) {
	if l.room(l.cfg.FreeMinBytes) != nil {
		return
	}
	now := l.cfg.Now()
	for token, n := range l.refusals.counts(now) {
		if err := l.countOne(ctx, token, n, now); err != nil {
			l.refusals.omit(token, n.omitted, n.first, n.last)
		}
	}
}

func (l *Log) countOne(ctx context.Context, token string, n refuser, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	now = now.UTC().Truncate(time.Microsecond)
	const second = "2006-01-02T15:04:05Z"
	_, err = l.store.Open(ctx, Record{
		ExecID: id.String(), Status: Rejected, ErrorReason: RefusalsOmitted, CreatedAt: now, EndedAt: now, NodeID: l.cfg.Node.NodeID, RequestedBy: token,
		Detail: fmt.Sprintf("%d refused requests of this token from %s to %s are not on record one by one: a token has %d such rows at once, and %g a minute",
			n.omitted, n.first.UTC().Format(second), n.last.UTC().Format(second), l.refusals.rate.Burst, l.refusals.rate.PerMinute),
	})
	return err
}
