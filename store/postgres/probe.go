package postgres

import (
	"context"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"secbox/audit"
	"secbox/catalog"
	"secbox/registry"
	"secbox/store/internal/row"
)

// Load writes many rows quickly, without events, and updates the planner's statistics: for measuring only.
func (db *DB) Load(ctx context.Context, rows iter.Seq[audit.Record]) error {
	next, stop := iter.Pull(rows)
	defer stop()
	source := pgx.CopyFromFunc(func() ([]any, error) {
		r, ok := next()
		if !ok {
			return nil, nil
		}
		_, values, err := row.InsertArgs(r, encodeTime)
		return values, err
	})
	return interpretError(pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = 0"); err != nil {
			return err
		}
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"sandbox_execs"}, row.Columns(), source); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "ANALYZE sandbox_execs")
		return err
	}))
}

// ExplainList runs a list and returns its plan from EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON).
func (db *DB) ExplainList(ctx context.Context, f audit.Filter, after *audit.Cursor, limit int) (string, error) {
	statement, args := db.statements().ListQuery(f, after, limit)
	return db.explain(ctx, statement, args)
}

// ExplainOutlines runs the query of statistics and returns its plan.
func (db *DB) ExplainOutlines(ctx context.Context, since, until time.Time, most int) (string, error) {
	statement, args := db.statements().OutlinesQuery(since, until, most)
	return db.explain(ctx, statement, args)
}

// ExplainEntries returns the plan of a list of the registry's entries.
func (db *DB) ExplainEntries(ctx context.Context, q registry.Query, after string, limit int) (string, error) {
	statement, args := db.statements().EntriesQuery(q, after, limit)
	return db.explain(ctx, statement, args)
}

// ExplainRegistryEvents returns the plan of a list of the registry's events.
func (db *DB) ExplainRegistryEvents(ctx context.Context, kind catalog.Kind, name string, after *registry.Cursor, limit int) (string, error) {
	statement, args := db.statements().RegistryEventsQuery(kind, name, after, limit)
	return db.explain(ctx, statement, args)
}

func (db *DB) explain(ctx context.Context, statement string, args []any) (string, error) {
	plan, _, err := row.One(ctx, db.run, row.Value[string],
		"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+statement, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...)
	return plan, err
}
