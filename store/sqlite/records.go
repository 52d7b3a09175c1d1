package sqlite

import (
	"context"
	"errors"

	"secbox/audit"
	"secbox/fault"
	"secbox/store/internal/row"
)

// The statements that write. They are constant, since the writer keeps them prepared.
var (
	insertExec = "INSERT INTO sandbox_execs (" + row.ColumnList + ") VALUES (" + row.InsertParams + ")"

	startQueued = "UPDATE sandbox_execs SET status = 'running', " + row.StartSet +
		" WHERE exec_id = $1 AND status = 'queued' AND " + row.StartLeased + " RETURNING " + row.ColumnList

	setEnd      = "UPDATE sandbox_execs SET " + row.CloseSet + " WHERE exec_id = $1"
	endOpen     = setEnd + " AND " + row.CloseOwn + " AND status IN ('queued', 'running') RETURNING " + row.ColumnList
	correctLost = setEnd + " AND " + row.CloseOwn + " AND " + row.Correctable + " RETURNING " + row.ColumnList
)

const (
	insertRequest = "INSERT INTO sandbox_exec_requests (exec_id, request) VALUES ($1, $2)"

	insertEvent = "INSERT INTO sandbox_exec_events (exec_id, kind, at, node_id, data) VALUES ($1, $2, $3, $4, $5)"
	insertTwo   = insertEvent + ", ($1, $6, $3, $4, $7)"
)

// records implements audit.Store.
type records struct {
	row.Records
	db *DB
}

// Open implements audit.Store.
func (s records) Open(ctx context.Context, r audit.Record) (*audit.Record, error) {
	r, values, err := row.InsertArgs(r, encodeTime)
	if err != nil {
		return nil, err
	}
	var taken *audit.Record
	err = s.db.inTx(ctx, func(tx tx) error {
		taken, err = s.insert(ctx, tx, r, values)
		return err
	})
	return taken, err
}

// Enqueue implements audit.Store.
func (s records) Enqueue(ctx context.Context, execs []audit.Waiting, limits audit.JobLimits) (out []audit.Enqueued, err error) {
	err = s.db.inTx(ctx, func(tx tx) error {
		out, err = s.Database.Enqueue(ctx, tx.each, execs, limits, func(r audit.Record, values []any) (*audit.Record, error) {
			return s.insert(ctx, tx, r, values)
		})
		return err
	})
	return out, err
}

// insert inserts a row with its events, or returns the exec that has its key.
func (s records) insert(ctx context.Context, tx tx, r audit.Record, values []any) (*audit.Record, error) {
	// the insert reports an exec_id that exists
	if taken, _, err := row.FindHolder(ctx, tx.each, r); taken != nil || err != nil {
		return taken, err
	}
	_, err := tx.exec(insertExec, values...)
	if duplicate(err) {
		return nil, fault.Wrap(fault.Internal, err, "an exec with this id exists already")
	}
	if err == nil && r.Request != "" {
		_, err = tx.exec(insertRequest, r.ExecID, r.Request)
	}
	if err == nil {
		err = s.append(tx, r, row.OpeningEvents(r.Status)...)
	}
	return nil, err
}

// append adds one or two events with the record; only the first event of a record has its large
// lists.
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
		changed, found, err := row.One(ctx, tx.each, row.ScanRecord, startQueued, args...)
		if err != nil || !found {
			return err
		}
		started = true
		if changed.Async {
			if _, err := tx.exec(row.HoldJob, changed.ExecID, changed.NodeID); err != nil {
				return err
			}
		}
		return s.append(tx, changed, string(audit.EventStarted))
	})
	return started && err == nil, err
}

// Close implements audit.Store.
func (s records) Close(ctx context.Context, r audit.Record) (status audit.Status, err error) {
	if len(r.Connections) > 0 {
		if err := s.db.Connections().SaveConnections(ctx, r.Connections); err != nil {
			return "", err
		}
	}
	r, args, err := row.CloseArgs(r, encodeTime)
	if err != nil {
		return "", err
	}
	err = s.db.inTx(ctx, func(tx tx) error {
		kind := audit.EventEnded
		changed, found, err := row.One(ctx, tx.each, row.ScanRecord, endOpen, args...)
		if err == nil && !found && r.Status != audit.Lost {
			kind = audit.EventCorrected
			changed, found, err = row.One(ctx, tx.each, row.ScanRecord, correctLost, args...)
		}
		switch {
		case err != nil:
			return err
		case found:
			status = changed.Status
			return s.ended(tx, changed, kind)
		}
		// The first ending stands, or another node has the exec.
		status, found, err = row.One(ctx, tx.each, row.Value[audit.Status], "SELECT status FROM sandbox_execs WHERE exec_id = $1", r.ExecID)
		if err == nil && !found {
			err = row.UnknownExec(r.ExecID)
		}
		return err
	})
	return status, err
}

// ended appends the event of a row that has just ended, and deletes its job.
func (s records) ended(tx tx, r audit.Record, kind audit.EventKind) error {
	if r.Async {
		if _, err := tx.exec(row.DeleteJob, r.ExecID); err != nil {
			return err
		}
	}
	return s.append(tx, r, string(kind))
}

// LoseOpen implements audit.Store.
func (s records) LoseOpen(ctx context.Context, nodeID string, except []string) ([]string, error) {
	var lost []string
	err := s.db.inTx(ctx, func(tx tx) (err error) {
		lost, err = s.loseOpen(ctx, tx, nodeID, except)
		return err
	})
	if err != nil {
		return nil, err
	}
	return lost, nil
}

func (s records) loseOpen(ctx context.Context, tx tx, nodeID string, except []string) ([]string, error) {
	if err := s.LoseConnections(ctx, tx.each, nodeID); err != nil {
		return nil, err
	}
	lost, now := []string{}, s.db.clock()
	open, err := row.All(ctx, tx.each, row.ScanRecord, row.SelectExecs+" WHERE node_id = $1 AND status IN ('queued', 'running')"+
		" AND exec_id NOT IN (SELECT value FROM json_each($2)) ORDER BY created_at, exec_id", row.Text(nodeID),
		s.Set(append([]string{}, except...)))
	if err != nil {
		return nil, err
	}
	for _, r := range open {
		r, args, err := row.CloseArgs(row.Lose(r, now), encodeTime)
		if err != nil {
			return nil, err
		}
		if _, err := tx.exec(setEnd, args...); err != nil {
			return nil, err
		}
		if err := s.ended(tx, r, audit.EventEnded); err != nil {
			return nil, err
		}
		lost = append(lost, r.ExecID)
	}
	return lost, nil
}

// Ping implements audit.Store. It takes the write lock and changes a row, but commits nothing, so
// that a probe every second does not flush the disk every second.
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
