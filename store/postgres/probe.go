package postgres

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"secbox/audit"
	"secbox/store/internal/row"
)

// Load writes many rows quickly, without events, and updates the planner's statistics: for
// measuring only.
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

// LoadHistories writes many execs, and their events, which have the times of their records, and
// updates the planner's statistics: for measuring only. The first execs get no events. Meanwhile
// the lists have no indexes; creating them at the end is several times faster than updating them.
func (db *DB) LoadHistories(ctx context.Context, withoutEvents int, execs iter.Seq2[audit.Record, audit.Record]) error {
	indexes, err := db.dropIndexes(ctx)
	if err != nil {
		return err
	}
	next, stop := iter.Pull2(execs)
	defer stop()
	for more, n := true, 0; more && err == nil; {
		var opened, ended [][]any
		for len(ended) < loadBatch && err == nil {
			var o, e audit.Record
			if o, e, more = next(); !more {
				break
			}
			var before, after []any
			if _, after, err = row.InsertArgs(e, encodeTime); err == nil && n >= withoutEvents {
				_, before, err = row.InsertArgs(o, encodeTime)
				opened = append(opened, before)
			}
			ended = append(ended, after)
			n++
		}
		if err == nil {
			err = db.loadHistories(ctx, opened, ended)
		}
	}
	return interpretError(errors.Join(err, db.settle(context.WithoutCancel(ctx), indexes)))
}

// settle creates indexes, and leaves the tables as autovacuum leaves them behind inserts.
func (db *DB) settle(ctx context.Context, indexes []string) error {
	return db.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		// these take longer than a statement may
		if _, err := conn.Exec(ctx, "SET statement_timeout = 0; SET maintenance_work_mem = '256MB'"); err != nil {
			return err
		}
		defer conn.Conn().Close(ctx)
		for _, statement := range append(indexes, "VACUUM (ANALYZE) sandbox_execs, sandbox_exec_events") {
			if _, err := conn.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}

// dropIndexes removes the indexes of sandbox_execs but its primary key, and returns the statements
// that create them again.
func (db *DB) dropIndexes(ctx context.Context) (again []string, err error) {
	var drop []string
	err = db.run(ctx, func(scan row.Scan) error {
		var name, statement string
		err := scan(&name, &statement)
		drop, again = append(drop, name), append(again, statement)
		return err
	}, "SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'sandbox_execs'::regclass AND NOT "+
		"indisprimary")
	if err == nil {
		err = db.run(ctx, nil, "DROP INDEX "+strings.Join(drop, ", "))
	}
	return again, err
}

// loadHistories writes execs by the values of their columns.
func (db *DB) loadHistories(ctx context.Context, opened, ended [][]any) error {
	return pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
		if _,
			err := tx.Exec(ctx,
			"SET LOCAL statement_timeout = 0; CREATE TEMP TABLE opened (LIKE sandbox_execs) ON COMMIT DROP"); err != nil {
			return err
		}
		for table, values := range map[string][][]any{"opened": opened, "sandbox_execs": ended} {
			if _, err := tx.CopyFrom(ctx, pgx.Identifier{table}, row.Columns(), pgx.CopyFromRows(values)); err != nil {
				return err
			}
		}
		if len(opened) == 0 {
			return nil
		}
		_, err := tx.Exec(ctx, "INSERT INTO sandbox_exec_events (exec_id, kind, at, node_id, data)"+
			" SELECT o.exec_id, k.kind, k.at, o.node_id, k.data::text FROM opened o JOIN sandbox_execs e USING (exec_id), LATERAL (VALUES"+
			" (1, 'created', o.created_at, to_jsonb(o)), (2, 'started', o.started_at, to_jsonb(o)), (3, 'ended', e.ended_at, "+
			"to_jsonb(e))) AS k (n, kind, at, data)"+
			" WHERE k.kind <> 'started' OR o.status = 'running' ORDER BY o.exec_id, k.n")
		return err
	})
}

// tracer tells the watch of each statement.
type tracer struct{ watch *row.Watch }

func (t tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	t.watch.Saw(q.SQL, q.Args)
	return ctx
}

func (t tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, b pgx.TraceBatchStartData) context.Context {
	for _, q := range b.Batch.QueuedQueries {
		if q.SQL != transactionSettings {
			t.watch.Saw(q.SQL, q.Arguments)
		}
	}
	return ctx
}

func (tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (tracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// Watch calls see with each statement that runs, until stop is called. Calls may be concurrent.
func (db *DB) Watch(see func(statement string, args []any)) (stop func()) {
	return db.watch.Begin(func(statement string, args []any) {
		if len(args) > 0 {
			if _, ok := args[0].(pgx.QueryExecMode); ok { // an option, which is no parameter
				args = args[1:]
			}
		}
		see(statement, args)
	})
}

// Explain runs a query and returns its plan from EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON).
func (db *DB) Explain(ctx context.Context, statement string, args []any) (plan string, err error) {
	err = db.inTx(ctx, func(run row.Run) error {
		plan, _, err = row.One(ctx, run, row.Value[string],
			"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+statement, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...)
		return err
	})
	return plan, err
}

// ExplainAtBest returns two plans of a statement, which does not run: for its parameters, and for
// any. The planner avoids scans of tables and sorts at any cost, so those that are left need
// another index.
func (db *DB) ExplainAtBest(ctx context.Context, statement string, args []any) (plans []string, err error) {
	const name = "explained"
	err = db.call(ctx, func(ctx context.Context) error {
		plans = nil
		return pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off; SET LOCAL enable_hashjoin = off; SET "+
				"LOCAL enable_mergejoin = off; SET LOCAL plan_cache_mode = force_generic_plan"); err != nil {
				return err
			}
			prepared, err := tx.Prepare(ctx, name, statement)
			if err != nil {
				return err
			}
			defer tx.Conn().Deallocate(context.WithoutCancel(ctx), name) //nolint:errcheck // the connection is only of use without it
			generic := "EXPLAIN (FORMAT JSON) EXECUTE " + name
			if n := len(prepared.ParamOIDs); n > 0 {
				generic += "(NULL" + strings.Repeat(", NULL", n-1) + ")"
			}
			for _, q := range []struct {
				explain string
				args    []any
			}{{"EXPLAIN (FORMAT JSON) " + statement, append([]any{pgx.QueryExecModeCacheDescribe}, args...)}, {generic, nil}} {
				var plan string
				if err := tx.QueryRow(ctx, q.explain, q.args...).Scan(&plan); err != nil {
					return err
				}
				plans = append(plans, plan)
			}
			return nil
		})
	})
	return plans, err
}
