package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"secbox/audit"
	"secbox/statedir"
	"secbox/store"
	"secbox/store/planprobe"
	"secbox/store/storetest/pgcluster"
)

// planProbes is how many tasks' plans are looked at: the pages that a plan touches differ a little from task to task.
const planProbes = 20

// leastTasks is how many lists must be timed when the time limit ends the timing.
const leastTasks = 20

// Listing is what the lists of one database cost.
type Listing struct {
	Database string  `json:"database"`
	Rows     int     `json:"rows"`
	LoadedIn float64 `json:"loaded_in_seconds"`
	Plan     string  `json:"plan"`      // of one task, as the database tells it
	Pages    int64   `json:"pages_max"` // the most that the plan of a task touched; -1 where the database does not tell
	Good     bool    `json:"plan_is_good"`
	Store    Summary `json:"store"` // asked of the database by this process
	HTTP     Summary `json:"http"`  // GET /sandbox/execs?task_id=… of a core-api on that database
}

var errPlan = errors.New("the plan is not what is promised")

// lists measures both databases, one after the other so that at most one of them takes disk space.
func lists(ctx context.Context, o Options, dir string) (out []Listing, err error) {
	var errs []error
	for _, kind := range []string{"sqlite", "postgres"} {
		l, err := listsOf(ctx, o, kind, filepath.Join(dir, kind))
		if l != nil {
			out = append(out, *l)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", kind, err))
		}
	}
	return out, errors.Join(errs...)
}

func listsOf(ctx context.Context, o Options, kind, dir string) (l *Listing, err error) {
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	state := filepath.Join(dir, "state")
	claim, err := statedir.Open(state) // makes it, as the server would
	if err != nil {
		return nil, err
	}
	if err := claim.Close(); err != nil {
		return nil, err
	}
	var url string
	if kind == "postgres" {
		// Beside our own folder, not in it: the server runs as another user, who may not pass ours.
		cluster, err := pgcluster.Start(o.Dir)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, cluster.Remove()) }()
		if url, err = cluster.Database(); err != nil {
			return nil, err
		}
	}
	if l, err = fillAndList(ctx, o, url, state); err != nil {
		return l, err
	}
	var more []string
	if url != "" {
		more = append(more, "DATABASE_URL="+url)
	}
	s, err := serve(ctx, o, dir, more...)
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	l.HTTP, err = timeLists(ctx, o, func(ctx context.Context, task string) (int, error) {
		var page struct {
			Items []struct {
				TaskID string `json:"task_id"`
			} `json:"items"`
		}
		err := s.call(ctx, http.MethodGet, "/sandbox/execs?limit=50&task_id="+task, nil, &page)
		return len(page.Items), err
	})
	return l, err
}

// fillAndList fills an empty database, looks at its plans, and times its lists.
func fillAndList(ctx context.Context, o Options, url, state string) (l *Listing, err error) {
	db, err := store.Open(ctx, url, state)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	probe, ok := db.(planprobe.Database)
	if !ok {
		return nil, fmt.Errorf("plans of a %s cannot be asked for", db.Kind())
	}
	o.say("lists: filling %s with %d rows", db.Kind(), o.Rows)
	l = &Listing{Database: db.Kind(), Rows: o.Rows, Pages: -1}
	begun := time.Now()
	if err := planprobe.Fill(ctx, probe, o.Rows); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	l.LoadedIn = time.Since(begun).Seconds()
	o.say("lists: %d lists of %d execs by task", o.Tasks, planprobe.ExecsPerTask)
	for i := range planProbes {
		plan, err := planprobe.ListByTask(ctx, probe, task(i, planProbes, o.Rows))
		l.Plan, l.Pages = plan.Text, max(l.Pages, plan.Buffers)
		if err != nil {
			return l, fmt.Errorf("%w: %w", errPlan, err)
		}
	}
	l.Good = true
	l.Store, err = timeLists(ctx, o, func(ctx context.Context, task string) (int, error) {
		list, err := db.Audit().List(ctx, audit.Filter{TaskID: task}, nil, planprobe.ExecsPerTask)
		return len(list), err
	})
	return l, err
}

// task is the i-th of n tasks that lie evenly among all.
func task(i, n, rows int) string {
	all := planprobe.Tasks(rows)
	return planprobe.TaskID(int(int64(i) * int64(all) / int64(n)))
}

// timeLists lists one task after the other, none twice in a row, as auditors do.
func timeLists(ctx context.Context, o Options, list func(ctx context.Context, task string) (int, error)) (Summary, error) {
	var times []time.Duration
	for i := range o.Tasks {
		begun := time.Now()
		n, err := list(ctx, task(i, o.Tasks, o.Rows))
		took := time.Since(begun)
		switch {
		case ctx.Err() != nil && errors.Is(context.Cause(ctx), errTimeLimit) && i >= leastTasks:
			return summarise(times), nil
		case ctx.Err() != nil:
			return Summary{}, context.Cause(ctx)
		case err != nil:
			return Summary{}, err
		case n != planprobe.ExecsPerTask:
			return Summary{}, fmt.Errorf("a list has %d execs instead of %d", n, planprobe.ExecsPerTask)
		}
		times = append(times, took)
	}
	return summarise(times), nil
}
