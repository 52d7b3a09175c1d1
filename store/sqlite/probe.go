package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"strings"
	"time"

	"secbox/admin"
	"secbox/audit"
	"secbox/catalog"
	"secbox/registry"
	"secbox/store/internal/row"
)

// loadBatch is how many rows Load writes in one transaction.
const loadBatch = 20_000

// Load writes many rows quickly, without events: for measuring only. Meanwhile nothing is flushed to the disk and the lists have no
// indexes; creating them at the end is several times faster than updating them.
func (db *DB) Load(ctx context.Context, rows iter.Seq[audit.Record]) error {
	return db.load(ctx, func(yield func(*audit.Record, audit.Record) bool) {
		for r := range rows {
			if !yield(nil, r) {
				return
			}
		}
	})
}

// LoadHistories writes many execs with their events, which have the times of their records, as Load writes rows.
func (db *DB) LoadHistories(ctx context.Context, execs iter.Seq2[audit.Record, audit.Record]) error {
	return db.load(ctx, func(yield func(*audit.Record, audit.Record) bool) {
		for opened, ended := range execs {
			if !yield(&opened, ended) {
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
	if _, err := conn.ExecContext(ctx, "PRAGMA synchronous = OFF; PRAGMA cache_size = -65536"); err != nil { // KiB
		return err
	}
	defer func() {
		back := strings.Join(indexes, ";") + "; PRAGMA synchronous = FULL; PRAGMA cache_size = -2000; PRAGMA wal_checkpoint(TRUNCATE)"
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

// dropIndexes removes the indexes of sandbox_execs that have a name, and returns the statements that create them again.
func dropIndexes(ctx context.Context, conn *sql.Conn) (again []string, err error) {
	var drop []string
	rows, err := conn.QueryContext(ctx, "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'sandbox_execs' AND sql IS NOT NULL")
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

// ExplainList returns the plan of a list from EXPLAIN QUERY PLAN, one step per line.
func (db *DB) ExplainList(ctx context.Context, f audit.Filter, after *audit.Cursor, limit int) (string, error) {
	statement, args, err := row.Records{Database: db.statements()}.ListStatement(ctx, f, after, limit)
	if err != nil {
		return "", err
	}
	return db.explain(ctx, statement, args)
}

// ExplainOutlines returns the plan of the query of statistics.
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
	steps, err := row.All(ctx, db.query, func(scan row.Scan) (step string, err error) {
		var id, parent, unused int
		err = scan(&id, &parent, &unused, &step)
		return step, err
	}, "EXPLAIN QUERY PLAN "+statement, args...)
	return strings.Join(steps, "\n"), err
}
