package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"strings"
	"time"

	"secbox/audit"
	"secbox/store/internal/row"
)

// loadBatch is how many rows Load writes in one transaction.
const loadBatch = 20_000

// Load writes many rows quickly, without events: for measuring only. Meanwhile nothing is flushed
// to the disk and the lists have no indexes; creating them at the end is several times faster than
// updating them.
func (db *DB) Load(ctx context.Context, rows iter.Seq[audit.Record]) error {
	return db.load(ctx, func(yield func(*audit.Record, audit.Record) bool) {
		for r := range rows {
			if !yield(nil, r) {
				return
			}
		}
	})
}

// LoadHistories writes many execs as Load writes rows, and their events, which have the times of
// their records; the first ones get none.
func (db *DB) LoadHistories(ctx context.Context, withoutEvents int, execs iter.Seq2[audit.Record, audit.Record]) error {
	return db.load(ctx, func(yield func(*audit.Record, audit.Record) bool) {
		n := 0
		for opened, ended := range execs {
			var with *audit.Record
			if n++; n > withoutEvents {
				with = &opened
			}
			if !yield(with, ended) {
				return
			}
		}
	})
}

// load writes rows as they ended, with their events if it is known how they were opened.
func (db *DB) load(ctx context.Context, execs iter.Seq2[*audit.Record, audit.Record]) error {
	return interpretError(db.writer.exclusively(ctx, func(conn *sql.Conn) error { return load(ctx, conn, execs) }))
}

func load(ctx context.Context, conn *sql.Conn, execs iter.Seq2[*audit.Record, audit.Record]) (err error) {
	indexes, err := dropIndexes(ctx, conn)
	if err != nil {
		return err
	}
	// The rows are ours, and as they must be. Creating an index reads the whole table: mapped,
	// without a copy of each page. KiB
	if _,
		err := conn.ExecContext(ctx,
		"PRAGMA synchronous = OFF; PRAGMA cache_size = -65536; PRAGMA ignore_check_constraints = ON"); err != nil {
		return err
	}
	defer func() {
		back := "PRAGMA wal_checkpoint(TRUNCATE); PRAGMA mmap_size = 17179869184;" + strings.Join(indexes, ";") +
			"; PRAGMA mmap_size = 0; PRAGMA synchronous = FULL; PRAGMA cache_size = -2000; PRAGMA ignore_check_constraints = OFF; PRAGMA " +
			"wal_checkpoint(TRUNCATE)"
		_, backErr := conn.ExecContext(context.WithoutCancel(ctx), back)
		err = errors.Join(err, backErr)
	}()

	next, stop := iter.Pull2(execs)
	defer stop()
	for more := true; more; {
		tx, err := conn.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if more, err = loadSome(ctx, tx, next); err == nil {
			err = tx.Commit()
		}
		if err != nil {
			return errors.Join(err, tx.Rollback())
		}
		if _, err := conn.ExecContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)"); err != nil { // else the log becomes as large as the database
			return err
		}
	}
	return nil
}

// dropIndexes removes the indexes of sandbox_execs that have a name, and returns the statements
// that create them again.
func dropIndexes(ctx context.Context, conn *sql.Conn) (again []string, err error) {
	var drop []string
	rows,
		err := conn.QueryContext(ctx,
		"SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'sandbox_execs' AND sql IS NOT NULL")
	err = every(rows, err, func(scan row.Scan) error {
		var name, statement string
		err := scan(&name, &statement)
		drop, again = append(drop, "DROP INDEX "+name), append(again, statement)
		return err
	})
	if err == nil {
		_, err = conn.ExecContext(ctx, strings.Join(drop, ";"))
	}
	return again, err
}

func loadSome(ctx context.Context, tx *sql.Tx, next func() (*audit.Record, audit.Record, bool)) (more bool, err error) {
	exec, err := tx.PrepareContext(ctx, insertExec)
	if err != nil {
		return false, err
	}
	defer exec.Close()
	event, err := tx.PrepareContext(ctx, insertEvent)
	if err != nil {
		return false, err
	}
	defer event.Close()
	insertEvents := func(r audit.Record, at time.Time, kinds ...string) error {
		data, err := row.EventData(r)
		for _, kind := range kinds {
			if err == nil {
				_, err = event.ExecContext(ctx, r.ExecID, kind, encodeTime(at), r.NodeID, data)
			}
		}
		return err
	}
	for range loadBatch {
		opened, ended, ok := next()
		if !ok {
			return false, nil
		}
		ended, values, err := row.InsertArgs(ended, encodeTime)
		if err != nil {
			return false, err
		}
		if _, err := exec.ExecContext(ctx, values...); err != nil {
			return false, err
		}
		if opened == nil {
			continue
		}
		r, _, err := row.InsertArgs(*opened, encodeTime)
		if err == nil {
			err = insertEvents(r, r.CreatedAt, row.OpeningEvents(r.Status)...)
		}
		if err == nil && !r.Status.Final() {
			err = insertEvents(ended, ended.EndedAt, string(audit.EventEnded))
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// Watch calls see with each statement that runs, until stop is called. Calls may be concurrent.
func (db *DB) Watch(see func(statement string, args []any)) (stop func()) { return db.watch.Begin(see) }

// Explain returns the plan of a statement from EXPLAIN QUERY PLAN, one step per line.
func (db *DB) Explain(ctx context.Context, statement string, args []any) (string, error) {
	steps, err := row.All(ctx, db.query, func(scan row.Scan) (step string, err error) {
		var id, parent, unused int
		err = scan(&id, &parent, &unused, &step)
		return step, err
	}, "EXPLAIN QUERY PLAN "+statement, args...)
	return strings.Join(steps, "\n"), err
}

// ExplainAtBest returns the plan of a statement. Without statistics there is one.
func (db *DB) ExplainAtBest(ctx context.Context, statement string, args []any) ([]string, error) {
	plan, err := db.Explain(ctx, statement, args)
	return []string{plan}, err
}
