package audit

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

const (
	openHours   = 2                // the newest, which execs still enter and leave
	openAge     = 2 * time.Second  // of what is known of them
	closedAge   = 5 * time.Minute  // of an hour that is over: corrections and retention change it rarely
	oldestAge   = time.Hour        // of an hour that was not asked again since few are asked at a time
	askedAtOnce = 24               // hours of one query, and expired hours that one call asks again
	maxHours    = 32 * 24          // that are counted, and that are kept for each token
	maxKept     = 32               // tokens whose hours are kept
	slowestSpan = 24 * time.Hour   // of the slowest execs
	slowestOf   = defaultStatsRows // the newest of them
	slowestAge  = time.Minute
	slowestRows = 5
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
}

// Activity counts execs by hour. Counts of hours that are over are kept for some minutes. It is safe for concurrent use.
type Activity struct {
	store Store
	now   func() time.Time
	fill  chan struct{} // one caller at a time asks for many hours

	mu   sync.Mutex
	kept map[string]*activityOf // by requestedBy
}

type activityOf struct {
	usedAt    time.Time
	hours     map[time.Time]keptHour
	slowest   []SlowExec
	slowestAt time.Time
}

type keptHour struct {
	counts  []HourCount // shared; never changed
	askedAt time.Time
}

// NewActivity makes an Activity. A nil now means time.Now.
func NewActivity(store Store, now func() time.Time) *Activity {
	if now == nil {
		now = time.Now
	}
	return &Activity{store: store, now: now, fill: make(chan struct{}, 1), kept: map[string]*activityOf{}}
}

// Hours counts the execs of the newest n hours, at most 768, the current one included; only those of one token when requestedBy is not empty.
// Hours without execs are left out. The newest hours come first.
func (a *Activity) Hours(ctx context.Context, n int, requestedBy string) ([]HourCount, error) {
	n = min(max(n, 1), maxHours)
	now := a.now().UTC()
	newest := now.Truncate(time.Hour)
	have, missing := a.known(now, newest, n, requestedBy)
	if len(missing) > openHours {
		select {
		case a.fill <- struct{}{}:
			defer func() { <-a.fill }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		have, missing = a.known(now, newest, n, requestedBy) // another caller may have asked meanwhile
	}
	for len(missing) > 0 { // newest first, by ranges without a gap
		end := 1
		for end < len(missing) && end < askedAtOnce && missing[end-1].Sub(missing[end]) == time.Hour {
			end++
		}
		if err := a.ask(ctx, missing[:end], requestedBy, now, have); err != nil {
			return nil, err
		}
		missing = missing[end:]
	}
	var out []HourCount
	for i := range n {
		out = append(out, have[newest.Add(-time.Duration(i)*time.Hour)]...)
	}
	return out, nil
}

// known returns what is kept, and the hours that must be asked, newest first.
func (a *Activity) known(now, newest time.Time, n int, requestedBy string) (have map[time.Time][]HourCount, missing []time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.of(requestedBy, now)
	have = make(map[time.Time][]HourCount, n)
	again := 0
	for i := range n {
		hour := newest.Add(-time.Duration(i) * time.Hour)
		kept, ok := of.hours[hour]
		age := now.Sub(kept.askedAt)
		switch {
		case !ok, age < 0, age > oldestAge, i < openHours && age >= openAge:
			missing = append(missing, hour)
		case age > closedAge && again < askedAtOnce:
			again++
			missing = append(missing, hour)
		default:
			have[hour] = kept.counts
		}
	}
	return have, missing
}

// ask counts the execs of hours without a gap, newest first, and adds them to have.
func (a *Activity) ask(ctx context.Context, hours []time.Time, requestedBy string, now time.Time, have map[time.Time][]HourCount) error {
	err := a.store.Hours(ctx, hours[len(hours)-1], hours[0].Add(time.Hour), requestedBy, func(h HourCount) {
		h.Hour = h.Hour.UTC()
		have[h.Hour] = append(have[h.Hour], h)
	})
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.of(requestedBy, now)
	for _, hour := range hours {
		of.hours[hour] = keptHour{have[hour], now}
	}
	for hour := range of.hours {
		if now.Sub(hour) > (maxHours+1)*time.Hour {
			delete(of.hours, hour)
		}
	}
	return nil
}

// Slowest returns the execs of the last 24 hours that took longest, at most five; only those of one token when requestedBy is not empty.
func (a *Activity) Slowest(ctx context.Context, requestedBy string) ([]SlowExec, error) {
	now := a.now().UTC()
	a.mu.Lock()
	of := a.of(requestedBy, now)
	slowest, age := of.slowest, now.Sub(of.slowestAt)
	a.mu.Unlock()
	if age >= 0 && age < slowestAge {
		return slowest, nil
	}
	slowest, err := a.store.Slowest(ctx, now.Add(-slowestSpan), now.Add(time.Second), requestedBy, slowestOf, slowestRows)
	if err != nil {
		return nil, err
	}
	slowest = slices.DeleteFunc(slowest, func(s SlowExec) bool { return s.DurationMS == 0 }) // refused, or not ended
	a.mu.Lock()
	defer a.mu.Unlock()
	of = a.of(requestedBy, now)
	of.slowest, of.slowestAt = slowest, now
	return slowest, nil
}

// of returns what is kept of a token, and forgets the token that was not asked for longest when there are too many. The caller holds mu.
func (a *Activity) of(requestedBy string, now time.Time) *activityOf {
	of := a.kept[requestedBy]
	if of == nil {
		if len(a.kept) >= maxKept {
			ids := make([]string, 0, len(a.kept))
			for id := range a.kept {
				ids = append(ids, id)
			}
			delete(a.kept, slices.MinFunc(ids, func(x, y string) int {
				return cmp.Or(a.kept[x].usedAt.Compare(a.kept[y].usedAt), cmp.Compare(x, y))
			}))
		}
		of = &activityOf{hours: map[time.Time]keptHour{}}
		a.kept[requestedBy] = of
	}
	of.usedAt = now
	return of
}
