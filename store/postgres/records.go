package postgres

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"secbox/audit"
	"secbox/fault"
	"secbox/store/internal/row"
)

// records implements audit.Store.
//
// The statement that changes a row also inserts the event, from the changed row, so both are one
// transaction and the event holds exactly the row at that time.
type records struct {
	row.Records
	db *DB
}

var requestParam = strconv.Itoa(len(row.Columns())+2) + "::text"

// The statements that write. They are constant, so that pgx keeps them prepared.
var (
	// insertExec inserts a row with its request and its events, or nothing when the key is taken.
	// Its last parameters are the kinds of the events and the request.
	insertExec = "WITH ins AS (INSERT INTO sandbox_execs (" + row.ColumnList + ") VALUES (" + row.InsertParams + ")" +
		" ON CONFLICT (requested_by, idempotency_key) WHERE idempotency_key <> '' DO NOTHING RETURNING *)," +
		" ev AS (INSERT INTO sandbox_exec_events (exec_id, kind, at, node_id, data)" +
		" SELECT ins.exec_id, k.kind, statement_timestamp(), ins.node_id, CASE k.kind WHEN 'created' THEN to_jsonb(ins)::text ELSE " +
		brief("ins") + " END" +
		" FROM ins, unnest($" + strconv.Itoa(len(row.Columns())+1) + "::text[]) WITH ORDINALITY AS k (kind, n) ORDER BY k.n)," +
		" asked AS (INSERT INTO sandbox_exec_requests (exec_id, request) SELECT exec_id, $" + requestParam + " FROM ins WHERE $" +
		requestParam + " <> '')" +
		" SELECT count(*) FROM ins"

	startQueued = "WITH up AS (UPDATE sandbox_execs SET status = 'running', " + row.StartSet +
		" WHERE exec_id = $1 AND status = 'queued' AND " + row.StartLeased + " RETURNING *)," +
		" held AS (UPDATE sandbox_exec_jobs AS j SET taken_by = up.node_id FROM up WHERE up.async AND j.exec_id = up.exec_id)," +
		" ev AS (INSERT INTO sandbox_exec_events (exec_id, kind, at, node_id, data)" +
		" SELECT exec_id, 'started', statement_timestamp(), node_id, " + brief("up") + " FROM up)" +
		" SELECT count(*) FROM up"

	endOpen      = end("status IN ('queued', 'running')")
	endOrCorrect = end("(status IN ('queued', 'running') OR " + row.Correctable + ")")
)

// end is the statement that ends a row that meets the condition. It locks the row before it reads
// the status. So when two endings arrive together, the second sees the first.
func end(condition string) string {
	return "WITH cur AS (SELECT exec_id, status, " + condition + " AS ends FROM sandbox_execs WHERE exec_id = $1 FOR UPDATE)," +
		" up AS (UPDATE sandbox_execs AS e SET " + row.CloseSet +
		" FROM cur WHERE e.exec_id = cur.exec_id AND cur.ends AND e." + row.CloseOwn + " RETURNING e.*)," + deleteJobs +
		" ev AS (INSERT INTO sandbox_exec_events (exec_id, kind, at, node_id, data)" +
		" SELECT up.exec_id, CASE cur.status WHEN 'lost' THEN 'corrected' ELSE 'ended' END, statement_timestamp(), up.node_id, " +
		brief("up") +
		" FROM up JOIN cur USING (exec_id))" +
		" SELECT coalesce((SELECT status FROM up), status) FROM cur"
}

// deleteJobs deletes the jobs of the rows of up.
const deleteJobs = " gone AS (DELETE FROM sandbox_exec_jobs AS j USING up WHERE up.async AND j.exec_id = up.exec_id),"

// brief is the text of audit.Record.Brief of a row: its large lists are empty, and their
// descriptions say so.
func brief(row string) string {
	return "(CASE WHEN " + row + ".large_lists = '{}' THEN to_jsonb(" + row + ") ELSE (SELECT to_jsonb(" + row +
		") || jsonb_object_agg(l.key, '[]'::jsonb)" +
		" || jsonb_build_object('large_lists', jsonb_object_agg(l.key, l.value || '{\"kept\": 0}')) FROM jsonb_each(" + row +
		".large_lists) AS l) END)::text"
}

// Open implements audit.Store.
func (s records) Open(ctx context.Context, r audit.Record) (*audit.Record, error) {
	r, values, err := row.InsertArgs(r, encodeTime)
	if err != nil {
		return nil, err
	}
	return s.insert(ctx, s.Write, r, values)
}

