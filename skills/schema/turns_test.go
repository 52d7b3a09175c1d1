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

// slow is a schema and a value whose validation takes so many slices: 40 or more, as a shorter match takes no turns.
func slow(t *testing.T, turns *turns, slices int) (*Schema, string) {
	t.Helper()
	s := mustCompile(t, `{"type":"object","properties":{"s":{"pattern":"^(?:.{0,50})*$"}}}`)
	s.turns = turns
	text := strings.Repeat("a", slices*s.compiled().sliceBytes())
	return s, `{"s":"` + text + `"}`
}

// sliceBytes is how much of a text its only pattern matches in a slice.
func (c *compiled) sliceBytes() int {
	for _, size := range c.programs {
		return matchEvery/size + 1
	}
	return 0
}

// TestLongValidationsTakeTurns: those that take long wait, end with their contexts, and are no more than there may be; others do not wait.
func TestLongValidationsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(2, 1)
		turns.now <- struct{}{} // as if another one worked
		s, value := slow(t, turns, 40)
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
		if len(turns.long) != 2 {
			t.Fatalf("%d take long", len(turns.long))
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

		<-turns.now
		wantFindings(t, s, value)
		if len(turns.long)+len(turns.now) > 0 {
			t.Errorf("%d and %d stay taken", len(turns.long), len(turns.now))
		}
	})
}

// TestALongerValidationLetsOthersPass: the shorter one of two ends first, although it came second.
func TestALongerValidationLetsOthersPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(2, 1)
		turns.now <- struct{}{}
		ended := make(chan string, 2)
		for _, one := range []struct {
			name   string
			slices int
		}{{"long", 80}, {"short", 40}} {
			s, value := slow(t, turns, one.slices)
			go func() {
				wantFindings(t, s, value)
				ended <- one.name
			}()
			synctest.Wait()
		}
		<-turns.now
		if order := []string{<-ended, <-ended}; !slices.Equal(order, []string{"short", "long"}) {
			t.Errorf("%q", order)
		}
	})
}
