// Package quota limits how many rows a client may write in the database, and counts what gets no
// row, so that a client with many requests cannot fill the disk and its requests still leave a
// trace.
package quota

import (
	"sync"
	"time"
)

// Rate is the rate of a token bucket.
type Rate struct {
	Burst     int
	PerMinute float64
}

// Default records the occasional requests of a client, and keeps a client with many requests from
// filling the disk. The largest row, a refusal's, takes some 60 KiB with its events.
var Default = Rate{Burst: 60, PerMinute: 10}

// Period is the time between two rows that count what had no row.
const Period = time.Minute

// Limiter is a token bucket for each client. It is safe for concurrent use.
type Limiter struct {
	Rate Rate

	mu      sync.Mutex
	buckets map[string]*bucket
}

// New returns a Limiter with this rate; zero: Default.
func New(rate Rate) *Limiter {
	if rate == (Rate{}) {
		rate = Default
	}
	return &Limiter{Rate: rate, buckets: map[string]*bucket{}}
}

// bucket is the token bucket of a client that came lately.
type bucket struct {
	left float64 // rows that may be written now
	at   time.Time
	Count
}

// Count is how often a client got no row.
type Count struct {
	Omitted     int64
	First, Last time.Time
}

// Take reports whether the client may have a row.
func (l *Limiter) Take(client string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.bucket(client, now)
	b.left = min(float64(l.Rate.Burst), b.left+now.Sub(b.at).Minutes()*l.Rate.PerMinute)
	b.at = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

// Return gives back a row that Take allowed and that was not written.
func (l *Limiter) Return(client string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.buckets[client]; b != nil {
		b.left++ // Take and Counts bound it
	}
}

// bucket returns the client's bucket; a new one is full. It needs mu.
func (l *Limiter) bucket(client string, now time.Time) *bucket {
	b := l.buckets[client]
	if b == nil {
		b = &bucket{left: float64(l.Rate.Burst), at: now}
		l.buckets[client] = b
	}
	return b
}

// Omit adds to the client's count.
func (l *Limiter) Omit(client string, n Count) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.bucket(client, n.Last)
	if b.Omitted == 0 || n.First.Before(b.First) {
		b.First = n.First
	}
	if n.Last.After(b.Last) {
		b.Last = n.Last
	}
	b.Omitted += n.Omitted
}

// Once is the count of one request.
func Once(now time.Time) Count { return Count{Omitted: 1, First: now, Last: now} }

// Counts returns and resets the counts, and drops buckets that are full again.
func (l *Limiter) Counts(now time.Time) map[string]Count {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[string]Count{}
	for client, b := range l.buckets {
		switch {
		case b.Omitted > 0:
			counts[client] = b.Count
			b.Count = Count{}
		case b.left+now.Sub(b.at).Minutes()*l.Rate.PerMinute >= float64(l.Rate.Burst):
			delete(l.buckets, client)
		}
	}
	return counts
}
