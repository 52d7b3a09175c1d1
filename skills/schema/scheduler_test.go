package schema

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"secbox/fault"
)

// slow returns a schema and a value whose validation takes that many slices. A match of fewer than
// 40 is not long.
func slow(t *testing.T, scheduler *scheduler, slices int) (*Schema, string) {
	t.Helper()
	s := mustCompile(t, `{"type":"object","properties":{"s":{"pattern":"^(?:.{0,50})*$"}}}`)
	s.scheduler = scheduler
	text := strings.Repeat("a", slices*s.compiled().sliceBytes())
	return s, `{"s":"` + text + `"}`
}

// sliceBytes returns the bytes of a text that the only pattern matches in one slice.
func (c *compiled) sliceBytes() int {
	for _, size := range c.programs {
		return matchEvery/size + 1
	}
	return 0
}

// TestLongValidationsTakeTurns checks that long validations queue, end with their contexts and are
// limited in number, and that short ones do not queue.
func TestLongValidationsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		scheduler := newScheduler(2, 1)
		scheduler.running <- struct{}{} // as if another one worked
		s, value := slow(t, scheduler, 40)
		ctx, cancel := context.WithCancelCause(t.Context())
		canceled, timedOut := make(chan error, 1), make(chan []string, 1)
		go func() {
			_, err := explain(ctx, s, value)
			canceled <- err
		}()
		go func() {
			found, _ := explain(t.Context(), s, value)
			timedOut <- found
		}()
		synctest.Wait()
		if len(scheduler.admitted) != 2 {
			t.Fatalf("%d take long", len(scheduler.admitted))
		}

		wantFindings(t, s, `{"s":"short"}`)
		if _, err := explain(t.Context(), s, value); !fault.Is(err, fault.ServerBusy) || fault.From(err).RetryAfter <= 0 {
			t.Errorf("one too many: %v", err)
		}
		why := errors.New("why")
		cancel(why)
		if err := <-canceled; !errors.Is(err, why) {
			t.Errorf("one that was canceled: %v", err)
		}
		wantSentences(t, <-timedOut, tooMuchWork) // the time of a bubble goes on when all wait

		<-scheduler.running
		wantFindings(t, s, value)
		if len(scheduler.admitted)+len(scheduler.running) > 0 {
			t.Errorf("%d and %d stay taken", len(scheduler.admitted), len(scheduler.running))
		}
	})
}

// TestLongValidationDoesNotBlockOthers checks that the shorter of two validations ends first
// although it began second.
func TestLongValidationDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		scheduler := newScheduler(2, 1)
		scheduler.running <- struct{}{}
		ended := make(chan string, 2)
		for _, one := range []struct {
			name   string
			slices int
		}{{"long", 80}, {"short", 40}} {
			s, value := slow(t, scheduler, one.slices)
			go func() {
				wantFindings(t, s, value)
				ended <- one.name
			}()
			synctest.Wait()
		}
		<-scheduler.running
		if order := []string{<-ended, <-ended}; !slices.Equal(order, []string{"short", "long"}) {
			t.Errorf("%q", order)
		}
	})
}