// insert inserts a row with its events, or returns the exec that has its key.
func (s records) insert(ctx context.Context, run row.Run, r audit.Record, values []any) (*audit.Record, error) {
	inserted, _, err := row.One(ctx, run, row.Value[int], insertExec, append(values, row.OpeningEvents(r.Status), r.Request)...)
	if duplicate(err) {
		return nil, usedTwice(err)
	}
	if err != nil || inserted == 1 {
		return nil, err
	}
	// The holder has committed: ON CONFLICT waited for it.
	holder, found, err := row.FindHolder(ctx, run, r)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, fault.New(fault.DatabaseUnavailable, "the exec with this idempotency key has just been removed; try again")
	case holder == nil:
		return nil, usedTwice(nil)
	}
	return holder, nil
}

// Enqueue implements audit.Store.
func (s records) Enqueue(ctx context.Context, execs []audit.Waiting, limits audit.JobLimits) (out []audit.Enqueued, err error) {
	err = s.db.tx(ctx, func(ctx context.Context, tx pgx.Tx, run row.Run) error {
		out, err = s.Database.Enqueue(ctx, run, execs, limits, func(r audit.Record, values []any) (*audit.Record, error) {
			return s.insert(ctx, run, r, values)
		})
		if err != nil || !slices.ContainsFunc(out, audit.Enqueued.Stored) {
			return err
		}
		_, err = s.db.rings.InsertTx(ctx, tx, ring{}, &river.InsertOpts{Queue: ringQueue})
		return err
	})
	return out, err
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
	started, _, err := row.One(ctx, s.Write, row.Value[int], startQueued, args...)
	return err == nil && started == 1, err
}

// Close implements audit.Store.
func (s records) Close(ctx context.Context, r audit.Record) (audit.Status, error) {
	if len(r.Connections) > 0 {
		if err := s.db.Connections().SaveConnections(ctx, r.Connections); err != nil {
			return "", err
		}
	}
	r, args, err := row.CloseArgs(r, encodeTime)
	if err != nil {
		return "", err
	}
	statement := endOrCorrect
	if r.Status == audit.Lost {
		statement = endOpen
	}
	status, known, err := row.One(ctx, s.Write, row.Value[audit.Status], statement, args...)
	if err == nil && !known {
		err = row.UnknownExec(r.ExecID)
	}
	return status, err
}

// LoseOpen implements audit.Store. The database's clock may be behind the one that wrote created_at
// and started_at, and an exec must not end before its start.
func (s records) LoseOpen(ctx context.Context, nodeID string, except []string) ([]string, error) {
	var lost []string
	err := s.db.inTx(ctx, func(run row.Run) (err error) {
		lost, err = s.db.loseOpen(ctx, run, nodeID, except)
		return err
	})
	return lost, err
}

func (db *DB) loseOpen(ctx context.Context, run row.Run, nodeID string, except []string) ([]string, error) {
	if err := db.statements().LoseConnections(ctx, run, nodeID); err != nil {
		return nil, err
	}
	if except == nil {
		except = []string{}
	}
	return row.All(ctx, run, row.Value[string],
		"WITH cur AS (SELECT exec_id, greatest(statement_timestamp(), created_at, started_at) AS ended FROM sandbox_execs"+
			" WHERE node_id = $1 AND status IN ('queued', 'running') AND exec_id <> ALL ($2) ORDER BY created_at, exec_id FOR UPDATE),"+
			" up AS (UPDATE sandbox_execs AS e SET status = 'lost', error_reason = 'node_lost', detail = $3, ended_at = cur.ended,"+
			" duration_ms = coalesce(floor(extract(epoch FROM cur.ended - e.started_at) * 1000), 0)"+
			" FROM cur WHERE e.exec_id = cur.exec_id RETURNING e.*),"+deleteJobs+
			" ev AS (INSERT INTO sandbox_exec_events (exec_id, kind, at, node_id, data)"+
			" SELECT exec_id, 'ended', statement_timestamp(), node_id, "+brief("up")+" FROM up ORDER BY created_at, exec_id)"+
			" SELECT exec_id FROM up ORDER BY created_at, exec_id",
		row.Text(nodeID), except, row.LostDetail)
}

// Ping implements audit.Store. It inserts a row and rolls back, so that a probe every second
// neither flushes the disk nor blocks other nodes.
func (s records) Ping(ctx context.Context) error {
	return s.db.call(ctx, func(ctx context.Context) error {
		undo := errors.New("only a probe")
		err := pgx.BeginTxFunc(ctx, s.db.pool, s.db.begin("BEGIN"), func(tx pgx.Tx) error {
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
