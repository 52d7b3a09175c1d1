package follow

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"secbox/audit"
)

const (
	changesPoll  = 100 * time.Millisecond // between reads of new events; for all callers together
	changesRetry = time.Second            // after an error of the database
	changesPage  = 256                    // events that are read at once
	changesKept  = 1024                   // newest changes that are kept for callers that have all before
	changesReads = 2                      // callers that read older events at once

	// changesPatience is how long events wait for an event with a lower seq, whose transaction has
	// not ended. The transactions of core-api end within seconds.
	changesPatience = 10 * time.Second
)

// ChangeStore reads the events of all execs; see audit.Store.
type ChangeStore interface {
	Changes(ctx context.Context, after int64, limit int) (audit.Changes, error)
}

// Change is a change of the status of an exec.
type Change struct {
	Seq    int64        // of its event
	Record audit.Record // after it, as a summary
	Text   []byte       // as Changes was told to write it; for all callers
}

// Changes are the changes of all execs. While callers follow them, one goroutine reads them for
// all. It is safe for concurrent use.
type Changes struct {
	store ChangeStore
	text  func(audit.Record) []byte
	reads chan struct{} // full: callers wait before they read older events

	mu      sync.Mutex
	callers map[*Follower]bool
	stop    context.CancelFunc
	done    chan struct{} // of the last goroutine; nil before the first
	begun   bool          // end is known
	end     int64         // no event with at most this seq becomes visible any longer
	newest  []Change      // up to end, without gaps
	from    int64         // where newest begins: all changes with a higher seq are in it
}

// NewChanges makes a Changes. text writes the record of a change for all callers.
func NewChanges(store ChangeStore, text func(audit.Record) []byte) *Changes {
	return &Changes{store: store, text: text, reads: make(chan struct{}, changesReads), callers: map[*Follower]bool{}}
}

// Follower is one caller that follows changes. Its methods must not be called at the same time.
type Follower struct {
	changes *Changes
	wake    chan struct{}
	at      int64
}

// Follow begins to follow changes after the one with a seq; with a negative one, from now on: every
// change whose record is not visible yet comes. The caller must call Close.
func (c *Changes) Follow(ctx context.Context, after int64) (*Follower, error) {
	f := &Follower{changes: c, wake: make(chan struct{}, 1), at: after}
	c.mu.Lock()
	c.callers[f] = true
	if len(c.callers) == 1 {
		before := c.done
		run, stop := context.WithCancel(context.Background())
		c.stop, c.done, c.begun, c.newest = stop, make(chan struct{}), false, nil
		go c.run(run, before, c.done)
	}
	c.mu.Unlock()
	for {
		c.mu.Lock()
		begun, end := c.begun, c.end
		c.mu.Unlock()
		if begun {
			if f.at < 0 || f.at > end { // the future: the database is an older one, or the id is not one of ours
				f.at = end
			}
			return f, nil
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		}
	}
}

// Close ends it.
func (f *Follower) Close() {
	f.changes.mu.Lock()
	defer f.changes.mu.Unlock()
	delete(f.changes.callers, f)
	if len(f.changes.callers) == 0 && f.changes.stop != nil {
		f.changes.stop()
		f.changes.stop = nil
	}
}

// Changed is woken when there may be more.
func (f *Follower) Changed() <-chan struct{} { return f.wake }

// At is the seq up to which Next has returned all changes.
func (f *Follower) At() int64 { return f.at }

