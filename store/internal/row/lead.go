package row

import (
	"context"
	"time"

	"secbox/audit"
)

// Bounds of the rows that a list reads. Each takes some 10 µs.
const (
	scanPerItem = 20
	leastScan   = 200
	mostScan    = 1000
)

// scanLimit is how many rows a list of at most limit items may read.
func scanLimit(limit int) int { return max(min(max(scanPerItem*limit, leastScan), mostScan), 2*limit) }

// condition is a condition of a filter whose rows an index has in the order of lists.
type condition struct {
	column string
	is     string   // what selects the rows in the index, for one of values
	values []string // the column has one of them; nil: is has no parameter
}

// conditions returns the conditions of a filter.
func conditions(f audit.Filter) (all []condition) {
	for _, eq := range equalities(f) {
		if eq.scattered {
			continue
		}
		is := eq.column + " = $1"
		if eq.partial != "" {
			is += " AND " + eq.partial
		}
		all = append(all, condition{eq.column, is, []string{Text(eq.value)}})
	}
	if len(f.Statuses) > 1 {
		all = append(all, condition{"status", "status = $1", statuses(f)})
	}
	// The conditions of partial indexes, repeated literally.
	if f.Kind == audit.KindChange {
		all = append(all, condition{column: "kind", is: "kind = 'change'"})
	}
	if f.Sessions {
		all = append(all, condition{column: "sessions", is: ofSessions})
	}
	if f.InputsKept {
		all = append(all, condition{column: "inputs_kept", is: "inputs_kept = 'kept'"})
	}
	if f.ExitCodeNot != nil && *f.ExitCodeNot == 0 {
		all = append(all, condition{column: "exit_code", is: "exit_code <> 0"})
	}
	return all
}

// ofSessions is the condition of the partial index of sessions.
const ofSessions = "session_id = exec_id"

// statuses returns the statuses of a filter as text.
func statuses(f audit.Filter) []string {
	out := make([]string, len(f.Statuses))
	for i, s := range f.Statuses {
		out[i] = Text(string(s))
	}
	return out
}

// plain reports whether all rows that a filter wants are next to each other in the index of the
// newest, but for their kind, which that index has.
func plain(f audit.Filter) bool {
	return len(equalities(f)) == 0 && len(f.Statuses) < 2 && f.Kind != audit.KindChange && !f.Sessions && !f.InputsKept &&
		f.ExitCodeNot == nil && f.Network == "" && f.Projects == nil && f.Agents == nil && f.Users == nil
}

// lead chooses the condition whose index a list reads: the rarest condition in the part of the
// history that the list is about to read. Without it, a list of the failed execs of a busy token
// would read all of the token's execs to find the few that failed.
//
// The rarest condition is the one with the fewest rows. If every condition has more than most rows,
// it is the condition whose index reaches farthest into the history in that many rows.
//
// end bounds how far a filtered list may read: the list stops at that time, even if no row so far
// meets the other conditions. A zero end means no bound.
func (db Database) lead(ctx context.Context, f audit.Filter, after *audit.Cursor, most int) (best condition, end time.Time, err error) {
	if f.ExecIDs != nil || plain(f) {
		return condition{}, time.Time{}, nil
	}
	all := conditions(f)
	if len(all) == 0 {
		all = []condition{{}} // the index of the newest
	}
	since, until := f.Since, f.Until
	if until.IsZero() {
		until = lastTime
	}
	switch {
	case after == nil:
	case f.OldestFirst && after.CreatedAt.After(since):
		since = after.CreatedAt
	case !f.OldestFirst && after.CreatedAt.Before(until):
		until = after.CreatedAt.Add(time.Microsecond)
	}
	fewest := most + 1
	for i, c := range all {
		n, at, err := db.nearest(ctx, c, since, until, f.OldestFirst, most)
		if err != nil {
			return condition{}, time.Time{}, err
		}
		if i == 0 || n < fewest || n == fewest && at.After(end) == f.OldestFirst {
			best, fewest, end = c, n, at
		}
	}
	if fewest <= most {
		end = time.Time{}
	}
	return best, end, nil
}

// nearest counts the rows with a condition, at most one more than most, and returns the time of the
// last one. For several values it shares most among them, and returns the nearest such time if
// there is one.
func (db Database) nearest(ctx context.Context, c condition, since, until time.Time, oldestFirst bool, most int) (n int, last time.Time,
	err error,
) {
	farthest, order := "min", " DESC"
	if oldestFirst {
		farthest, order = "max", ""
	}
	statement := "SELECT count(*), " + farthest + "(created_at) FROM (SELECT created_at FROM sandbox_execs WHERE "
	if c.is != "" {
		statement += c.is + " AND "
	}
	run := db.List // plans for the values
	if db.Leading {
		run = db.Query // keeps the only plan there is
	}
	all := []Params{{}}
	if len(c.values) > 0 {
		all = nil
		for _, value := range c.values {
			all = append(all, Params{value})
		}
	}
	full := false
	for _, args := range all {
		share := most / len(all)
		from, to := args.Add(db.EncodeTime(roundUp(since))), args.Add(db.EncodeTime(roundUp(until)))
		limit := args.Add(int64(share + 1))
		var rows int
		var at time.Time
		_, _, err := One(ctx, run, func(scan Scan) (struct{}, error) { return struct{}{}, scan(&rows, timeInto{&at}) },
			statement+"created_at >= "+from+" AND created_at < "+to+" ORDER BY created_at"+order+", exec_id"+order+" LIMIT "+limit+
				") AS nearest", args...)
		if err != nil {
			return 0, time.Time{}, err
		}
		n += rows
		if rows > share && (!full || at.After(last) != oldestFirst) {
			last, full = at, true
		}
	}
	if full {
		n = most + 1
	}
	return n, last, nil
}

// Ids before and after the ids of all execs of a time.
const (
	firstID = "00000000-0000-0000-0000-000000000000"
	lastID  = "ffffffff-ffff-ffff-ffff-ffffffffffff"
)

// upTo returns the filter of a list that ends with the execs of a time, and the place after it.
func upTo(f audit.Filter, end time.Time) (audit.Filter, *audit.Cursor) {
	if end.IsZero() {
		return f, nil
	}
	if f.OldestFirst {
		f.Until = end.Add(time.Microsecond)
		return f, &audit.Cursor{CreatedAt: end, ExecID: lastID}
	}
	f.Since = end
	return f, &audit.Cursor{CreatedAt: end, ExecID: firstID}
}
