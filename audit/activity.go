package audit

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"secbox/fault"
)

const (
	openHours   = 2                // the newest, which execs still enter and leave
	openAge     = 2 * time.Second  // of what is known of them
	closedAge   = 5 * time.Minute  // of an hour that is over, or closedShare of the time since then
	closedShare = 24               // corrections and retention change old hours rarely
	staleAge    = 15 * time.Second // of the open hours, before a caller waits for them
	patience    = 40 * time.Millisecond
	askedAtOnce = 24      // hours of one query
	maxHours    = 32 * 24 // that are counted, and that are kept for each token
	maxKept     = 32      // tokens whose hours are kept
	slowestSpan = 24 * time.Hour
	slowestOf   = defaultStatsRows // the newest of them
	slowestAge  = time.Minute
	slowestRows = 5

	slowestCommand = 1000 // bytes
)

// HourCount is the number of execs that were created in an hour, with one status and error_reason.
type HourCount struct {
	Hour        time.Time // its start, in UTC
	Status      Status
	ErrorReason Reason
	Execs       int64
}

// SlowExec is the part of a record that a list of slow execs shows.
type SlowExec struct {
	ExecID     string
	CreatedAt  time.Time
	Status     Status
	SkillID    string
	DurationMS int64

	// Cmd and Args are what ran, and Request what a skill was asked, each cut after 1,000 bytes.
	// Store.Slowest leaves them out.
	Cmd     string
	Args    []string
	Request string
}

// Recent is what an Activity knows.
type Recent struct {
	Hours     []HourCount // newest first, without hours that have no execs
	Uncounted int         // hours that are not counted yet
	Slowest   []SlowExec  // of the last 24 hours, those that took longest, at most five
	Complete  bool        // no hour is uncounted, and the slowest are known
}

// Activity counts execs by hour. It asks the database in Run alone, one query after the other and
// only for what callers have asked, so that they wait for no long query and many of them cost no
// more than one. It is safe for concurrent use.
type Activity struct {
	store Store
	now   func() time.Time
	wake  chan struct{}

	mu   sync.Mutex
	kept map[string]*activityOf // by requestedBy
}

// activityOf is what is known of the execs of a token. It is read and changed under mu.
type activityOf struct {
	usedAt, servedAt time.Time
	wanted           int           // hours that Run looks at; 0: none
	done             chan struct{} // closed when Run has looked at all that is wanted
	err              error         // of Run, if it gave up

	hours     map[time.Time]keptHour
	slowest   []SlowExec // shared; never changed
	slowestAt time.Time  // zero: they are not known
}

type keptHour struct {
	counts  []HourCount // shared; never changed
	askedAt time.Time
}

// NewActivity makes an Activity, which knows nothing until Run runs. A nil now means time.Now.
func NewActivity(store Store, now func() time.Time) *Activity {
	if now == nil {
		now = time.Now
	}
	return &Activity{store: store, now: now, wake: make(chan struct{}, 1), kept: map[string]*activityOf{}}
}

// Recent returns what is known of the newest n hours, at most 768, the current one included; only
// of the execs of one token when requestedBy is not empty. It has Run ask again for what is old,
// and waits a moment if something is not known at all or the newest hours are too old.
func (a *Activity) Recent(ctx context.Context, n int, requestedBy string) (Recent, error) {
	n = min(max(n, 1), maxHours)
	a.mu.Lock()
	now := a.now().UTC()
	of := a.of(requestedBy, now)
	if _, ok := of.next(now, n); ok {
		of.wanted = max(of.wanted, n)
		if of.done == nil {
			of.done, of.err = make(chan struct{}), nil
		}
		select {
		case a.wake <- struct{}{}:
		default:
		}
	}
	done, ready := of.done, of.known(now, n).Complete && of.age(now) < staleAge
	a.mu.Unlock()

	if !ready && done != nil {
		moment := time.NewTimer(patience)
		defer moment.Stop()
		select {
		case <-done:
		case <-moment.C:
		case <-ctx.Done():
			return Recent{}, ctx.Err()
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if of.err != nil && !ready {
		return Recent{}, of.err
	}
	return of.known(now, n), nil
}

// Run asks the database for what callers want, until ctx ends.
func (a *Activity) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
		for a.step(ctx) {
		}
	}
}

// query is one question to the database.
type query struct {
	hours []time.Time // without a gap, newest first; empty: it is for the slowest
	open  bool        // they are open ones, which go before all others
}

// step makes one query, for the token that was served longest ago. It returns false when nothing is
// wanted.
func (a *Activity) step(ctx context.Context) bool {
	a.mu.Lock()
	now := a.now().UTC()
	var best query
	var of *activityOf
	var token string
	for id, other := range a.kept {
		if other.wanted == 0 {
			continue
		}
		q, ok := other.next(now, other.wanted)
		if !ok {
			other.rest(nil)
			continue
		}
		if of == nil || q.open && !best.open || q.open == best.open && other.servedAt.Before(of.servedAt) {
			best, of, token = q, other, id
		}
	}
	if of != nil {
		of.servedAt = now
	}
	a.mu.Unlock()
	if of == nil {
		return false
	}
	var err error
	if len(best.hours) == 0 {
		err = a.askSlowest(ctx, of, token)
	} else {
		err = a.askHours(ctx, of, token, best.hours)
	}
	if err != nil {
		a.mu.Lock()
		of.rest(err)
		a.mu.Unlock()
	}
	return ctx.Err() == nil
}

