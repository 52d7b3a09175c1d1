package planprobe

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"secbox/audit"
)

// MaxBuffers is the most pages that PostgreSQL may touch for a list of 50: one page per row, since
// the rows are far apart, and the pages of the index.
const MaxBuffers = 100

// Plan is a database's plan of a list.
type Plan struct {
	Indexes []string // the indexes it reads
	Sorts   bool     // it sorts rows
	Scans   bool     // it reads the table without an index
	Covered bool     // an index has all columns that it reads
	Buffers int64    // pages touched; PostgreSQL only, else -1
	Rows    int64    // rows returned; PostgreSQL only, else -1
	Text    string   // the steps, one per line
}

// Good returns nil when the plan reads one index in order. maxBuffers 0 means any number of pages.
func (p Plan) Good(maxBuffers int64) error {
	switch {
	case p.Sorts:
		return fmt.Errorf("the list is sorted instead of read in order:\n%s", p.Text)
	case p.Scans:
		return fmt.Errorf("the list reads the whole table:\n%s", p.Text)
	case len(p.Indexes) != 1:
		return fmt.Errorf("the list uses %d indexes instead of one:\n%s", len(p.Indexes), p.Text)
	case maxBuffers > 0 && p.Buffers > maxBuffers:
		return fmt.Errorf("the list touches %d pages, more than %d:\n%s", p.Buffers, maxBuffers, p.Text)
	}
	return nil
}

// ofTransaction are statements that have no plan.
var ofTransaction = regexp.MustCompile(`(?i)^(begin|commit|rollback|savepoint|release|pragma|deallocate)\b`)

