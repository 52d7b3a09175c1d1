package postgres

import (
	"context"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"secbox/admin"
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

// loadBatch is how many execs LoadHistories writes in one transaction.
const loadBatch = 20_000

// LoadHistories writes many execs with their events, which have the times of their records, and updates the planner's statistics: for measuring
// only.
func (db *DB) LoadHistories(ctx context.Context, execs iter.Seq2[audit.Record, audit.Record]) error {
	next, stop := iter.Pull2(execs)
	defer stop()
	for more := true; more; {
		var opened, ended [][]any
		for len(ended) < loadBatch {
			var o, e audit.Record
			if o, e, more = next(); !more {
				break
			}
			_, before, err := row.InsertArgs(o, encodeTime)
			if err != nil {
				return err
			}
			_, after, err := row.InsertArgs(e, encodeTime)
			if err != nil {
				return err
			}
			opened, ended = append(opened, before), append(ended, after)
		}
		if err := db.loadHistories(ctx, opened, ended); err != nil {
			return interpretError(err)
		}
	}
	return interpretError(pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SET LOCAL statement_timeout = 0; ANALYZE sandbox_execs, sandbox_exec_events")
		return err
	}))
}

// loadHistories writes execs by the values of their columns.
func (db *DB) loadHistories(ctx context.Context, opened, ended [][]any) error {
	return pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = 0; CREATE TEMP TABLE opened (LIKE sandbox_execs) ON COMMIT DROP"); err != nil {
			return err
		}
		for table, values := range map[string][][]any{"opened": opened, "sandbox_execs": ended} {
			if _, err := tx.CopyFrom(ctx, pgx.Identifier{table}, row.Columns(), pgx.CopyFromRows(values)); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, "INSERT INTO sandbox_exec_events (exec_id, kind, at, node_id, data)"+
			" SELECT o.exec_id, k.kind, k.at, o.node_id, k.data::text FROM opened o JOIN sandbox_execs e USING (exec_id), LATERAL (VALUES"+
			" (1, 'created', o.created_at, to_jsonb(o)), (2, 'started', o.started_at, to_jsonb(o)), (3, 'ended', e.ended_at, to_jsonb(e))) AS k (n, kind, at, data)"+
			" WHERE k.kind <> 'started' OR o.status = 'running' ORDER BY o.exec_id, k.n")
		return err
	})
}

// ExplainList runs a list and returns its plan from EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON).
func (db *DB) ExplainList(ctx context.Context, f audit.Filter, after *audit.Cursor, limit int) (string, error) {
	statement, args, err := row.Records{Database: db.statements()}.ListStatement(ctx, f, after, limit)
	if err != nil {
		return "", err
	}
	return db.explain(ctx, statement, args)
}

// ExplainOutlines runs the query of statistics and returns its plan.
func (db *DB) ExplainOutlines(ctx context.Context, since, until time.Time, most int) (string, error) {
	statement, args := db.statements().OutlinesQuery(since, until, most)
	return db.explain(ctx, statement, args)
}

// ExplainHours returns the plan of the counts of hours.
func (db *DB) ExplainHours(ctx context.Context, since, until time.Time, requestedBy string) (string, error) {
	statement, args := db.statements().HoursQuery(since, until, requestedBy)
	return db.explain(ctx, statement, args)
}

// ExplainSlowest returns the plan of the list of the slowest execs.
func (db *DB) ExplainSlowest(ctx context.Context, since, until time.Time, requestedBy string, most, limit int) (string, error) {
	statement, args := db.statements().SlowestQuery(since, until, requestedBy, most, limit)
	return db.explain(ctx, statement, args)
}

// ExplainJobs returns the plans of the search for the next job of a token, and for those that have expired.
func (db *DB) ExplainJobs(ctx context.Context, token string) (tokens, oldest, expired string, err error) {
	if tokens, err = db.explain(ctx, row.JobTokens, []any{int64(1)}); err != nil {
		return "", "", "", err
	}
	if oldest, err = db.explain(ctx, row.OldestJob, []any{int64(1), token}); err != nil {
		return "", "", "", err
	}
	statement, args := db.statements().ExpiredQuery(50)
	expired, err = db.explain(ctx, statement, args)
	return tokens, oldest, expired, err
}

// ExplainEntries returns the plan of a list of the registry's entries.
func (db *DB) ExplainEntries(ctx context.Context, q registry.Query, after string, limit int) (string, error) {
	statement, args := db.statements().EntriesQuery(q, after, limit)
	return db.explain(ctx, statement, args)
}

// ExplainAdminEvents returns the plan of a list of administrative events.
func (db *DB) ExplainAdminEvents(ctx context.Context, f admin.Filter, after *admin.Cursor, limit int) (string, error) {
	statement, args := db.statements().EventsQuery(f, after, limit)
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
