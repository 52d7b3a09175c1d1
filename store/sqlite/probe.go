package sqlite

import (
	"context"
	"database/sql"
	"iter"
	"strings"

	"secbox/audit"
	"secbox/store/internal/row"
)

// loadBatch is how many rows Load writes in one transaction.
const loadBatch = 5000

// Load writes many rows quickly, without events: for measuring only.
func (db *DB) Load(ctx context.Context, rows iter.Seq[audit.Record]) error {
	next, stop := iter.Pull(rows)
	defer stop()
	for more := true; more; {
		tx, err := db.write.BeginTx(ctx, nil)
		if err != nil {
			return interpretError(err)
		}
		if more, err = loadSome(ctx, tx, next); err == nil {
			err = tx.Commit()
		}
		if err != nil {
			tx.Rollback()
			return interpretError(err)
		}
	}
	return nil
}

func loadSome(ctx context.Context, tx *sql.Tx, next func() (audit.Record, bool)) (more bool, err error) {
	insert, err := tx.PrepareContext(ctx, "INSERT INTO sandbox_execs ("+row.ColumnList+") VALUES ("+row.Params(len(row.Columns()))+")")
	if err != nil {
		return false, err
	}
	defer insert.Close()
	for range loadBatch {
		r, ok := next()
		if !ok {
			return false, nil
		}
		if r, err = row.Clean(r); err != nil {
			return false, err
		}
		values, err := row.Values(r, stamp)
		if err != nil {
			return false, err
		}
		if _, err := insert.ExecContext(ctx, values...); err != nil {
			return false, err
		}
	}
	return true, nil
}

// ExplainList is the plan of a list as EXPLAIN QUERY PLAN tells it, one step per line.
func (db *DB) ExplainList(ctx context.Context, f audit.Filter, after *audit.Cursor, limit int) (string, error) {
	statement, args := row.ListQuery(dialect(), f, after, limit)
	var steps []string
	err := db.query(ctx, func(scan func(...any) error) error {
		var id, parent, unused int
		var step string
		err := scan(&id, &parent, &unused, &step)
		steps = append(steps, step)
		return err
	}, "EXPLAIN QUERY PLAN "+statement, args...)
	return strings.Join(steps, "\n"), err
}
