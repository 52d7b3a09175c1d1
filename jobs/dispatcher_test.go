package jobs_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"secbox/jobs"
)

// fakes are a store and a runner in memory.
type fakes struct {
	mu       sync.Mutex
	waiting  []jobs.Taken
	taken    map[string]jobs.Taken
	down     bool
	places   int // that are free
	later    int // execs that cannot run now
	ran      []string
	expired  []string
	finish   chan struct{} // nil: they end at once
	bell     jobs.Bell
	returned int // by ReturnAll
}

var errDown = errors.New("down")

func (f *fakes) Take(_ context.Context, _, after string, mayRun func(string) bool) (*jobs.Taken, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return nil, errDown
	}
	best := -1
	for i, w := range f.waiting {
		f.mu.Unlock()
		may := mayRun(w.RequestedBy)
		f.mu.Lock()
		if may && (best < 0 || turn(w, after) < turn(f.waiting[best], after)) {
			best = i
		}
	}
	if best < 0 {
		return nil, nil
	}
	w := f.waiting[best]
	f.waiting = slices.Delete(f.waiting, best, best+1)
	f.taken[w.ExecID] = w
	return &w, nil
}

// turn orders the tokens after one before the others.
func turn(w jobs.Taken, after string) string {
	if w.RequestedBy > after {
		return "0" + w.RequestedBy
	}
	return "1" + w.RequestedBy
}

func (f *fakes) TakeExpired(context.Context, string, int) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ids []string
	f.waiting = slices.DeleteFunc(f.waiting, func(w jobs.Taken) bool {
		late := !w.ExpiresAt.After(time.Now())
		if late {
			ids = append(ids, w.ExecID)
		}
		return late
	})
	return ids, nil
}

func (f *fakes) Return(_ context.Context, _, execID string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(f.waiting, f.taken[execID])
	return nil
}

func (f *fakes) ReturnAll(context.Context, string) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return 0, errDown
	}
	f.returned++
	return 0, nil
}

func (f *fakes) Waiting(context.Context) (int, time.Time, error) { return 0, time.Time{}, nil }

// place rings the bell when it was used.
type place struct {
	f    *fakes
	used bool
}

func (p *place) WorkFor(string) { p.used = true }

func (p *place) Leave() {
	p.f.set(func() { p.f.places++ })
	if p.used {
		p.f.bell.Ring()
	}
}

func (f *fakes) Place() jobs.Place {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.places == 0 {
		return nil
	}
	f.places--
	return &place{f: f}
}

func (f *fakes) MayRun(token string) bool { return token != "full" }

func (f *fakes) RunQueued(t jobs.Taken, _ jobs.Place) bool {
	f.mu.Lock()
	if f.later > 0 {
		f.later--
		f.mu.Unlock()
		return true
	}
	f.ran = append(f.ran, t.ExecID)
	f.mu.Unlock()
	if f.finish != nil {
		<-f.finish
	}
	return false
}

func (f *fakes) Expire(_ context.Context, execID string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expired = append(f.expired, execID)
	return nil
}

func (f *fakes) add(token string, ids ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		f.waiting = append(f.waiting, jobs.Taken{ExecID: id, RequestedBy: token, ExpiresAt: time.Now().Add(time.Hour)})
	}
}

func (f *fakes) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakes) hasRun(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.ran, want) {
		t.Errorf("%v ran, want %v", f.ran, want)
	}
}

// dispatch runs a dispatcher until the end of the test.
func dispatch(t *testing.T, f *fakes) *jobs.Dispatcher {
	f.taken, f.bell = map[string]jobs.Taken{}, jobs.NewBell()
	d := jobs.New(jobs.Config{Store: f, Runner: f, Node: "n", Bell: f.bell, Poll: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { d.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		done.Wait()
		d.Wait()
	})
	return d
}

func TestTokensTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{places: 1, finish: make(chan struct{})}
		f.add("a", "a1", "a2", "a3")
		f.add("b", "b1")
		f.add("full", "f1")
		f.add("c", "c1")
		d := dispatch(t, f)
		for range 6 {
			synctest.Wait()
			select {
			case f.finish <- struct{}{}:
			default:
			}
		}
		f.hasRun(t, "a1", "b1", "c1", "a2", "a3")
		if d.Running() != 0 {
			t.Errorf("%d run", d.Running())
		}
	})
}

// TestAnswer: an answer waits while the node has no place.
func TestAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{places: 1, finish: make(chan struct{})}
		d := dispatch(t, f)
		d.Answer(t.Context()) // nothing waits
		f.add("a", "a1")
		answer := func() (done chan struct{}) {
			done = make(chan struct{})
			go func() {
				d.Answer(t.Context())
				close(done)
			}()
			synctest.Wait()
			return done
		}
		first := answer()
		f.hasRun(t, "a1")
		f.add("a", "a2")
		second := answer()
		select {
		case <-first:
			t.Error("the node had no other place")
		case <-second:
			t.Error("the node had no place")
		default:
		}
		f.finish <- struct{}{}
		f.hasRun(t, "a1", "a2")
		f.finish <- struct{}{}
		<-first
		<-second

		f.set(func() { f.places = 0 })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		d.Answer(ctx)
	})
}

// TestLater: an exec that cannot run now is given back, and tried again after a pause.
func TestLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{places: 2, later: 1}
		f.add("a", "a1")
		began := time.Now()
		dispatch(t, f)
		f.hasRun(t)
		time.Sleep(2 * time.Second)
		f.hasRun(t, "a1")
		if time.Since(began) < time.Second {
			t.Error("there was no pause")
		}
	})
}

func TestExpiredAndDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{down: true, places: 1}
		f.add("a", "a1")
		f.add("full", "f1")
		dispatch(t, f)
		f.hasRun(t)
		f.set(func() { f.down = false })
		time.Sleep(time.Minute)
		f.hasRun(t, "a1")
		if f.returned != 1 {
			t.Errorf("taken back %d times", f.returned)
		}
		time.Sleep(time.Hour)
		f.set(func() {
			if !slices.Equal(f.expired, []string{"f1"}) {
				t.Errorf("%v expired", f.expired)
			}
		})
	})
}
