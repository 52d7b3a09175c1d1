package inflight

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestOneCheckServesAll: many answers of one session cost one look-up in each interval, which also
// outlives the answer that began it.
func TestOneCheckServesAll(t *testing.T) {
	t.Parallel()
	c := NewChecks()
	now, ended := time.Unix(1000, 0), errors.New("ended")
	var looks atomic.Int32
	held := make(chan struct{})
	verify := func(ctx context.Context) error {
		looks.Add(1)
		<-held
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return ended
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := c.Do(gone, "session", now, time.Second, verify); !errors.Is(err, context.Canceled) {
		t.Errorf("an answer whose client left: %v", err)
	}
	var all sync.WaitGroup
	for range 240 {
		all.Go(func() {
			if err := c.Do(t.Context(), "session", now, time.Second, verify); !errors.Is(err, ended) {
				t.Error(err)
			}
		})
	}
	close(held)
	all.Wait()
	if n := looks.Load(); n != 1 {
		t.Errorf("240 answers cost %d look-ups", n)
	}
	_ = c.Do(t.Context(), "other", now, time.Second, verify)
	_ = c.Do(t.Context(), "session", now.Add(time.Second), time.Second, verify)
	if n := looks.Load(); n != 3 {
		t.Errorf("another session and the next interval: %d look-ups in all", n)
	}
}
