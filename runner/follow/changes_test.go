package follow_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"secbox/audit"
	"secbox/runner/follow"
)

// eventLog is a database of events, with transactions: their events have a seq before they are
// visible.
type eventLog struct {
	mu     sync.Mutex
	events map[int64]audit.Event
	seq    int64
	open   map[int64]bool // transactions
	nextTx int64
	reads  int
}

func newEventLog() *eventLog {
	return &eventLog{events: map[int64]audit.Event{}, open: map[int64]bool{}, nextTx: 1}
}

// begin takes a seq for an event, which commit makes visible; rolled back, the seq is never used.
func (l *eventLog) begin(kind audit.EventKind, status audit.Status) (commit, rollBack func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	tx, seq := l.nextTx, l.seq
	l.nextTx++
	l.open[tx] = true
	data, _ := json.Marshal(audit.Record{ExecID: "exec " + strconv.FormatInt(seq, 10), Status: status, Args: []string{"secret"}})
	end := func(visible bool) func() {
		return func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.open, tx)
			if visible {
				l.events[seq] = audit.Event{Seq: seq, Kind: kind, Data: data}
			}
		}
	}
	return end(true), end(false)
}

func (l *eventLog) add(n int) {
	for range n {
		commit, _ := l.begin(audit.EventEnded, audit.Failed)
		commit()
	}
}

func (l *eventLog) Changes(ctx context.Context, after int64, limit int) (c audit.Changes, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	c.Oldest = l.nextTx
	for tx := range l.open {
		c.Oldest = min(c.Oldest, tx)
	}
	if limit == 0 {
		c.Next = l.nextTx
		l.nextTx++
	}
	for seq := int64(1); seq <= l.seq; seq++ {
		e, visible := l.events[seq]
		switch {
		case !visible:
		case limit == 0:
			c.Newest = seq
		case seq > after && len(c.Events) < limit:
			c.Events, c.Newest = append(c.Events, e), seq
		}
	}
	return c, ctx.Err()
}

func (l *eventLog) readCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads
}

// caller follows changes.
type caller struct {
	t *testing.T
	*follow.Follower
	got []string
}

func followChanges(t *testing.T, c *follow.Changes, after int64) *caller {
	t.Helper()
	f, err := c.Follow(t.Context(), after)
	if err != nil {
		t.Fatal(err)
	}
	return &caller{t: t, Follower: f}
}

// read reads all that there is now.
func (c *caller) read() {
	c.t.Helper()
	for more := true; more; {
		var page []follow.Change
		var err error
		if page, more, err = c.Next(c.t.Context()); err != nil {
			c.t.Fatal(err)
		}
		for _, change := range page {
			if strconv.FormatInt(change.Seq, 10) != strings.TrimPrefix(change.Record.ExecID, "exec ") || change.Record.Args != nil {
				c.t.Errorf("%+v", change)
			}
			c.got = append(c.got, string(change.Text))
		}
	}
}

func (c *caller) has(want ...string) {
	c.t.Helper()
	if c.read(); !slices.Equal(c.got, want) {
		c.t.Errorf("got %v, want %v", c.got, want)
	}
	c.got = nil
}

func newChanges(l *eventLog) *follow.Changes {
	return follow.NewChanges(l, func(r audit.Record) []byte { return []byte(strings.TrimPrefix(r.ExecID, "exec ") + string(r.Status)) })
}

// TestChanges: callers get each change once and in the order of its seq, although transactions end
// in another one.
func TestChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newEventLog()
		l.add(3)
		c := newChanges(l)
		now, before := followChanges(t, c, -1), followChanges(t, c, 1)
		now.has()
		before.has("2failed", "3failed")
		slow, _ := l.begin(audit.EventEnded, audit.Timeout)
		_, gone := l.begin(audit.EventEnded, audit.Timeout)
		l.add(2)
		time.Sleep(time.Second)
		synctest.Wait()
		now.has() // 4 may come yet
		slow()
		time.Sleep(time.Second)
		now.has("4timeout") // and 5
		gone()
		time.Sleep(time.Second)
		now.has("6failed", "7failed")
		before.has("4timeout", "6failed", "7failed")
		queued, _ := l.begin(audit.EventCreated, audit.Queued)
		direct, _ := l.begin(audit.EventCreated, audit.Running)
		started, _ := l.begin(audit.EventStarted, audit.Running)
		queued()
		direct()
		started()
		time.Sleep(time.Second)
		now.has("8queued", "10running")
		if now.At() != 10 {
			t.Errorf("at %d", now.At())
		}
		stuck, _ := l.begin(audit.EventEnded, audit.Timeout)
		l.add(1)
		time.Sleep(time.Minute) // another program's transaction does not stop the events for ever
		now.has("12failed")
		stuck()
		for _, f := range []*caller{now, before} {
			f.Close()
		}
		synctest.Wait()
	})
}

// TestChangesBegin: a caller that begins now waits for transactions in progress, whose rows a list
// does not show yet.
func TestChangesBegin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newEventLog()
		l.add(1)
		open, _ := l.begin(audit.EventEnded, audit.Timeout)
		l.add(1)
		c := newChanges(l)
		begun := make(chan *follow.Follower)
		go func() {
			f, err := c.Follow(t.Context(), -1)
			if err != nil {
				t.Error(err)
			}
			begun <- f
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		select {
		case <-begun:
			t.Error("it begins although a transaction may add an earlier event")
		default:
		}
		open()
		now := &caller{t: t, Follower: <-begun}
		now.has()
		l.add(1)
		time.Sleep(time.Second)
		now.has("4failed")
		now.Close()

		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err := c.Follow(gone, -1); err == nil {
			t.Error("it begins for a client that has gone")
		}
		l.add(1)
		future := followChanges(t, c, 1000)
		l.add(1)
		time.Sleep(time.Second)
		future.has("6failed")
		future.Close()
		synctest.Wait()
		reads := l.readCount()
		time.Sleep(time.Hour)
		if l.readCount() != reads {
			t.Error("it reads although no one follows")
		}
	})
}

// TestChangesOfManyAndSlowCallers: however many callers there are, new events are read once. A
// caller that is far behind reads them itself, and misses none.
func TestChangesOfManyAndSlowCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newEventLog()
		c := newChanges(l)
		slow := followChanges(t, c, -1)
		var quick []*caller
		for range 50 {
			quick = append(quick, followChanges(t, c, -1))
		}
		before := l.readCount()
		for range 10 {
			l.add(300)
			time.Sleep(time.Second)
			for _, q := range quick {
				q.read()
			}
		}
		if n := l.readCount() - before; n > 150 {
			t.Errorf("50 callers cost %d reads in 10 seconds", n)
		}
		slow.read()
		for _, f := range append(quick, slow) {
			if len(f.got) != 3000 || f.got[0] != "1failed" || f.got[1500] != "1501failed" || f.got[2999] != "3000failed" {
				t.Errorf("a caller got %d changes", len(f.got))
			}
			f.Close()
		}
		synctest.Wait()
	})
}
