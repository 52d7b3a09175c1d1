package row

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"secbox/audit"
	"secbox/audit/translog"
)

// Bounds of a page of execs with their events.
const (
	pageExecs  = 256
	pageEvents = 8 * pageExecs // an exec has at most four
	pageBytes  = 4 << 20       // of rows, and of events
	pageBehind = pageExecs / 2 // events that the log does not have, with the last entries: pageEvents are more than all of these execs have
)

// ExecPage implements translog.Store.
func (db LogReader) ExecPage(ctx context.Context, after string) (page translog.EventPage, err error) {
	err = db.Snapshot(ctx, func(query Run) error {
		above := " > $1"
		if after == "" {
			above = " >= $1" // an inserted id may be empty
		}
		rows, cut, err := someOf(ctx, query, pageExecs, newRecordScanner().next, audit.Record.Size,
			SelectExecs+" WHERE exec_id"+above+" ORDER BY exec_id LIMIT $2", after, pageExecs)
		if err != nil {
			return err
		}
		where, args := " WHERE e.exec_id"+above+" ORDER BY e.exec_id, e.seq LIMIT $2", []any{after, pageEvents}
		if cut {
			page.Next = rows[len(rows)-1].ExecID
			where, args = " WHERE e.exec_id"+above+" AND e.exec_id <= $3 ORDER BY e.exec_id, e.seq LIMIT $2", append(args, page.Next)
		}
		events, cut, err := someOf(ctx, query, pageEvents, execEvents.scanLogged(), eventSize, execEvents.selectLogged()+where, args...)
		if err != nil {
			return err
		}
		if cut {
			page.Next, events = completeExecs(events)
			rows = slices.DeleteFunc(rows, func(r audit.Record) bool { return r.ExecID > page.Next })
		}
		page.Execs = merge(rows, events)
		return db.addState(ctx, query, &page)
	})
	return page, err
}

