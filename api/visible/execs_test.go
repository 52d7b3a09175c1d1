package visible

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/audit"
)

// project is the execs of one project, oldest first; their ids are numbers.
type project struct {
	History
	by []string // the tokens that requested them
}

func (p project) List(_ context.Context, f audit.Filter, after *audit.Cursor, limit int) (items []audit.Record, next *audit.Cursor, err error) {
	at, _ := strconv.Atoi(after.ExecID)
	step := -1
	if f.OldestFirst {
		step = 1
	}
	for i := at + step; i >= 0 && i < len(p.by) && len(items) < limit; i += step {
		items = append(items, audit.Record{ExecID: strconv.Itoa(i), RequestedBy: p.by[i], CreatedAt: time.Unix(int64(i), 0)})
	}
	return items, nil, nil
}

// TestNeighbour: a worker is led to its own execs only, and no further than Near rows are read.
func TestNeighbour(t *testing.T) {
	t.Parallel()
	by := slices.Repeat([]string{"other"}, 400)
	for _, own := range []int{0, 150, 250, 350, 351} {
		by[own] = "own"
	}
	e := Execs{History: project{by: by}}
	for _, c := range []struct {
		role          tokens.Role
		at            string
		before, after string
	}{
		{tokens.Worker, "250", "150", "350"},
		{tokens.Worker, "350", "250", "351"},
		{tokens.Worker, "150", "", "250"}, // 0 is too far
		{tokens.Worker, "0", "", ""},
		{tokens.Auditor, "250", "249", "251"},
		{tokens.Auditor, "0", "", "1"},
	} {
		caller := tokens.Token{ID: "own", Role: c.role}
		for after, want := range map[bool]string{false: c.before, true: c.after} {
			if got, err := e.Neighbour(t.Context(), caller, audit.Record{ExecID: c.at}, after); got != want || err != nil {
				t.Errorf("%s at %s, after %v: %q, %v", c.role, c.at, after, got, err)
			}
		}
	}
}
