package postgres

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"secbox/audit"
	"secbox/fault"
	"secbox/store/internal/row"
)

// records implements audit.Store.
//
// The statement that changes a row also inserts the event, from the changed row, so both are one transaction and the event holds exactly
// the row at that time.
type records struct{ db *DB }

// The statements that write. They are constant, so that pgx keeps them prepared.
var (
	// insertExec inserts a row and its events, or nothing when the key is taken. Its last parameter is the kinds of the events.
	insertExec = "WITH ins AS (INSERT INTO sandbox_execs (" + row.ColumnList + ") VALUES (" + row.InsertParams + ")" +
		" ON CONFLICT (requested_by, idempotency_key) WHERE idempotency_key <> '' DO NOTHING RETURNING *)," +
		" ev AS (INSERT INTO sandbox_exec_events (exec_id, kind, at, node_id, data)" +
		" SELECT ins.exec_id, k.kind, statement_timestamp(), ins.node_id, CASE k.kind WHEN 'created' THEN to_jsonb(ins) ELSE " + brief("ins") + " END" +
		" FROM ins, unnest($" + strconv.Itoa(len(row.Columns())+1) + "::text[]) WITH ORDINALITY AS k (kind, n) ORDER BY k.n)" +
		" SELECT count(*) FROM ins"

	startQueued = "WITH up AS (UPDATE sandbox_execs SET status = 'running', " + row.StartSet +
		" WHERE exec_id = $1 AND status = 'queued' RETURNING *)," +
		" ev AS (INSERT INTO sandbox_exec_events (exec_id, kind, at, node_id, data)" +
		" SELECT exec_id, 'started', statement_timestamp(), node_id, " + brief("up") + " FROM up)" +
		" SELECT count(*) FROM up"

	endOpen      = end("'queued', 'running'")
	endOrCorrect = end("'queued', 'running', 'lost'")

	selectExecs = "SELECT " + row.ColumnList + " FROM sandbox_execs WHERE "
)

// end is the statement that ends a row that has one of these statuses. It locks the row before it reads the status, so that of two
// endings that arrive together the second sees the first.
func end(statuses string) string {
	return "WITH cur AS (SELECT exec_id, status FROM sandbox_execs WHERE exec_id = $1 FOR UPDATE)," +
		" up AS (UPDATE sandbox_execs AS e SET " + row.CloseSet +
		" FROM cur WHERE e.exec_id = cur.exec_id AND cur.status IN (" + statuses + ") RETURNING e.*)," +
		" ev AS (INSERT INTO sandbox_exec_events (exec_id, kind, at, node_id, data)" +
		" SELECT up.exec_id, CASE cur.status WHEN 'lost' THEN 'corrected' ELSE 'ended' END, statement_timestamp(), up.node_id, " + brief("up") +
		" FROM up JOIN cur USING (exec_id))" +
		" SELECT count(*) FROM cur"
}

// brief is audit.Record.Brief of a row: its large lists are empty, and their descriptions say so.
func brief(row string) string {
	return "CASE WHEN " + row + ".large_lists = '{}' THEN to_jsonb(" + row + ") ELSE (SELECT to_jsonb(" + row + ") || jsonb_object_agg(l.key, '[]'::jsonb)" +
		" || jsonb_build_object('large_lists', jsonb_object_agg(l.key, l.value || '{\"kept\": 0}')) FROM jsonb_each(" + row + ".large_lists) AS l) END"
}

// Open implements audit.Store.
func (s records) Open(ctx context.Context, r audit.Record) (*audit.Record, error) {
	r, values, err := row.InsertArgs(r, encodeTime)
	if err != nil {
		return nil, err
	}
	var inserted int
	_, err = s.db.one(ctx, func(scan func(...any) error) error {
		err := scan(&inserted)
		if duplicate(err) {
			return usedTwice(err)
		}
		return err
	}, insertExec, append(values, row.OpeningEvents(r.Status))...)
	if err != nil || inserted == 1 {
		return nil, err
	}

	// The holder of the key has committed: ON CONFLICT waited for it.
	holder, found, err := s.get(ctx, "requested_by = $1 AND idempotency_key = $2 AND idempotency_key <> ''", r.RequestedBy, r.IdempotencyKey)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, fault.New(fault.DatabaseUnavailable, "the exec with this idempotency key has just been removed; try again")
	case holder.ExecID == r.ExecID:
		return nil, usedTwice(nil)
	}
	return &holder, nil
}

func usedTwice(cause error) error {
	return fault.Wrap(fault.Internal, cause, "an exec with this id exists already")
}

// Start implements audit.Store.
func (s records) Start(ctx context.Context, r audit.Record) (bool, error) {
	_, args, err := row.StartArgs(r, encodeTime)
	if err != nil {
		return false, err
	}
	var started int
	_, err = s.db.one(ctx, func(scan func(...any) error) error { return scan(&started) },
		startQueued, args...)
	return err == nil && started == 1, err
}

// Close implements audit.Store.
func (s records) Close(ctx context.Context, r audit.Record) error {
	r, args, err := row.CloseArgs(r, encodeTime)
	if err != nil {
		return err
	}
	statement := endOrCorrect
	if r.Status == audit.Lost {
		statement = endOpen
	}
	var known int
	_, err = s.db.one(ctx, func(scan func(...any) error) error { return scan(&known) },
		statement, args...)
	if err == nil && known == 0 {
		return unknownExec(r.ExecID)
	}
	return err
}