// Logged implements translog.Store.
func (db LogReader) Logged(ctx context.Context, from, end int64) (page translog.EventPage, err error) {
	err = db.Snapshot(ctx, func(query Run) error {
		page.NextIndex = min(end, from+pageExecs)
		// Without the expression, PostgreSQL might read all entries of the source by their index.
		ids,
			err := All(ctx, query, Value[string],
			"SELECT e.exec_id FROM audit_log_entries AS l JOIN sandbox_exec_events AS e ON e.seq = l.event_seq"+
				" WHERE l.source || '' = "+execEvents.quoted()+" AND l.idx >= $1 AND l.idx < $2", from, page.NextIndex)
		if err != nil {
			return err
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
		behind := func(s source) string {
			return " WHERE e.seq > (SELECT floor_seq FROM audit_log_sources WHERE source = " + s.quoted() + ") AND " + s.notLogged() +
				" ORDER BY e.seq LIMIT $1"
		}
		if page.NextIndex == end {
			waiting, err := All(ctx, query, Value[string], "SELECT e.exec_id FROM sandbox_exec_events AS e"+behind(execEvents), pageBehind)
			if err != nil {
				return err
			}
			slices.Sort(waiting)
			ids = append(ids, slices.Compact(waiting)...)
		}
		rows, err := All(ctx, query, newRecordScanner().next, SelectExecs+" WHERE exec_id"+db.In("$1")+" ORDER BY exec_id", db.Set(ids))
		if err != nil {
			return err
		}
		events, cut, err := someOf(ctx, query, pageEvents, execEvents.scanLogged(), func(translog.Event) int { return 0 },
			execEvents.selectLogged()+" WHERE e.exec_id"+db.In("$1")+" ORDER BY e.exec_id, e.seq LIMIT $2", db.Set(ids), pageEvents)
		if err != nil {
			return err
		}
		// An exec has more events than can be. This page lacks the events of the next execs, and
		// a whole verification finds them.
		if cut {
			_, events = completeExecs(events)
		}
		page.Execs = merge(rows, events)
		page.Admin, err = All(ctx, query, adminEvents.scanLogged(), "SELECT "+adminEvents.columns+", l.logged_at, l.idx, l.salt"+
			" FROM audit_log_entries AS l JOIN admin_events AS e ON e.seq = l.event_seq WHERE l.source || '' = "+adminEvents.quoted()+
			" AND l.idx >= $1 AND l.idx < $2 ORDER BY l.idx", from, page.NextIndex)
		if err != nil {
			return err
		}
		slices.SortFunc(page.Admin, func(a, b translog.Event) int { return cmp.Compare(a.Seq, b.Seq) })
		if page.NextIndex == end {
			waiting, err := All(ctx, query, adminEvents.scanLogged(), adminEvents.selectLogged()+behind(adminEvents), pageBehind)
			if err != nil {
				return err
			}
			page.Admin = append(page.Admin, waiting...)
		}
		return db.addState(ctx, query, &page)
	})
	return page, err
}

// addState sets the page's state, as it was when the rest was read.
func (db LogReader) addState(ctx context.Context, query Run, page *translog.EventPage) (err error) {
	page.State, err = LogReader{Database{Query: query, Now: db.Now, Ago: db.Ago}}.State(ctx)
	if errors.Is(err, translog.ErrNoState) {
		page.State, page.NoState, err = translog.State{}, true, nil
	}
	return err
}

// AdminPage implements translog.Store.
func (db LogReader) AdminPage(ctx context.Context, from int64) (page translog.EventPage, err error) {
	err = db.Snapshot(ctx, func(query Run) error {
		var cut bool
		page.NextSeq = math.MinInt64
		page.Admin, cut, err = someOf(ctx, query, pageEvents, adminEvents.scanLogged(), eventSize,
			adminEvents.selectLogged()+" WHERE e.seq >= $1 ORDER BY e.seq LIMIT $2", from, pageEvents)
		if err != nil {
			return err
		}
		if cut {
			page.NextSeq = page.Admin[len(page.Admin)-1].Seq + 1 // math.MinInt64 after the last that can be
		}
		return db.addState(ctx, query, &page)
	})
	return page, err
}

const selectHolds = "SELECT id, kind, value, reason, added_at, added_by, removed_at, removed_by FROM audit_holds ORDER BY id"

// Holds implements translog.Store.
func (db LogReader) Holds(ctx context.Context) (holds []translog.Hold, events []translog.Event, err error) {
	err = db.Snapshot(ctx, func(query Run) error {
		holds, err = All(ctx, query, func(scan Scan) (h translog.Hold, err error) {
			var dest []any
			for _, c := range []cell{
				{name: "id", field: &h.ID},
				{name: "kind", field: &h.Kind},
				{name: "value", field: &h.Value},
				{name: "reason", field: &h.Reason},
				{name: "added_at", field: &h.AddedAt},
				{name: "added_by", field: &h.AddedBy},
				{name: "removed_at", field: &h.RemovedAt},
				{name: "removed_by", field: &h.RemovedBy},
			} {
				c.unreadable = &h.Unreadable
				dest = append(dest, &c)
			}
			err = scan(dest...)
			return h, err
		}, selectHolds)
		if err != nil {
			return err
		}
		events, err = adminEvents.logged(ctx, query, "e.kind IN ('hold_added', 'hold_removed')")
		return err
	})
	return holds, events, err
}

// someOf is All that ends after most rows, or pageBytes. cut reports that there may be more.
func someOf[T any](ctx context.Context, query Run, most int, read func(Scan) (T, error), size func(T) int, statement string,
	args ...any,
) (items []T, cut bool, err error) {
	bytes := 0
	err = query(ctx, func(scan Scan) error {
		item, err := read(scan)
		if err != nil {
			return err
		}
		items = append(items, item)
		if bytes += size(item); bytes > pageBytes || len(items) == most {
			return errEnough
		}
		return nil
	}, statement, args...)
	if errors.Is(err, errEnough) {
		return items, true, nil
	}
	return items, false, err
}

func eventSize(e translog.Event) int { return len(e.Data) }

// completeExecs returns the events of all execs but the last one, which may have more, and the id
// of the last exec that it kept. It keeps the last exec if there is no other.
func completeExecs(events []translog.Event) (last string, complete []translog.Event) {
	end := len(events)
	for end > 0 && events[end-1].ExecID == events[len(events)-1].ExecID {
		end--
	}
	if end == 0 {
		end = len(events)
	}
	return events[end-1].ExecID, events[:end]
}

// merge joins rows and events by their exec, both in the order of ids.
func merge(rows []audit.Record, events []translog.Event) (all []translog.Exec) {
	for len(rows) > 0 || len(events) > 0 {
		var x translog.Exec
		if len(events) == 0 || len(rows) > 0 && rows[0].ExecID <= events[0].ExecID {
			x.ID = rows[0].ExecID
			x.Row, rows = &rows[0], rows[1:]
		} else {
			x.ID = events[0].ExecID
		}
		n := 0
		for n < len(events) && events[n].ExecID == x.ID {
			n++
		}
		x.Events, events = events[:n], events[n:]
		all = append(all, x)
	}
	return all
}
