package audit

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Rate is the rate of a token bucket.
type Rate struct {
	Burst     int
	PerMinute float64
}

// defaultRefusals records the occasional refusals of an agent, and keeps an agent with many of them from filling the disk: the row of a
// refusal and its events take at most some 60 KiB.
var defaultRefusals = Rate{Burst: 60, PerMinute: 10}

const (
	countPeriod  = time.Minute     // between two rows that count refusals
	countTimeout = 2 * time.Second // of writing such a row
)

// refusals limits the rows of refused requests for each token, and counts the others.
type refusals struct {
	rate Rate

	mu      sync.Mutex
	buckets map[string]*bucket
}

// bucket is the token bucket of an API token whose requests were refused lately.
type bucket struct {
	left float64 // rows that may be written now
	at   time.Time

	omitted     int64 // refusals without a row
	first, last time.Time
}

// take reports whether a refusal of the token may have a row.
func (l *refusals) take(token string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.bucket(token, now)
	r.left = min(float64(l.rate.Burst), r.left+now.Sub(r.at).Minutes()*l.rate.PerMinute)
	r.at = now
	if r.left < 1 {
		return false
	}
	r.left--
	return true
}

// bucket returns the token's bucket; a new one is full. It needs mu.
func (l *refusals) bucket(token string, now time.Time) *bucket {
	b := l.buckets[token]
	if b == nil {
		b = &bucket{left: float64(l.rate.Burst), at: now}
		l.buckets[token] = b
	}
	return b
}

// omit counts refusals without a row.
func (l *refusals) omit(token string, n int64, first, last time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.bucket(token, last)
	if r.omitted == 0 || first.Before(r.first) {
		r.first = first
	}
	if last.After(r.last) {
		r.last = last
	}
	r.omitted += n
}

// counts returns and resets the counts, and drops buckets that are full again.
func (l *refusals) counts(now time.Time) map[string]bucket {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[string]bucket{}
	for token, r := range l.buckets {
		switch {
		case r.omitted > 0:
			counts[token] = *r
			r.omitted, r.first, r.last = 0, time.Time{}, time.Time{}
		case r.left+now.Sub(r.at).Minutes()*l.rate.PerMinute >= float64(l.rate.Burst):
			delete(l.buckets, token)
		}
	}
	return counts
}

// Refuse records a request that never started: r is final. recorded is false when it writes no row, because the token was refused too often
// lately or the disk has no room; Run writes a row with the count of such refusals within a minute. taken is as in Store.Open.
func (l *Log) Refuse(ctx context.Context, r Record) (taken *Record, recorded bool, err error) {
	now := l.cfg.Now()
	if l.room(l.cfg.FreeMinBytes) != nil || !l.refusals.take(r.RequestedBy, now) {
		l.refusals.omit(r.RequestedBy, 1, now, now)
		return nil, false, nil
	}
	taken, err = l.open(ctx, bounded(r, true))
	return taken, err == nil, err
}

// countRefusals writes a row for each token with refusals without rows. A count that cannot be written is kept.
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

func (l *Log) countOne(ctx context.Context, token string, n bucket, now time.Time) error {
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
		Detail: fmt.Sprintf("%d refused requests of this token from %s to %s have no rows: a token gets %d such rows at once, and %g a minute",
			n.omitted, n.first.UTC().Format(second), n.last.UTC().Format(second), l.refusals.rate.Burst, l.refusals.rate.PerMinute),
	})
	return err
}
