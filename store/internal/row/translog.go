package row

import (
	"context"
	"crypto/sha256"
	"time"

	"secbox/audit/translog"
	"secbox/fault"
)

// LogReader implements the methods of translog.Store that only read.
type LogReader struct{ Database }

// source is how the events of a source are read.
type source struct {
	name    translog.Source
	table   string
	columns string // of an event e, in the order of scan
	scan    func(e *translog.Event) []any
	limit   int // of a batch; 0: none
}

// sources are in the order in which Unlogged reads them. Administrative events are few; their limit
// keeps a flood of them from delaying the events of execs.
var sources = []source{adminEvents, execEvents}

var (
	adminEvents = source{
		name: translog.Admin, table: "admin_events", limit: 64,
		columns: "e.seq, e.kind, e.at, e.node_id, e.data, e.actor_type, e.actor_id, e.actor_name, e.subject",
		scan: func(e *translog.Event) []any {
			return []any{
				&e.Seq, &e.Kind,
				timeInto{&e.At},
				&e.NodeID, &e.Data, (*string)(&e.Actor.Type), &e.Actor.ID, &e.Actor.Name,
				&e.Subject,
			}
		},
	}
	execEvents = source{
		name: translog.Execs, table: "sandbox_exec_events",
		columns: "e.seq, e.kind, e.at, e.node_id, e.data, e.exec_id",
		scan: func(e *translog.Event) []any {
			return []any{&e.Seq, &e.Kind, timeInto{&e.At}, &e.NodeID, &e.Data, &e.ExecID}
		},
	}
)

// quoted returns the name as a constant of a statement.
func (s source) quoted() string { return "'" + string(s.name) + "'" }

// notLogged is the condition of events above a floor that the log does not have. It is not NOT
// EXISTS, which PostgreSQL might plan as a join with the whole log.
func (s source) notLogged() string {
	return "(SELECT l.idx FROM audit_log_entries AS l WHERE l.source = " + s.quoted() + " AND l.event_seq = e.seq) IS NULL"
}

// selectLogged selects events with their entries, for scanLogged.
func (s source) selectLogged() string {
	return "SELECT " + s.columns + ", l.logged_at, coalesce(l.idx, -1), l.salt FROM " + s.table + " AS e" +
		" LEFT JOIN audit_log_entries AS l ON l.source = " + s.quoted() + " AND l.event_seq = e.seq"
}

// scanLogged returns a function that reads rows of selectLogged. It leaves a value empty that its
// column cannot have, so that the event is another one than the log has.
func (s source) scanLogged() func(Scan) (translog.Event, error) {
	var e translog.Event
	var unreadable map[string]string
	dest := append(s.scan(&e), timeInto{&e.LoggedAt})
	for i, d := range dest {
		if at, ok := d.(timeInto); ok {
			d = at.dest
		}
		dest[i] = &cell{field: d, unreadable: &unreadable}
	}
	dest = append(dest, &e.Index, &e.Salt)
	return func(scan Scan) (translog.Event, error) {
		e = translog.Event{Source: s.name}
		err := scan(dest...)
		return e, err
	}
}

// logged returns the events that a condition selects, with their entries.
func (s source) logged(ctx context.Context, query Run, where string, args ...any) ([]translog.Event, error) {
	return All(ctx, query, s.scanLogged(), s.selectLogged()+" WHERE "+where+" ORDER BY e.seq", args...)
}

// State implements translog.Store.
func (db LogReader) State(ctx context.Context) (translog.State, error) {
	var s translog.State
	floors := translog.Floors{}
	var args Params
	statement := "SELECT l.size, l.root, l.checkpoint, l.signed_at, l.verifier_key, l.holder, l.fence, l.lease_until BETWEEN " +
		db.Now(&args) + " AND " + db.Ago(&args, -translog.MaxLease) + ", s.source, s.floor_seq" +
		" FROM audit_log AS l, audit_log_sources AS s"
	err := db.Query(ctx, func(scan Scan) error {
		var root []byte
		var name string
		var floor int64
		err := scan(&s.Size, &root, &s.Checkpoint, timeInto{&s.SignedAt}, &s.VerifierKey, &s.Holder, &s.Fence, &s.Leased, &name, &floor)
		copy(s.Root[:], root)
		floors[translog.Source(name)] = floor
		return err
	}, statement, args...)
	s.Floors = floors
	for _, source := range sources {
		if _, ok := floors[source.name]; err == nil && !ok {
			err = fault.Wrap(fault.Internal, translog.ErrNoState,
				"the database has lost the state of its transparency log; restore audit_log and audit_log_sources from a backup")
		}
	}
	return s, err
}

