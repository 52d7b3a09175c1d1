package jobs_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"secbox/runner/jobs"
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
	notifier jobs.Notifier
	returned int // calls of ReturnAll that the store answered

	lost       int           // calls of Take and TakeExpired that take jobs, and whose answers are lost
	breaks     bool          // the store is down when an exec cannot run now
	unreturned int           // calls of Return that fail
	unended    int           // calls of Expire that fail
	begin      chan struct{} // nil: execs start at once
	elsewhere  []string      // execs that have ended, which the store does not know
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
	if f.lost > 0 {
		f.lost--
		return nil, errDown
	}
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
	if f.down {
		return nil, errDown
	}
	var ids []string
	f.waiting = slices.DeleteFunc(f.waiting, func(w jobs.Taken) bool {
		late := !w.ExpiresAt.After(time.Now())
		if late {
			ids = append(ids, w.ExecID)
			f.taken[w.ExecID] = w
		}
		return late
	})
	if len(ids) > 0 && f.lost > 0 {
		f.lost--
		return nil, errDown
	}
	return ids, nil
}

func (f *fakes) Return(_ context.Context, _, execID string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down || f.unreturned > 0 {
		f.unreturned--
		return errDown
	}
	f.giveBack(execID)
	return nil
}

func (f *fakes) giveBack(execID string) {
	f.waiting = append(f.waiting, f.taken[execID])
	delete(f.taken, execID)
}

func (f *fakes) ReturnAll(_ context.Context, _ string, except []string) (n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return 0, errDown
	}
	f.returned++
	for _, id := range slices.Sorted(maps.Keys(f.taken)) {
		if !slices.Contains(except, id) {
			f.giveBack(id)
			n++
		}
	}
	return n, nil
}

func (f *fakes) ended() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.elsewhere)
}

func (f *fakes) Waiting(context.Context) (int, time.Time, error) { return 0, time.Time{}, nil }

// place notifies when it was used.
type place struct {
	f    *fakes
	used bool
}

func (p *place) WorkFor(string) { p.used = true }

func (p *place) Leave() {
	p.f.set(func() { p.f.places++ })
	if p.used {
		p.f.notifier.Notify()
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
	if f.begin != nil {
		<-f.begin
	}
	f.mu.Lock()
	if f.later > 0 {
		f.later--
		f.down = f.breaks
		f.mu.Unlock()
		return true
	}
	f.ran = append(f.ran, t.ExecID)
	delete(f.taken, t.ExecID) // its row has started
	f.mu.Unlock()
	if f.finish != nil {
		<-f.finish
	}
	return false
}

func (f *fakes) Expire(_ context.Context, execID string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unended > 0 {
		f.unended--
		return errDown
	}
	f.expired = append(f.expired, execID)
	delete(f.taken, execID)
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
	if f.taken == nil {
		f.taken = map[string]jobs.Taken{}
	}
	f.notifier = jobs.NewNotifier()
	d := jobs.New(jobs.Config{Store: f, Runner: f, Node: "n", Notifier: f.notifier, Poll: time.Minute, Logger: slog.New(slog.DiscardHandler), Ended: f.ended})
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
		time.Sleep(time.Hour)
		f.set(func() {
			if !slices.Equal(f.expired, []string{"f1"}) {
				t.Errorf("%v expired", f.expired)
			}
		})
	})
}

// TestJobsOfAnEarlierProcess: jobs that were taken and not started run, except for a job that has
// ended.
func TestJobsOfAnEarlierProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{places: 1, elsewhere: []string{"a2"}, taken: map[string]jobs.Taken{}}
		for _, id := range []string{"a1", "a2"} {
			f.taken[id] = jobs.Taken{ExecID: id, RequestedBy: "a", ExpiresAt: time.Now().Add(time.Hour)}
		}
		dispatch(t, f)
		f.hasRun(t, "a1")
		time.Sleep(time.Hour)
		f.hasRun(t, "a1")
	})
}

// TestLostAnswers: jobs that the store has taken for this node, which does not know of it, are
// returned when the store answers again.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{places: 1, lost: 1}
		f.add("a", "a1")
		dispatch(t, f)
		f.hasRun(t)
		time.Sleep(2 * time.Second)
		f.hasRun(t, "a1")

		f.add("full", "f1", "f2")
		f.set(func() { f.lost = 1 })
		time.Sleep(time.Hour + 5*time.Second)
		f.set(func() {
			if f.lost != 0 || !slices.Equal(f.expired, []string{"f1", "f2"}) {
				t.Errorf("%v expired; %d answers are left to lose", f.expired, f.lost)
			}
		})
	})
}

// TestLateCommit: a job that the store takes for this node after the return that followed the lost
// answer waits again, too.
func TestLateCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{places: 1}
		dispatch(t, f)
		synctest.Wait()
		f.set(func() {
			f.taken["a1"] = jobs.Taken{ExecID: "a1", RequestedBy: "a", ExpiresAt: time.Now().Add(time.Hour)}
		})
		time.Sleep(2 * time.Minute)
		f.hasRun(t, "a1")
	})
}

// TestReturnFails: an exec that cannot run now, and is not given back, runs when the store answers
// again.
func TestReturnFails(t *testing.T) {
	t.Parallel()
	for _, f := range []*fakes{{breaks: true}, {unreturned: 1}} {
		synctest.Test(t, func(t *testing.T) {
			f.places, f.later = 1, 1
			f.add("a", "a1")
			dispatch(t, f)
			f.hasRun(t)
			if f.breaks {
				time.Sleep(5 * time.Second)
				f.hasRun(t)
				f.set(func() { f.down = false })
			}
			time.Sleep(3 * time.Second)
			f.hasRun(t, "a1")
		})
	}
}

// TestInHand: a job that the node has in hand is not returned with those whose answers were lost.
func TestInHand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{places: 3, begin: make(chan struct{})}
		f.add("a", "a1")
		d := dispatch(t, f)
		synctest.Wait()
		f.set(func() { f.lost = 1 })
		f.add("b", "b1")
		time.Sleep(5 * time.Minute)
		f.set(func() {
			if f.lost != 0 || f.returned < 3 || d.Running() != 2 || len(f.taken) != 2 {
				t.Errorf("%d answers are left to lose, returned %d times; %d run of %v", f.lost, f.returned, d.Running(), f.taken)
			}
		})
		f.begin <- struct{}{}
		f.begin <- struct{}{}
		synctest.Wait()
		f.set(func() {
			if slices.Sort(f.ran); !slices.Equal(f.ran, []string{"a1", "b1"}) {
				t.Errorf("%v ran", f.ran)
			}
		})
	})
}

// TestExpireFails: an exec that could not be ended is ended later.
func TestExpireFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{unended: 2}
		f.add("full", "f1")
		dispatch(t, f)
		time.Sleep(time.Hour + 5*time.Minute)
		f.set(func() {
			if f.unended != 0 || !slices.Equal(f.expired, []string{"f1"}) {
				t.Errorf("%v expired", f.expired)
			}
		})
	})
}
