package health

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errBad = errors.New("bad")

func newCached(ask func(context.Context) (int, error)) *cached[int] {
	return &cached[int]{name: "test", ask: ask, timeout: 2 * time.Second, now: time.Now, log: quiet()}
}

func TestCachedAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		l := newCached(func(context.Context) (int, error) { asked++; return asked, nil })
		for _, step := range []struct {
			wait, maxAge time.Duration
			want         int
		}{
			{0, 5 * time.Second, 1},
			{5 * time.Second, 5 * time.Second, 1},
			{time.Millisecond, 5 * time.Second, 2},
			{time.Millisecond, 0, 3}, // who wants it fresh asks
		} {
			time.Sleep(step.wait)
			if got, err := l.get(t.Context(), step.maxAge); got != step.want || err != nil {
				t.Errorf("after %v: %d %v, want %d", step.wait, got, err, step.want)
			}
		}
	})
}

// TestOldAnswer checks that a caller that takes an old answer does not wait for the new one, and
// that one check runs at once.
func TestOldAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		l := newCached(func(context.Context) (int, error) {
			asked++
			time.Sleep(time.Second)
			return asked, nil
		})
		for _, step := range []struct{ wait, took, want int }{{0, 1, 1}, {3, 0, 1}, {0, 0, 1}, {2, 0, 2}, {60, 1, 3}} {
			time.Sleep(time.Duration(step.wait) * time.Second)
			begin := time.Now()
			got, err := l.soon(t.Context(), time.Second, 15*time.Second)
			if took := time.Since(begin); got != step.want || err != nil || took != time.Duration(step.took)*time.Second {
				t.Errorf("after %d s: %d, %v, in %s", step.wait, got, err, took)
			}
		}
		synctest.Wait()
		time.Sleep(time.Second)
		if asked != 3 {
			t.Errorf("asked %d times", asked)
		}
	})
}

// TestNeverWait: a caller that never waits gets the last answer, however old, and the check runs
// for the next one; a check that hangs is a failure, not the last answer.
func TestNeverWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		var takes atomic.Int64
		l := newCached(func(context.Context) (int, error) {
			asked++
			n := asked
			time.Sleep(time.Duration(takes.Load()))
			return n, nil
		})
		for i, step := range []struct {
			wait, takes time.Duration
			want        int
			err         error
		}{
			{0, time.Second, 0, errNotYet},
			{500 * time.Millisecond, time.Second, 0, errNotYet},
			{time.Second, time.Second, 1, nil},
			{time.Hour, time.Second, 1, nil},
			{2 * time.Second, time.Minute, 2, nil},
			{time.Hour, time.Minute, 2, nil}, // its check takes long
			{time.Second, time.Minute, 2, nil},
			{2 * time.Second, time.Minute, 0, errTimeout},
			{time.Minute, time.Minute, 3, nil},
		} {
			time.Sleep(step.wait)
			takes.Store(int64(step.takes))
			begin := time.Now()
			if got, err := l.soon(t.Context(), 5*time.Second, neverWait); got != step.want || !errors.Is(err, step.err) || time.Since(begin) != 0 {
				t.Errorf("step %d: %d, %v, in %s", i, got, err, time.Since(begin))
			}
		}
	})
}

func TestFailureExpiresSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		err := errBad
		l := newCached(func(context.Context) (int, error) { return 7, err })
		if got, err := l.get(t.Context(), time.Minute); got != 7 || !errors.Is(err, errBad) {
			t.Errorf("%d %v: the value is lost beside the error", got, err)
		}
		err = nil
		if _, err := l.get(t.Context(), time.Minute); !errors.Is(err, errBad) {
			t.Error("a storm of callers is a storm of questions")
		}
		time.Sleep(failureAge + 1)
		if _, err := l.get(t.Context(), time.Minute); err != nil {
			t.Errorf("still %v", err)
		}
	})
}

func TestClockSetBack(t *testing.T) {
	t.Parallel()
	now, asked := time.Now(), 0
	l := newCached(func(context.Context) (int, error) { asked++; return asked, nil })
	l.now = func() time.Time { return now }
	_, _ = l.get(t.Context(), time.Hour)
	now = now.Add(-24 * time.Hour)
	if got, _ := l.get(t.Context(), time.Hour); got != 2 {
		t.Error("an answer from the future was believed")
	}
}

func TestConcurrentCallersShareACheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		release := make(chan struct{})
		l := newCached(func(context.Context) (int, error) { <-release; return int(asked.Add(1)), nil })
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if got, err := l.get(t.Context(), 0); got != 1 || err != nil {
					t.Errorf("%d %v", got, err)
				}
			})
		}
		synctest.Wait()
		close(release)
		all.Wait()
	})
}

func TestHangingCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		release := make(chan struct{})
		l := newCached(func(context.Context) (int, error) { asked++; <-release; return asked, nil })
		for range 3 {
			begun := time.Now()
			if _, err := l.get(t.Context(), time.Minute); !errors.Is(err, errTimeout) {
				t.Errorf("%v", err)
			}
			if waited := time.Since(begun); waited != l.timeout {
				t.Errorf("waited %v", waited)
			}
		}
		close(release)
		synctest.Wait()
		if got, err := l.get(t.Context(), time.Minute); got != 1 || err != nil {
			t.Errorf("%d %v: a second check may not start while one hangs", got, err)
		}
	})
}

func TestCanceledCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		l := newCached(func(ctx context.Context) (int, error) { <-release; return 1, ctx.Err() })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.get(ctx, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		close(release)
		synctest.Wait()
		if got, err := l.get(t.Context(), time.Minute); got != 1 || err != nil {
			t.Errorf("%d %v", got, err)
		}
	})
}
