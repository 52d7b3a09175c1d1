package row

import (
	"context"
	"time"

	"secbox/audit"
)

// sparse is how many rows of a list are looked at without harm.
const sparse = 1000

// lead returns the column whose index a list is read by: of the filter's conditions that have one, that of the rarest in the part of the history that the
// list is about to read. Else a list of a token with many execs would look at each of them to find the few that failed. A condition is the
// rarer the farther away its sparse-th row is. With statistics, the database chooses itself.
func (db Records) lead(ctx context.Context, f audit.Filter, after *audit.Cursor) (string, error) {
	type condition struct {
		column, is string
		values     []string // one of them
	}
	var conditions []condition
	for _, eq := range equalities(f) {
		if eq.scattered {
			continue
		}
		is := eq.column + " = $1"
		if eq.partial != "" {
			is += " AND " + eq.partial
		}
		conditions = append(conditions, condition{eq.column, is, []string{eq.value}})
	}
	if len(f.Statuses) > 1 {
		c := condition{column: "status", is: "status = $1"}
		for _, s := range f.Statuses {
			c.values = append(c.values, string(s))
		}
		conditions = append(conditions, c)
	}
	if f.Kind == audit.KindChange {
		conditions = append(conditions, condition{"kind", "kind = 'change' AND $1 = ''", []string{""}}) // the condition of an index, repeated literally
	}
	if !db.Leading || len(conditions) < 2 {
		return "", nil
	}

	since, until, order := f.Since, f.Until, " DESC"
	if until.IsZero() {
		until = lastTime
	}
	switch {
	case f.OldestFirst:
		order = ""
		if after != nil && after.CreatedAt.After(since) {
			since = after.CreatedAt
		}
	case after != nil && after.CreatedAt.Before(until):
		until = after.CreatedAt.Add(time.Microsecond)
	}
	from, to := db.EncodeTime(roundUp(since)), db.EncodeTime(roundUp(until))
	best, farthest := "", time.Time{}
	nearer := func(a, b time.Time) bool { return a.After(b) != f.OldestFirst }
	for _, c := range conditions {
		nearest, full := time.Time{}, false
		for _, value := range c.values {
			at, found, err := One(ctx, db.Query, scanTime,
				"SELECT created_at FROM sandbox_execs WHERE "+c.is+" AND created_at >= $2 AND created_at < $3 ORDER BY created_at"+order+", exec_id"+order+" LIMIT 1 OFFSET $4",
				Text(value), from, to, int64(sparse))
			if err != nil {
				return "", err
			}
			if found && (!full || nearer(at, nearest)) {
				nearest, full = at, true
			}
		}
		if !full {
			return c.column, nil
		}
		if best == "" || nearer(farthest, nearest) {
			best, farthest = c.column, nearest
		}
	}
	return best, nil
}

func scanTime(scan Scan) (at time.Time, err error) {
	err = scan(timeInto{&at})
	return at, err
}