func (a *Activity) askHours(ctx context.Context, of *activityOf, token string, hours []time.Time) error {
	found := make(map[time.Time][]HourCount, len(hours))
	err := a.store.Hours(ctx, hours[len(hours)-1], hours[0].Add(time.Hour), token, func(h HourCount) {
		h.Hour = h.Hour.UTC()
		found[h.Hour] = append(found[h.Hour], h)
	})
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now() // after the query: else one that takes long would be repeated for ever
	for _, hour := range hours {
		of.hours[hour] = keptHour{found[hour], now}
	}
	for hour := range of.hours {
		if now.Sub(hour) > (maxHours+1)*time.Hour {
			delete(of.hours, hour)
		}
	}
	return nil
}

func (a *Activity) askSlowest(ctx context.Context, of *activityOf, token string) error {
	now := a.now()
	slowest, err := a.store.Slowest(ctx, now.Add(-slowestSpan), now.Add(time.Second), token, slowestOf, slowestRows)
	if err != nil {
		return err
	}
	slowest = slices.DeleteFunc(slowest, func(s SlowExec) bool { return s.DurationMS == 0 }) // refused, or not ended
	for i := range slowest {
		r, err := a.store.Get(ctx, slowest[i].ExecID)
		if err != nil && !fault.Is(err, fault.UnknownExec) { // deleted since
			return err
		}
		slowest[i].Cmd, slowest[i].Args = beginning(r, slowestCommand)
		slowest[i].Request = RequestText([]byte(r.Request), slowestCommand)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	of.slowest = slowest
	of.slowestAt = a.now()
	return nil
}

// beginning is the first bytes of what ran.
func beginning(r Record, most int) (cmd string, args []string) {
	cut := func(s string) string {
		s = strings.Clone(s[:min(len(s), most)])
		most -= len(s)
		return s
	}
	cmd = cut(r.Cmd)
	for _, arg := range r.Args {
		if most == 0 {
			break
		}
		args = append(args, cut(arg))
	}
	return cmd, args
}

// of returns what is kept of a token, and forgets the token that was not asked for longest when
// there are too many. The caller holds mu.
func (a *Activity) of(requestedBy string, now time.Time) *activityOf {
	of := a.kept[requestedBy]
	if of == nil {
		if len(a.kept) >= maxKept {
			ids := make([]string, 0, len(a.kept))
			for id := range a.kept {
				ids = append(ids, id)
			}
			oldest := slices.MinFunc(ids, func(x, y string) int {
				return cmp.Or(a.kept[x].usedAt.Compare(a.kept[y].usedAt), cmp.Compare(x, y))
			})
			a.kept[oldest].rest(nil)
			delete(a.kept, oldest)
		}
		of = &activityOf{hours: map[time.Time]keptHour{}}
		a.kept[requestedBy] = of
	}
	of.usedAt = now
	return of
}

// rest ends what is wanted, and wakes those who wait for it.
func (of *activityOf) rest(err error) {
	if of.wanted, of.err = 0, err; of.done != nil {
		close(of.done)
		of.done = nil
	}
}

// next returns what must be asked first: the open hours, then the slowest, then the newest of the
// other hours; false: nothing.
func (of *activityOf) next(now time.Time, n int) (query, bool) {
	if hours := of.expiredHours(now, 0, min(n, openHours)); len(hours) > 0 {
		return query{hours: hours, open: true}, true
	}
	if age := now.Sub(of.slowestAt); age < 0 || age >= slowestAge {
		return query{}, true
	}
	hours := of.expiredHours(now, openHours, n)
	return query{hours: hours}, len(hours) > 0
}

// expiredHours returns the newest hours that must be asked, by their distance from the current one.
func (of *activityOf) expiredHours(now time.Time, from, to int) []time.Time {
	var hours []time.Time
	for i := from; i < to && len(hours) < askedAtOnce; i++ {
		hour := now.Truncate(time.Hour).Add(-time.Duration(i) * time.Hour)
		if of.expired(hour, now) {
			hours = append(hours, hour)
		} else if len(hours) > 0 {
			break
		}
	}
	return hours
}

// expired reports whether an hour must be asked, for the first time or again.
func (of *activityOf) expired(hour, now time.Time) bool {
	kept, ok := of.hours[hour]
	age, over := now.Sub(kept.askedAt), now.Sub(hour)
	switch {
	case !ok || age < 0:
		return true
	case over < openHours*time.Hour:
		return age >= openAge
	}
	return age > max(closedAge, over/closedShare)
}

// age returns the age of what is known of the current hour.
func (of *activityOf) age(now time.Time) time.Duration {
	return now.Sub(of.hours[now.Truncate(time.Hour)].askedAt)
}

// known returns what is known of the newest n hours.
func (of *activityOf) known(now time.Time, n int) Recent {
	newest := now.Truncate(time.Hour)
	out := Recent{Slowest: of.slowest}
	for i := range n {
		kept, ok := of.hours[newest.Add(-time.Duration(i)*time.Hour)]
		if !ok {
			out.Uncounted++
		}
		out.Hours = append(out.Hours, kept.counts...)
	}
	out.Complete = out.Uncounted == 0 && !of.slowestAt.IsZero()
	return out
}
