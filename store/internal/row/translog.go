package row

import (
	"context"
	"crypto/sha256"
	"time"

	"secbox/fault"
	"secbox/translog"
)

// LogReader implements the methods of translog.Store that only read.
type LogReader struct{ Database }

// execSource is the source of the log whose events are in sandbox_exec_events.
const execSource = "'exec'"

// notLogged is the condition of events above a floor that the log does not have. It is not NOT EXISTS, which PostgreSQL might plan as a join with the
// whole log.
const notLogged = "(SELECT l.idx FROM audit_log_entries AS l WHERE l.source = " + execSource + " AND l.event_seq = e.seq) IS NULL"

// State implements translog.Store.
func (db LogReader) State(ctx context.Context) (translog.State, error) {
	var args Params
	statement := "SELECT l.size, l.root, l.checkpoint, l.signed_at, l.verifier_key, l.holder, l.fence, l.lease_until >= " + db.Now(&args) + ", s.floor_seq" +
		" FROM audit_log AS l, audit_log_sources AS s WHERE s.source = " + execSource
	s, found, err := One(ctx, db.Query, func(scan Scan) (translog.State, error) {
		var s translog.State
		var root []byte
		err := scan(&s.Size, &root, &s.Checkpoint, timeInto{&s.SignedAt}, &s.VerifierKey, &s.Holder, &s.Fence, &s.Leased, &s.Floor)
		copy(s.Root[:], root)
		return s, err
	}, statement, args...)
	if err == nil && !found {
		err = fault.New(fault.Internal, "the database has lost the state of its transparency log")
	}
	return s, err
}

// Unlogged implements translog.Store.
func (db LogReader) Unlogged(ctx context.Context, floor int64, limit int) (translog.Unlogged, error) {
	found := translog.Unlogged{Floor: floor}
	var settled int64 // every event with at most this seq was visible
	err := db.Query(ctx, func(scan Scan) error {
		var e translog.Event
		if err := scan(&e.Seq, &e.ExecID, &e.Kind, timeInto{&e.At}, &e.NodeID, &e.Data, &settled); err != nil {
			return err
		}
		found.Events = append(found.Events, e)
		return nil
	}, "SELECT e.seq, e.exec_id, e.kind, e.at, e.node_id, e.data, "+db.Settled+
		" FROM sandbox_exec_events AS e, audit_log_sources AS s WHERE s.source = "+execSource+" AND e.seq > $1 AND "+notLogged+" ORDER BY e.seq LIMIT $2", floor, limit)
	if n := len(found.Events); err == nil && n > 0 {
		if n == limit {
			settled = min(settled, found.Events[n-1].Seq)
		}
		found.Floor = max(floor, settled)
	}
	return found, err
}

// Tile implements translog.Store.
func (db LogReader) Tile(ctx context.Context, level int, n int64) ([]byte, error) {
	hashes, _, err := One(ctx, db.Query, Value[[]byte], "SELECT hashes FROM audit_log_tiles WHERE level = $1 AND n = $2", level, n)
	return hashes, err
}

// Entries implements translog.Store.
func (db LogReader) Entries(ctx context.Context, from int64, limit int) ([][sha256.Size]byte, error) {
	return All(ctx, db.Query, func(scan Scan) (entry [sha256.Size]byte, err error) {
		var stored []byte
		err = scan(&stored)
		copy(entry[:], stored)
		return entry, err
	}, "SELECT entry FROM audit_log_entries WHERE idx >= $1 AND idx < $2 ORDER BY idx", from, from+int64(limit))
}

// History implements translog.Store.
func (db LogReader) History(ctx context.Context, execID string) ([]translog.Event, error) {
	return All(ctx, db.Query, func(scan Scan) (e translog.Event, err error) {
		err = scan(&e.Seq, &e.ExecID, &e.Kind, timeInto{&e.At}, &e.NodeID, &e.Data, &e.Index, &e.Salt, timeInto{&e.LoggedAt})
		return e, err
	}, "SELECT e.seq, e.exec_id, e.kind, e.at, e.node_id, e.data, coalesce(l.idx, -1), l.salt, l.logged_at FROM sandbox_exec_events AS e"+
		" LEFT JOIN audit_log_entries AS l ON l.source = "+execSource+" AND l.event_seq = e.seq WHERE e.exec_id = $1 ORDER BY e.seq", Text(execID))
}

// Behind implements translog.Store.
func (db LogReader) Behind(ctx context.Context, most int) (n int, oldest time.Time, err error) {
	err = db.Query(ctx, func(scan Scan) error { return scan(&n, timeInto{&oldest}) },
		"SELECT count(*), min(at) FROM (SELECT e.at FROM sandbox_exec_events AS e WHERE e.seq > (SELECT floor_seq FROM audit_log_sources WHERE source = "+execSource+")"+
			" AND "+notLogged+" ORDER BY e.seq LIMIT $1) AS waiting", most)
	return n, oldest, err
}