// Next returns the changes after At, and none when there are no more now. more is set when there
// may be some. The changes must not be changed.
func (f *Follower) Next(ctx context.Context) (changes []Change, more bool, err error) {
	c := f.changes
	c.mu.Lock()
	end, from, newest := c.end, c.from, c.newest
	c.mu.Unlock()
	if f.at >= from {
		i, found := slices.BinarySearchFunc(newest, f.at, func(x Change, seq int64) int { return int(min(1, max(-1, x.Seq-seq))) })
		if found {
			i++
		}
		f.at = end
		return newest[i:], false, nil
	}
	select {
	case c.reads <- struct{}{}:
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	defer func() { <-c.reads }()
	page, err := c.store.Changes(ctx, f.at, changesPage)
	if err != nil {
		return nil, true, err
	}
	f.at = min(end, max(page.Newest, f.at))
	if len(page.Events) == 0 {
		f.at = end
	}
	return c.changesOf(slices.DeleteFunc(page.Events, func(e audit.Event) bool { return e.Seq > end })), true, nil
}

// changesOf returns the changes that events are. The beginning of an exec that runs at once, or
// ends at once, is one change.
func (c *Changes) changesOf(events []audit.Event) []Change {
	changes := make([]Change, 0, len(events))
	for _, e := range events {
		var rec audit.Record
		if json.Unmarshal(e.Data, &rec) != nil || e.Kind == audit.EventCreated && rec.Status != audit.Queued {
			continue
		}
		rec.Args, rec.EnvKeys, rec.EnvHMACs, rec.Inputs, rec.PolicySnapshot, rec.LargeLists, rec.Unreadable = nil, nil, nil, nil, nil, nil,
			nil
		changes = append(changes, Change{Seq: e.Seq, Record: rec, Text: c.text(rec)})
	}
	return changes
}

// wait waits; false at the end of ctx.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// run reads new events until ctx ends.
func (c *Changes) run(ctx context.Context, before <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	if before != nil {
		<-before
	}
	r := changeReader{changes: c}
	for pause := time.Duration(0); wait(ctx, pause); {
		more, err := r.read(ctx)
		switch {
		case err != nil:
			pause = changesRetry
		case more:
			pause = 0
		default:
			pause = changesPoll
		}
	}
}

// changeReader reads events in the order of their seq, none before all with a lower seq are visible
// or never will be.
type changeReader struct {
	changes *Changes
	begun   bool
	at      int64 // all events with at most this seq were read

	settled int64     // no event with at most this seq becomes visible any longer
	until   int64     // this is settled when the transactions below next have ended
	next    int64     // the number of a transaction
	since   time.Time // it waits; zero: nothing waits
}

// read reads a page. more is set if there may be another one now.
func (r *changeReader) read(ctx context.Context) (more bool, err error) {
	if !r.begun {
		if err := r.mark(ctx); err != nil || !r.since.IsZero() {
			return false, err
		}
		r.begun, r.at = true, r.settled
		r.changes.add(ctx, r.at, nil)
		return true, nil
	}
	page, err := r.changes.store.Changes(ctx, r.at, changesPage)
	if err != nil {
		return false, err
	}
	if len(page.Events) > 0 {
		r.settle(page.Oldest)
	}
	n := 0
	for n < len(page.Events) && (page.Events[n].Seq <= r.settled || page.Events[n].Seq == r.at+1) {
		r.at = page.Events[n].Seq
		n++
	}
	if n > 0 {
		r.changes.add(ctx, r.at, page.Events[:n])
	}
	if n < len(page.Events) && r.since.IsZero() { // a seq is missing
		err = r.mark(ctx)
		return err == nil && r.since.IsZero(), err
	}
	return n == changesPage, nil
}

// mark finds out up to where events are settled, or will be when all transactions in progress have
// ended.
func (r *changeReader) mark(ctx context.Context) error {
	now, err := r.changes.store.Changes(ctx, 0, 0)
	if err != nil {
		return err
	}
	if r.since.IsZero() {
		r.until, r.next, r.since = now.Newest, now.Next, time.Now()
	}
	r.settle(now.Oldest)
	return nil
}

// settle ends the wait, if the transactions for which it waits have ended.
func (r *changeReader) settle(oldest int64) {
	if !r.since.IsZero() && (oldest >= r.next || time.Since(r.since) > changesPatience) {
		r.settled, r.since = r.until, time.Time{}
	}
}

// add adds events, after which no event with at most a seq comes any longer, and wakes the callers.
// After the end of ctx it does nothing: another goroutine may have begun.
func (c *Changes) add(ctx context.Context, end int64, events []audit.Event) {
	changes := c.changesOf(events)
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if !c.begun {
		c.begun, c.from = true, end
	}
	c.end = end
	// Callers read the old slice: it is appended to, but never changed.
	c.newest = append(c.newest, changes...)
	if old := len(c.newest) - changesKept; old > 0 {
		c.from = c.newest[old-1].Seq
		c.newest = slices.Clone(c.newest[old:])
	}
	for f := range c.callers {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}