// Of returns the plan of the last statement that a call runs.
func Of(ctx context.Context, db Database, call func() error) (Plan, error) {
	var mu sync.Mutex
	var last string
	var args []any
	stop := db.Watch(func(statement string, values []any) {
		if ofTransaction.MatchString(statement) {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		last, args = statement, values
	})
	err := call()
	stop()
	if err != nil {
		return Plan{}, err
	}
	return Explained(ctx, db, last, args)
}

// Explained returns the plan of a query.
func Explained(ctx context.Context, db Database, statement string, args []any) (Plan, error) {
	text, err := db.Explain(ctx, statement, args)
	if err != nil {
		return Plan{}, err
	}
	return parse(db, text)
}

// List returns the plan of a list.
func List(ctx context.Context, db Database, f audit.Filter, after *audit.Cursor, limit int) (Plan, error) {
	return Of(ctx, db, func() error {
		_, _, err := db.Audit().List(ctx, f, after, limit)
		return err
	})
}

// Outlines checks that statistics read only the index of the newest, in its order.
func Outlines(ctx context.Context, db Database, since, until time.Time, most int) (Plan, error) {
	p, err := Of(ctx, db, func() error { return db.Audit().Outlines(ctx, since, until, most, func(audit.Outline) {}) })
	if err != nil {
		return p, err
	}
	if err := p.Good(0); err != nil {
		return p, err
	}
	if !p.Covered || !slices.Equal(p.Indexes, []string{"sandbox_execs_newest"}) {
		return p, fmt.Errorf("statistics read more than the index of the newest:\n%s", p.Text)
	}
	return p, nil
}

// MaxJobBuffers is how many pages PostgreSQL may touch to find the tokens whose jobs wait, twenty
// at a time, or the next job of one.
const MaxJobBuffers = 100

// Activity checks that counts of hours and the slowest execs are read from the index of the newest
// alone. Both sort what they group.
func Activity(ctx context.Context, db Database, since, until time.Time, requestedBy string) error {
	for _, call := range []func() error{
		func() error { return db.Audit().Hours(ctx, since, until, requestedBy, func(audit.HourCount) {}) },
		func() error {
			_, err := db.Audit().Slowest(ctx, since, until, requestedBy, 10_000, 5)
			return err
		},
	} {
		p, err := Of(ctx, db, call)
		if err != nil {
			return err
		}
		if p.Scans || !p.Covered || !slices.Equal(p.Indexes, []string{"sandbox_execs_newest"}) {
			return fmt.Errorf("more than the index of the newest is read:\n%s", p.Text)
		}
	}
	return nil
}

// Changes checks that a page of the events of all execs is read in order by their seq, and that
// nothing before it is read.
func Changes(ctx context.Context, db Database, after int64, limit int) error {
	p, err := Of(ctx, db, func() error {
		_, err := db.Audit().Changes(ctx, after, limit)
		return err
	})
	if err != nil {
		return err
	}
	byKey := slices.Equal(p.Indexes, []string{"sandbox_exec_events_pkey"}) && !p.Scans && p.Buffers <= 2*int64(limit)
	if db.Kind() == "sqlite" {
		byKey = strings.Contains(p.Text, "INTEGER PRIMARY KEY (rowid>?)")
	}
	if p.Sorts || !byKey {
		return fmt.Errorf("changes are not read by the key of their events:\n%s", p.Text)
	}
	return nil
}

// Task checks that the execs of a task are counted in its index alone, in their order.
func Task(ctx context.Context, db Database, taskID, requestedBy string) error {
	p, err := Of(ctx, db, func() error {
		_, err := db.Audit().Task(ctx, taskID, requestedBy, ExecsPerTask)
		return err
	})
	if err == nil && (p.Scans || !p.Covered || !slices.Equal(p.Indexes, []string{"sandbox_execs_task"})) {
		err = fmt.Errorf("more than the index of tasks is read:\n%s", p.Text)
	}
	return err
}

func parse(db Database, text string) (Plan, error) {
	switch db.Kind() {
	case "postgres":
		return parsePostgres(text)
	case "sqlite":
		return parseSQLite(text), nil
	}
	return Plan{}, fmt.Errorf("plans of a %s cannot be read", db.Kind())
}

// ListByTask checks the claim of the bench: listing the 50 execs of one task is an index scan
// without a sort that touches at most MaxBuffers pages.
func ListByTask(ctx context.Context, db Database, taskID string) (Plan, error) {
	p, err := List(ctx, db, audit.Filter{TaskID: taskID}, nil, ExecsPerTask)
	if err != nil {
		return p, err
	}
	if err := p.Good(MaxBuffers); err != nil {
		return p, err
	}
	if !slices.Equal(p.Indexes, []string{"sandbox_execs_task"}) {
		return p, fmt.Errorf("the list uses %v instead of the task's index:\n%s", p.Indexes, p.Text)
	}
	if db.Kind() == "postgres" && p.Rows != ExecsPerTask {
		return p, fmt.Errorf("the list has %d rows instead of %d:\n%s", p.Rows, ExecsPerTask, p.Text)
	}
	return p, nil
}

// requests is a table from which lists read the request of each skill's exec by its key, beside the
// plan of the list.
const requests = "sandbox_exec_requests"

// node is one node of PostgreSQL's plan.
type node struct {
	Type  string  `json:"Node Type"`
	Table string  `json:"Relation Name"`
	Index string  `json:"Index Name"`
	Cond  string  `json:"Index Cond"`
	Rows  float64 `json:"Actual Rows"` // newer servers give a fraction
	Cost  float64 `json:"Total Cost"`
	Hit   int64   `json:"Shared Hit Blocks"`
	Read  int64   `json:"Shared Read Blocks"`
	Plans []node  `json:"Plans"`
}

func parsePostgres(text string) (Plan, error) {
	var explained []struct{ Plan node }
	if err := json.Unmarshal([]byte(text), &explained); err != nil {
		return Plan{}, fmt.Errorf("not a plan: %w: %s", err, text)
	}
	if len(explained) != 1 {
		return Plan{}, fmt.Errorf("not one plan: %s", text)
	}
	top := explained[0].Plan // its counts include the counts of the nodes below
	p := Plan{Buffers: top.Hit + top.Read, Rows: int64(top.Rows)}
	var walk func(n node, indent string)
	walk = func(n node, indent string) {
		if n.Table == requests {
			p.Buffers -= n.Hit + n.Read
			return
		}
		p.Text += fmt.Sprintf("%s%s %s (rows %g, pages %d, cost %g)\n", indent, n.Type, n.Index, n.Rows, n.Hit+n.Read, n.Cost)
		p.Covered = p.Covered || n.Type == "Index Only Scan"
		switch {
		case strings.Contains(n.Type, "Sort"):
			p.Sorts = true
		case n.Type == "Seq Scan":
			p.Scans = true
		case n.Type == "Bitmap Heap Scan", n.Type == "Limit":
		case n.Index != "" && !slices.Contains(p.Indexes, n.Index): // an index is read several times when lists are merged
			p.Indexes = append(p.Indexes, n.Index)
		}
		for _, below := range n.Plans {
			walk(below, indent+"  ")
		}
	}
	walk(top, "")
	return p, nil
}

// parseSQLite reads steps such as "SEARCH sandbox_execs USING INDEX sandbox_execs_task
// (task_id=?)".
func parseSQLite(text string) Plan {
	p := Plan{Text: text, Buffers: -1, Rows: -1}
	var made []string // subqueries, which are no tables
	for step := range strings.Lines(text) {
		words := strings.Fields(step)
		p.Covered = p.Covered || strings.Contains(step, "COVERING INDEX")
		switch {
		case strings.Contains(step, "TEMP B-TREE"):
			p.Sorts = true
		case strings.Contains(step, requests+"_1 (exec_id=?)"):
		case strings.Contains(step, "json_each"), strings.HasPrefix(step, "SCAN CONSTANT ROW"): // the list in a scope filter, and no table
		case len(words) > 1 && (words[0] == "CO-ROUTINE" || words[0] == "MATERIALIZE"):
			made = append(made, words[1])
		case len(words) > 1 && words[0] == "SCAN" && slices.Contains(made, words[1]):
		case len(words) > 0 && (words[0] == "SEARCH" || words[0] == "SCAN"):
			at := slices.Index(words, "INDEX")
			if at < 0 || at+1 >= len(words) {
				p.Scans = true
				continue
			}
			if index := words[at+1]; !slices.Contains(p.Indexes, index) { // an index is read several times when lists are merged
				p.Indexes = append(p.Indexes, index)
			}
		}
	}
	return p
}