// Get implements audit.Store.
func (s records) Get(ctx context.Context, execID string) (audit.Record, error) {
	r, found, err := s.get(ctx, "exec_id = $1", row.Text(execID))
	if err == nil && !found {
		err = unknownExec(execID)
	}
	return r, err
}

func (s records) get(ctx context.Context, where string, args ...any) (r audit.Record, found bool, err error) {
	return first(ctx, s.db, row.Scan, selectExecs+where, args...)
}

// List implements audit.Store.
func (s records) List(ctx context.Context, f audit.Filter, after *audit.Cursor, limit int) ([]audit.Record, error) {
	if limit <= 0 {
		return []audit.Record{}, nil
	}
	leave, err := s.db.enterList(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	statement, args := row.ListQuery(dialect(), f, after, limit)
	return all(ctx, s.db, row.Scan, statement, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...)
}

// Outlines implements audit.Store.
func (s records) Outlines(ctx context.Context, since, until time.Time, most int, each func(audit.Outline)) error {
	leave, err := s.db.enterList(ctx)
	if err != nil {
		return err
	}
	defer leave()
	statement, args := row.OutlinesQuery(encodeTime, since, until, most)
	return s.db.call(ctx, func(ctx context.Context) error {
		rows, err := s.db.pool.Query(ctx, statement, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			o, err := row.ScanOutline(rows.Scan)
			if err != nil {
				return err
			}
			each(o)
		}
		return rows.Err()
	})
}

// dialect is that of PostgreSQL. Lists run with QueryExecModeCacheDescribe, which plans them for the actual values. A prepared statement
// would finally get a generic plan, for a task_id of average frequency.
func dialect() row.Dialect {
	return row.Dialect{
		EncodeTime: encodeTime,
		OneOf:      func(column, param string) string { return column + " = ANY (" + param + ")" },
		Set:        func(values []string) any { return values },
	}
}

// Events implements audit.Store.
func (s records) Events(ctx context.Context, execID string) ([]audit.Event, error) {
	return all(ctx, s.db, row.ScanEvent,
		"SELECT seq, exec_id, kind, at, node_id, data FROM sandbox_exec_events WHERE exec_id = $1 ORDER BY seq", row.Text(execID))
}

// LoseOpen implements audit.Store. The database's clock may be behind the one that wrote created_at and started_at, and an exec must not
// end before its start.
func (s records) LoseOpen(ctx context.Context, nodeID string, except []string) ([]string, error) {
	if except == nil {
		except = []string{}
	}
	return all(ctx, s.db, func(scan func(...any) error) (id string, err error) { err = scan(&id); return id, err },
		"WITH cur AS (SELECT exec_id, greatest(statement_timestamp(), created_at, started_at) AS ended FROM sandbox_execs"+
			" WHERE node_id = $1 AND status IN ('queued', 'running') AND exec_id <> ALL ($2) ORDER BY created_at, exec_id FOR UPDATE),"+
			" up AS (UPDATE sandbox_execs AS e SET status = 'lost', error_reason = 'node_lost', detail = $3, ended_at = cur.ended,"+
			" duration_ms = coalesce(floor(extract(epoch FROM cur.ended - e.started_at) * 1000), 0)"+
			" FROM cur WHERE e.exec_id = cur.exec_id RETURNING e.*),"+
			" ev AS (INSERT INTO sandbox_exec_events (exec_id, kind, at, node_id, data)"+
			" SELECT exec_id, 'ended', statement_timestamp(), node_id, "+brief("up")+" FROM up ORDER BY created_at, exec_id)"+
			" SELECT exec_id FROM up ORDER BY created_at, exec_id",
		row.Text(nodeID), except, row.LostDetail)
}

// Heartbeat implements audit.Store.
func (s records) Heartbeat(ctx context.Context, n audit.Node) error {
	return s.db.exec(ctx, "INSERT INTO nodes (node_id, version, started_at, seen_at) VALUES ($1, $2, $3, statement_timestamp())"+
		" ON CONFLICT (node_id) DO UPDATE SET version = excluded.version, started_at = excluded.started_at, seen_at = excluded.seen_at",
		row.Text(n.NodeID), row.Text(n.Version), n.StartedAt)
}

// InstallationID implements audit.Store.
func (s records) InstallationID(ctx context.Context) (string, error) {
	var id string
	found, err := s.db.one(ctx, func(scan func(...any) error) error { return scan(&id) }, "SELECT id FROM installation")
	if err == nil && !found {
		err = fault.New(fault.Internal, "the database has lost its installation id")
	}
	return id, err
}

// Ping implements audit.Store. It inserts a row and rolls back, so that a probe every second neither flushes the disk nor blocks other
// nodes.
func (s records) Ping(ctx context.Context) error {
	return s.db.call(ctx, func(ctx context.Context) error {
		undo := errors.New("only a probe")
		err := pgx.BeginFunc(ctx, s.db.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO nodes (node_id, version, started_at, seen_at)"+
				" VALUES (gen_random_uuid()::text, '', statement_timestamp(), statement_timestamp())")
			if err != nil {
				return err
			}
			return undo
		})
		if errors.Is(err, undo) {
			return nil
		}
		return err
	})
}

func unknownExec(execID string) error {
	return fault.New(fault.UnknownExec, "there is no exec %q", row.Text(execID))
}
