//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"secbox/audit"
	"secbox/store"
	"secbox/store/storetest/pgcluster"
	"secbox/store/storetest/planprobe"
)

// planProbes is how many tasks' plans are checked: they touch a few pages more or less.
const planProbes = 20

// lists times 50 execs of one task out of many, on both databases, one after the other so that at most one of them takes disk space.
func (b *bench) lists(ctx context.Context) error {
	if b.against != "" {
		return nil
	}
	return errors.Join(b.listsOf(ctx, "sqlite"), b.listsOf(ctx, "postgres"))
}

func (b *bench) listsOf(ctx context.Context, kind string) (err error) {
	dir := filepath.Join(b.dir, kind)
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	state := filepath.Join(dir, "state")
	if err := os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	var url string
	environ := []string{noPool}
	if kind == "postgres" {
		cluster, err := pgcluster.Start(b.tmp) // not below b.dir, which PostgreSQL's user may not pass
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cluster.Remove()) }()
		if url, err = cluster.Database(); err != nil {
			return err
		}
		environ = append(environ, "DATABASE_URL="+url)
	}
	db, err := store.Open(ctx, url, state)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	notes, plan, err := b.fillDatabase(ctx, db)
	if err != nil {
		return because(ctx, err)
	}
	s, err := b.serve(ctx, b.server, dir, environ...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	// One task after the other, none twice in a row, as auditors do.
	byTask := func(list func(ctx context.Context, task string) (int, error)) turn {
		next := 0
		return timed(func(ctx context.Context, _ *subject) error {
			n, err := list(ctx, task(next, b.tasks, b.rows))
			next++
			if err == nil && n != planprobe.ExecsPerTask {
				err = fmt.Errorf("a list has %d execs instead of %d", n, planprobe.ExecsPerTask)
			}
			return err
		})
	}
	return b.compare(ctx, comparison{
		section: "lists", title: fmt.Sprintf("%d execs of a task out of %d, %s", planprobe.ExecsPerTask, b.rows, kind), rounds: b.tasks, least: 20,
		sides: []side{
			{name: "GET /sandbox/execs", unit: ms, turn: byTask(func(ctx context.Context, task string) (int, error) {
				var page struct{ Items []struct{} }
				err := s.call(ctx, http.MethodGet, "/sandbox/execs?limit=50&kind=all&task_id="+task, nil, &page)
				return len(page.Items), err
			})},
			{name: "from the database", unit: ms, turn: byTask(func(ctx context.Context, task string) (int, error) {
				list, _, err := db.Audit().List(ctx, audit.Filter{TaskID: task}, nil, planprobe.ExecsPerTask)
				return len(list), err
			})},
		},
		rows: []row{{what: fmt.Sprintf("%d execs of a task out of %d, %s, p50", planprobe.ExecsPerTask, b.rows, kind)}},
		note: func(c *Comparison) { c.Notes, c.Targets = append(c.Notes, notes...), append(c.Targets, plan) },
	})
}

// fillDatabase fills an empty database and checks its plans: an index, no sort, few pages. Another plan is an error.
func (b *bench) fillDatabase(ctx context.Context, db store.Database) (notes []string, plan Target, err error) {
	probe, ok := db.(planprobe.Database)
	if !ok {
		return nil, plan, fmt.Errorf("a %s cannot be asked for plans", db.Kind())
	}
	b.logf("lists: filling %s with %d rows", db.Kind(), b.rows)
	begun := time.Now()
	if err := planprobe.Fill(ctx, probe, b.rows); err != nil {
		return nil, plan, err
	}
	notes = []string{fmt.Sprintf("loaded in %.0f s", time.Since(begun).Seconds())}
	pages, text := int64(-1), ""
	for i := range planProbes {
		p, err := planprobe.ListByTask(ctx, probe, task(i, planProbes, b.rows))
		if err != nil {
			return nil, plan, fmt.Errorf("the plan is not as promised: %w", err)
		}
		pages, text = max(pages, p.Buffers), p.Text
	}
	notes = append(notes, strings.TrimSpace(text))
	plan = Target{What: "its plan", CoreAPI: "index, no sort", Measured: "index, no sort", Wanted: "index, no sort", Reached: true}
	if pages >= 0 {
		plan.Measured, plan.Wanted = fmt.Sprintf("index, no sort, %d pages", pages), fmt.Sprintf("index, no sort, ≤ %d pages", planprobe.MaxBuffers)
	}
	return notes, plan, nil
}

// task is the i-th of n tasks that are spread evenly over all.
func task(i, n, rows int) string {
	return planprobe.TaskID(int(int64(i) * int64(planprobe.Tasks(rows)) / int64(n)))
}
