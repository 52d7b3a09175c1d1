package audit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"secbox/audit"
	"secbox/fault"
)

// hourStore has one exec in each hour, and records what was asked: the hours of each query, 0 for
// one of the slowest.
type hourStore struct {
	audit.Store
	takes time.Duration // of a query

	mu      sync.Mutex
	asked   []int
	tokens  []string
	err     error
	at, max int // queries at once
}

func (s *hourStore) ask(ctx context.Context, hours int, token string) error {
	s.mu.Lock()
	s.at++
	s.max = max(s.max, s.at)
	s.asked, s.tokens = append(s.asked, hours), append(s.tokens, token)
	err := s.err
	s.mu.Unlock()
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at--
	return err
}

// fails sets the error of queries, and forgets what was asked.
func (s *hourStore) fails(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.asked, s.tokens = err, nil, nil
}

func (s *hourStore) questions() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

func (s *hourStore) Hours(ctx context.Context, since, until time.Time, token string, each func(audit.HourCount)) error {
	err := s.ask(ctx, int(until.Sub(since)/time.Hour), token)
	for h := since; err == nil && h.Before(until); h = h.Add(time.Hour) {
		each(audit.HourCount{Hour: h, Status: audit.Succeeded, Execs: 1})
	}
	return err
}

func (s *hourStore) Slowest(ctx context.Context, _, _ time.Time, token string, _, _ int) ([]audit.SlowExec, error) {
	return []audit.SlowExec{{ExecID: token, DurationMS: 2}, {ExecID: "refused"}}, s.ask(ctx, 0, token)
}

// Get does not find the exec of t: it was deleted since.
func (s *hourStore) Get(_ context.Context, execID string) (audit.Record, error) {
	if execID == "t" {
		return audit.Record{}, fault.New(fault.UnknownExec, "there is none")
	}
	return audit.Record{ExecID: execID, Cmd: "echo", Args: []string{"a", strings.Repeat("b", 2000), "c"}}, nil
}

// activity runs an Activity over the store in a bubble of synctest, until the test ends.
func activity(t *testing.T, store *hourStore) *audit.Activity {
	t.Helper()
	a := audit.NewActivity(store, nil)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); a.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	time.Sleep(30 * time.Minute) // to half past an hour
	return a
}

// TestActivityAsksForNewestHours checks which hours are asked again, and in which order.
func TestActivityAsksForNewestHours(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &hourStore{}
		a := activity(t, store)
		for _, step := range []struct {
			name  string
			later time.Duration
			token string
			asked []int
		}{
			{"first", 0, "", []int{2, 0, 24, 24}},
			{"at once", 0, "", nil},
			{"later", 5 * time.Second, "", []int{2}},
			{"another token", 0, "t", []int{2, 0, 24, 24}},
			{"the slowest are old", 2 * time.Minute, "", []int{2, 0}},
			{"in the next hour, those of half a day are old", 29 * time.Minute, "", []int{2, 0, 11}},
			{"soon after, one more", 2 * time.Minute, "", []int{2, 0, 1}},
		} {
			time.Sleep(step.later)
			got, err := a.Recent(t.Context(), 50, step.token)
			if err != nil || len(got.Hours) != 50 || !got.Complete || got.Uncounted != 0 || len(got.Slowest) != 1 || got.Slowest[0].ExecID != step.token {
				t.Errorf("%s: %d hours, %v", step.name, len(got.Hours), err)
			}
			wantArgs := []string{"a", strings.Repeat("b", 1000-len("echoa"))}
			if slow := got.Slowest[0]; step.token == "" && (slow.Cmd != "echo" || !slices.Equal(slow.Args, wantArgs)) || step.token == "t" && slow.Cmd != "" {
				t.Errorf("%s: %+v", step.name, slow)
			}
			if now := time.Now().UTC(); !got.Hours[0].Hour.Equal(now.Truncate(time.Hour)) {
				t.Errorf("%s: the newest hour is %s", step.name, got.Hours[0].Hour)
			}
			synctest.Wait()
			if asked := store.questions(); !slices.Equal(asked, step.asked) {
				t.Errorf("%s: asked for %v hours, want %v", step.name, asked, step.asked)
			}
		}
	})
}

