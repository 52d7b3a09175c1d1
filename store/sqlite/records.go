package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/store/internal/row"
)

// The statements that write. They are constant, since the writer keeps them prepared.
var (
	findKey = "SELECT " + row.ColumnList + " FROM sandbox_execs WHERE requested_by = $1 AND idempotency_key = $2 AND idempotency_key <> ''"

	insertExec = "INSERT INTO sandbox_execs (" + row.ColumnList + ") VALUES (" + row.InsertParams + ")"

	startQueued = "UPDATE sandbox_execs SET status = 'running', " + row.StartSet +
		" WHERE exec_id = $1 AND status = 'queued' RETURNING " + row.ColumnList

	setEnd      = "UPDATE sandbox_execs SET " + row.CloseSet + " WHERE exec_id = $1"
	endOpen     = setEnd + " AND status IN ('queued', 'running') RETURNING " + row.ColumnList
	correctLost = setEnd + " AND status = 'lost' RETURNING " + row.ColumnList
)

const (
	insertEvent = "INSERT INTO sandbox_exec_events (exec_id, kind, at, node_id, data) VALUES ($1, $2, $3, $4, $5)"
	insertTwo   = insertEvent + ", ($1, $6, $3, $4, $7)"
)

// records implements audit.Store.
type records struct{ db *DB }

// dialect is that of SQLite. It has no statistics here, so the query selects the index.
func dialect() row.Dialect {
	return row.Dialect{
		EncodeTime: encodeTime,
		OneOf: func(column, param string) string {
			return "+" + column + " IN (SELECT value FROM json_each(" + param + "))"
		},
		Set:     func(values []string) any { list, _ := json.Marshal(values); return string(list) },
		Leading: true,
	}
}

