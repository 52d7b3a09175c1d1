package runner

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"secbox/audit"
	"secbox/runner/lifecycle"
)

// rows is a Log with one record, which counts how often it is read.
type rows struct {
	Log
	mu     sync.Mutex
	record audit.Record
	reads  int
}

func (l *rows) Newer(context.Context, audit.Record) (audit.Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	return l.record, nil
}

func (l *rows) set(s audit.Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record.Status = s
}

// took returns how often the row was read since the last call.
func (l *rows) took() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.reads
	l.reads = 0
	return n
}

// waiter is a caller of WaitEnd for an exec.
type waiter struct {
	*Runner
	log  *rows
	ends chan audit.Record
}

func wait(t *testing.T, timeout time.Duration, status audit.Status, here bool) (w *waiter, end func()) {
	w = &waiter{
		Runner: &Runner{commands: lifecycle.New(lifecycle.Config{})}, log: &rows{record: audit.Record{ExecID: "id", Status: status}},
		ends: make(chan audit.Record),
	}
	w.cfg.Log = w.log
	if here {
		_, command, err := w.commands.Begin(t.Context(), lifecycle.Command{ExecID: "id"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		end = func() { w.commands.End(command) }
	}
	first := w.log.record
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		r, err := w.WaitEnd(ctx, first)
		if err != nil {
			t.Error(err)
		}
		w.ends <- r
	}()
	synctest.Wait()
	return w, end
}

// within fails unless WaitEnd returns with a status by then.
func (w *waiter) within(t *testing.T, most time.Duration, want audit.Status) {
	t.Helper()
	began := time.Now()
	if r := <-w.ends; r.Status != want || time.Since(began) > most {
		t.Errorf("%s after %v, want %s within %v", r.Status, time.Since(began), want, most)
	}
}

// TestWaitHere: the end of an exec that runs on this node is told, so its row is read seldom.
func TestWaitHere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, end := wait(t, time.Hour, audit.Running, true)
		time.Sleep(5 * time.Minute)
		if n := w.log.took(); n < 2 || n > 25 {
			t.Errorf("its row was read %d times in 5 minutes", n)
		}
		w.log.set(audit.Succeeded)
		end()
		w.within(t, 0, audit.Succeeded)

		w, end = wait(t, time.Hour, audit.Running, true)
		w.log.set(audit.Lost) // by another node
		w.within(t, pollHere, audit.Lost)
		end()
	})
}

// TestWaitElsewhere: the end of an exec that runs on another node is noticed within a second. If
// this node ends a waiting exec, that is noticed at once.
func TestWaitElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := wait(t, time.Hour, audit.Running, false)
		time.Sleep(5*time.Minute + 500*time.Millisecond)
		w.log.set(audit.Failed)
		w.within(t, pollLast, audit.Failed)

		w, _ = wait(t, time.Hour, audit.Queued, false)
		w.log.set(audit.Canceled)
		w.Runner.ends.notify("id")
		w.within(t, 0, audit.Canceled)
	})
}

// TestWaitQueued: when the time is over, an exec that waits on this node is returned as it is, also
// if it has begun meanwhile.
func TestWaitQueued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, end := wait(t, time.Minute, audit.Queued, true)
		time.Sleep(55 * time.Second)
		w.log.set(audit.Running)
		w.within(t, 5*time.Second, audit.Running)
		end()
	})
}