// TestActivityDoesNotWait checks that callers wait a moment for what is not known at all, and not
// for what is known; that queries run one after the other, however many callers there are; and that
// the queries of a new caller come before the older hours of another.
func TestActivityDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &hourStore{takes: time.Second}
		a := activity(t, store)
		look := func(token string) (audit.Recent, time.Duration) {
			begin := time.Now()
			got, err := a.Recent(t.Context(), 744, token)
			if err != nil {
				t.Error(err)
			}
			return got, time.Since(begin)
		}
		if got, took := look(""); got.Uncounted != 744 || got.Complete || took > 100*time.Millisecond {
			t.Errorf("first: %d hours are not counted, after %s", got.Uncounted, took)
		}
		time.Sleep(3 * time.Second)
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if got, took := look(""); got.Uncounted != 742-24 || len(got.Slowest) != 1 || took > 100*time.Millisecond {
					t.Errorf("after 3 s: %d hours are not counted, in %s", got.Uncounted, took)
				}
			})
		}
		all.Wait()
		store.fails(nil)
		look("t")
		time.Sleep(2 * time.Second)
		got, _ := look("t")
		store.mu.Lock()
		callers := slices.Clone(store.tokens)
		store.mu.Unlock()
		if got.Uncounted != 742 || callers[0] != "t" {
			t.Errorf("a new caller waits for the hours of another: %d, %q", got.Uncounted, callers)
		}
		time.Sleep(5 * time.Minute)
		if got, took := look(""); !got.Complete || took > 100*time.Millisecond {
			t.Errorf("at last %d hours are not counted", got.Uncounted)
		}
		time.Sleep(10 * time.Second)
		if got, took := look(""); !got.Complete || took != 0 {
			t.Errorf("a caller waited %s for hours that are known", took)
		}
		store.mu.Lock()
		most := store.max
		store.mu.Unlock()
		if most != 1 {
			t.Errorf("%d queries at once", most)
		}
		time.Sleep(time.Minute)
		store.fails(nil)
		time.Sleep(time.Hour)
		if asked := store.questions(); len(asked) != 0 {
			t.Errorf("asked %v without a caller", asked)
		}
	})
}

// TestActivityWithoutDatabase checks that the error of the database reaches callers, and that Run
// goes on when it is back.
func TestActivityWithoutDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		store := &hourStore{err: away}
		a := activity(t, store)
		for range 3 {
			if _, err := a.Recent(t.Context(), 24, ""); !errors.Is(err, away) {
				t.Errorf("without a database: %v", err)
			}
		}
		if asked := store.questions(); len(asked) != 3 {
			t.Errorf("three callers caused the queries %v", asked)
		}
		store.fails(nil)
		if got, err := a.Recent(t.Context(), 24, ""); err != nil || !got.Complete {
			t.Errorf("with a database: %v", err)
		}
		store.fails(away)
		time.Sleep(10 * time.Second)
		if got, err := a.Recent(t.Context(), 24, ""); err != nil || len(got.Hours) != 24 {
			t.Errorf("hours that are known: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := a.Recent(ctx, 48, ""); !errors.Is(err, context.Canceled) && !errors.Is(err, away) {
			t.Errorf("a caller that is gone: %v", err)
		}
	})
}

// TestActivityForgets checks that the hours of a bounded number of tokens are kept.
func TestActivityForgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &hourStore{}
		a := activity(t, store)
		for i := range 34 {
			if got, err := a.Recent(t.Context(), 1, string(rune('a'+i))); err != nil || !got.Complete {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		store.fails(nil)
		for _, token := range []string{string(rune('a' + 33)), "a"} {
			if _, err := a.Recent(t.Context(), 1, token); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if !slices.Equal(store.tokens, []string{"a", "a"}) {
			t.Errorf("asked again for %q", store.tokens)
		}
	})
}