// Unlogged implements translog.Store.
func (db LogReader) Unlogged(ctx context.Context, floors translog.Floors, limit int) (translog.Unlogged, error) {
	found := translog.Unlogged{Floors: translog.Floors{}}
	for _, s := range sources {
		most := limit - len(found.Events)
		if s.limit > 0 {
			most = min(most, s.limit)
		}
		events, floor, err := db.unlogged(ctx, s, floors[s.name], most)
		if err != nil {
			return translog.Unlogged{}, err
		}
		if len(events) > 0 {
			found.Events, found.Floors[s.name] = append(found.Events, events...), floor
		}
		found.More = found.More || len(events) == most
	}
	return found, nil
}

// unlogged returns events of one source, and the floor once the log has them.
func (db LogReader) unlogged(ctx context.Context, s source, floor int64, limit int) (events []translog.Event, newFloor int64, err error) {
	var settled int64 // every event with at most this seq was visible
	events, err = All(ctx, db.Query, func(scan Scan) (translog.Event, error) {
		e := translog.Event{Source: s.name}
		err := scan(append(s.scan(&e), &settled)...)
		return e, err
	}, "SELECT "+s.columns+", "+db.Settled+" FROM "+s.table+" AS e, audit_log_sources AS s WHERE s.source = "+s.quoted()+
		" AND e.seq > $1 AND "+s.notLogged()+" ORDER BY e.seq LIMIT $2", floor, limit)
	if n := len(events); n == limit && n > 0 {
		settled = min(settled, events[n-1].Seq)
	}
	return events, max(floor, settled), err
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

// LoggedAt implements translog.Store.
func (db LogReader) LoggedAt(ctx context.Context, index int64) (at time.Time, err error) {
	err = db.Query(ctx, func(scan Scan) error { return scan(timeInto{&at}) },
		"SELECT logged_at FROM audit_log_entries WHERE idx = $1", index)
	return at, err
}

// Kept implements translog.Store.
func (db LogReader) Kept(ctx context.Context, from, end int64) (first, last int64, err error) {
	err = db.Query(ctx, func(scan Scan) error { return scan(&first, &last) },
		"SELECT coalesce(min(idx), -1), coalesce(max(idx), -1) FROM audit_log_entries"+
			" WHERE idx >= $1 AND idx < $2 AND salt IS NOT NULL", from, end)
	return first, last, err
}

// History implements translog.Store.
func (db LogReader) History(ctx context.Context, execID string) ([]translog.Event, error) {
	return execEvents.logged(ctx, db.Query, "e.exec_id = $1", Text(execID))
}

// AdminEvent implements translog.Store.
func (db LogReader) AdminEvent(ctx context.Context, seq int64) (translog.Event, error) {
	events, err := adminEvents.logged(ctx, db.Query, "e.seq = $1", seq)
	if err == nil && len(events) == 0 {
		err = unknownEvent(seq)
	}
	if err != nil {
		return translog.Event{}, err
	}
	return events[0], nil
}

// NewestEvent implements translog.Store.
func (db LogReader) NewestEvent(ctx context.Context) (int64, error) {
	seq, _, err := One(ctx, db.Query, Value[int64], "SELECT coalesce(max(seq), 0) FROM sandbox_exec_events")
	return seq, err
}

// Lacking implements translog.Store.
func (db LogReader) Lacking(ctx context.Context, after, until int64, limit int) ([]translog.Event, error) {
	return All(ctx, db.Query, func(scan Scan) (e translog.Event, err error) {
		err = scan(&e.Seq, &e.ExecID)
		return e, err
	}, "SELECT e.seq, e.exec_id FROM sandbox_exec_events AS e WHERE e.seq > $1 AND e.seq <= $2 AND "+execEvents.notLogged()+
		" ORDER BY e.seq LIMIT $3", after, until, limit)
}

// Behind implements translog.Store.
func (db LogReader) Behind(ctx context.Context, most int) (n int, oldest time.Time, err error) {
	for _, s := range sources {
		var more int
		var at time.Time
		err := db.Query(ctx, func(scan Scan) error { return scan(&more, timeInto{&at}) },
			"SELECT count(*), min(at) FROM (SELECT e.at FROM "+s.table+
				" AS e WHERE e.seq > (SELECT floor_seq FROM audit_log_sources WHERE source = "+s.quoted()+")"+
				" AND "+s.notLogged()+" ORDER BY e.seq LIMIT $1) AS waiting", most-n)
		if err != nil {
			return n, oldest, err
		}
		if more > 0 && (n == 0 || at.Before(oldest)) {
			oldest = at
		}
		n += more
	}
	return n, oldest, nil
}