// Open implements audit.Store.
func (s records) Open(ctx context.Context, r audit.Record) (*audit.Record, error) {
	r, values, err := row.InsertArgs(r, encodeTime)
	if err != nil {
		return nil, err
	}
	var taken *audit.Record
	err = s.db.inTx(ctx, func(tx tx) error {
		if r.IdempotencyKey != "" {
			holder, err := returned(tx, row.Scan, findKey, r.RequestedBy, r.IdempotencyKey)
			if err != nil {
				return err
			}
			if holder != nil && holder.ExecID != r.ExecID { // the insert reports an exec_id that exists
				taken = holder
				return nil
			}
		}
		_, err := tx.exec(insertExec, values...)
		if duplicate(err) {
			return fault.Wrap(fault.Internal, err, "an exec with this id exists already")
		}
		if err != nil {
			return err
		}
		return s.append(tx, r, row.OpeningEvents(r.Status)...)
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

// append adds one or two events with the record; only the first event of a record has its large lists.
func (s records) append(tx tx, r audit.Record, kinds ...string) error {
	brief, err := row.EventData(r.Brief())
	if err != nil {
		return err
	}
	data := brief
	if kinds[0] == string(audit.EventCreated) && len(r.LargeLists) > 0 {
		if data, err = row.EventData(r); err != nil {
			return err
		}
	}
	args := []any{r.ExecID, kinds[0], encodeTime(s.db.now()), r.NodeID, data}
	if len(kinds) == 2 {
		_, err = tx.exec(insertTwo, append(args, kinds[1], brief)...)
	} else {
		_, err = tx.exec(insertEvent, args...)
	}
	return err
}

// Start implements audit.Store.
func (s records) Start(ctx context.Context, r audit.Record) (started bool, err error) {
	_, args, err := row.StartArgs(r, encodeTime)
	if err != nil {
		return false, err
	}
	err = s.db.inTx(ctx, func(tx tx) error {
		changed, err := returned(tx, row.Scan, startQueued, args...)
		if err != nil || changed == nil {
			return err
		}
		started = true
		return s.append(tx, *changed, string(audit.EventStarted))
	})
	return started && err == nil, err
}

// Close implements audit.Store.
func (s records) Close(ctx context.Context, r audit.Record) error {
	r, args, err := row.CloseArgs(r, encodeTime)
	if err != nil {
		return err
	}
	return s.db.inTx(ctx, func(tx tx) error {
		kind := audit.EventEnded
		changed, err := returned(tx, row.Scan, endOpen, args...)
		if err == nil && changed == nil && r.Status != audit.Lost {
			kind = audit.EventCorrected
			changed, err = returned(tx, row.Scan, correctLost, args...)
		}
		switch {
		case err != nil:
			return err
		case changed != nil:
			return s.append(tx, *changed, string(kind))
		}
		known := false // and ended otherwise before: the first ending stands
		err = tx.each(func(scan func(...any) error) error { return scan(&known) }, "SELECT true FROM sandbox_execs WHERE exec_id = $1", r.ExecID)
		if err == nil && !known {
			err = unknownExec(r.ExecID)
		}
		return err
	})
}

// Get implements audit.Store.
func (s records) Get(ctx context.Context, execID string) (audit.Record, error) {
	r, found, err := one(ctx, s.db, row.Scan, "SELECT "+row.ColumnList+" FROM sandbox_execs WHERE exec_id = $1", row.Text(execID))
	if err == nil && !found {
		err = unknownExec(execID)
	}
	return r, err
}

// List implements audit.Store.
func (s records) List(ctx context.Context, f audit.Filter, after *audit.Cursor, limit int) ([]audit.Record, error) {
	items := []audit.Record{}
	if limit <= 0 {
		return items, nil
	}
	statement, args := row.ListQuery(dialect(), f, after, limit)
	err := s.db.query(ctx, func(scan func(...any) error) error {
		r, err := row.Scan(scan)
		items = append(items, r)
		return err
	}, statement, args...)
	if err != nil {
		return nil, err
	}
	return items, nil
}

// Outlines implements audit.Store.
func (s records) Outlines(ctx context.Context, since, until time.Time, most int, each func(audit.Outline)) error {
	statement, args := row.OutlinesQuery(encodeTime, since, until, most)
	return s.db.query(ctx, func(scan func(...any) error) error {
		o, err := row.ScanOutline(scan)
		if err == nil {
			each(o)
		}
		return err
	}, statement, args...)
}

// Events implements audit.Store.
func (s records) Events(ctx context.Context, execID string) ([]audit.Event, error) {
	return all(ctx, s.db, row.ScanEvent,
		"SELECT seq, exec_id, kind, at, node_id, data FROM sandbox_exec_events WHERE exec_id = $1 ORDER BY seq", row.Text(execID))
}

// LoseOpen implements audit.Store.
func (s records) LoseOpen(ctx context.Context, nodeID string, except []string) ([]string, error) {
	lost := []string{}
	keep, err := json.Marshal(append([]string{}, except...))
	if err != nil {
		return nil, interpretError(err)
	}
	err = s.db.inTx(ctx, func(tx tx) error {
		now := s.db.now().UTC().Truncate(time.Microsecond)
		var open []audit.Record
		err := tx.each(func(scan func(...any) error) error {
			r, err := row.Scan(scan)
			open = append(open, r)
			return err
		}, "SELECT "+row.ColumnList+" FROM sandbox_execs WHERE node_id = $1 AND status IN ('queued', 'running')"+
			" AND exec_id NOT IN (SELECT value FROM json_each($2)) ORDER BY created_at, exec_id", row.Text(nodeID), string(keep))
		if err != nil {
			return err
		}
		for _, r := range open {
			r, args, err := row.CloseArgs(row.Lose(r, now), encodeTime)
			if err != nil {
				return err
			}
			if _, err := tx.exec(setEnd, args...); err != nil {
				return err
			}
			if err := s.append(tx, r, string(audit.EventEnded)); err != nil {
				return err
			}
			lost = append(lost, r.ExecID)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return lost, nil
}

// Heartbeat implements audit.Store.
func (s records) Heartbeat(ctx context.Context, n audit.Node) error {
	return s.db.inTx(ctx, func(tx tx) error {
		_, err := tx.exec("INSERT INTO nodes (node_id, version, started_at, seen_at) VALUES ($1, $2, $3, $4)"+
			" ON CONFLICT (node_id) DO UPDATE SET version = excluded.version, started_at = excluded.started_at, seen_at = excluded.seen_at",
			row.Text(n.NodeID), row.Text(n.Version), encodeTime(n.StartedAt), encodeTime(s.db.now()))
		return err
	})
}

// InstallationID implements audit.Store.
func (s records) InstallationID(ctx context.Context) (string, error) {
	var id string
	err := s.db.lookUp(ctx, func(scan func(...any) error) error { return scan(&id) }, "SELECT id FROM installation")
	if err == nil && id == "" {
		err = fault.New(fault.Internal, "the database has lost its installation id")
	}
	return id, err
}

// Ping implements audit.Store. It takes the write lock and changes a row, but commits nothing, so that a probe every second does not flush
// the disk every second.
func (s records) Ping(ctx context.Context) error {
	undo := errors.New("only a probe")
	err := s.db.inTx(ctx, func(tx tx) error {
		if _, err := tx.exec("UPDATE installation SET id = id"); err != nil {
			return err
		}
		return fault.Wrap(fault.Internal, undo, "")
	})
	if errors.Is(err, undo) {
		return nil
	}
	return err
}

func unknownExec(execID string) error {
	return fault.New(fault.UnknownExec, "there is no exec %q", row.Text(execID))
}
