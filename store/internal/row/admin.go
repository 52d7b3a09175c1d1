package row

import (
	"context"
	"strings"
	"unicode/utf8"

	"secbox/audit/admin"
	"secbox/fault"
)

// AdminEvents implements admin.Store.
type AdminEvents struct{ Database }

var adminNames = strings.Split(adminColumns, ", ")

const adminColumns = "at, node_id, actor_type, actor_id, actor_name, kind, subject, data"

// Permitted is an event within the limits of its actor. Only permit makes one, so that no event is
// inserted past the limits.
type Permitted struct{ event admin.Event }

// permit returns fault.TooManyChanges for an event beyond the limits of its actor.
func (db Database) permit(e admin.Event) (Permitted, error) {
	return Permitted{e}, db.Limits.Permit(e.Actor, e.Kind)
}

// event makes an event of admin.New.
func (db Database) event(ctx context.Context, kind admin.Kind, subject string, data any) (Permitted, error) {
	e, err := admin.New(ctx, kind, subject, data)
	if err != nil {
		return Permitted{}, err
	}
	return db.permit(e)
}

// withEvent is Recorded with an event of admin.New. Beyond the limits, the statement does not run.
// One that returns no row does not count.
func (db Database) withEvent(ctx context.Context, each func(Scan) error, kind admin.Kind, subject string, data any, statement string,
	args ...any,
) error {
	e, err := db.event(ctx, kind, subject, data)
	if err != nil {
		return err
	}
	changed := false
	err = db.Recorded(ctx, func(scan Scan) error {
		changed = true
		if each == nil {
			return nil
		}
		return each(scan)
	}, e, statement, args...)
	if !changed {
		db.Limits.Return(e.event.Actor, e.event.Kind)
	}
	return err
}

// recordIn inserts an event by a statement that run runs.
func (db Database) recordIn(ctx context.Context, run Run, e Permitted) error {
	var args Params
	return run(ctx, nil, db.InsertEvent(&args, e, ""), args...)
}

// InsertEvent returns the start of a statement that inserts the event once for each row of a FROM,
// which the caller may add. subject is an expression, or empty for the event's own subject.
func (db Database) InsertEvent(args *Params, permitted Permitted, subject string) string {
	e := permitted.event
	values := []string{db.Now(args)}
	for _, v := range []string{e.NodeID, string(e.Actor.Type), e.Actor.ID, e.Actor.Name, string(e.Kind)} {
		values = append(values, args.Add(v))
	}
	if subject == "" {
		subject = args.Add(e.Subject)
	}
	return "INSERT INTO admin_events (" + adminColumns + ") SELECT " + strings.Join(append(values, subject, args.Add(e.Data)), ", ")
}

// Record implements admin.Store.
func (db AdminEvents) Record(ctx context.Context, e admin.Event) error {
	for _, text := range []string{e.NodeID, e.Actor.ID, e.Actor.Name, e.Subject} {
		if len(text) > admin.MaxText || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return fault.New(fault.Internal, "the %s could not be recorded: it was not made by admin.New", e.Kind)
		}
	}
	if !e.Kind.Valid() || len(e.Data) > admin.MaxData {
		return fault.New(fault.Internal, "the event could not be recorded: it was not made by admin.New")
	}
	permitted, err := db.permit(e)
	if err != nil {
		return err
	}
	return db.recordIn(ctx, db.Write, permitted)
}

const selectEvents = "SELECT seq, " + adminColumns + " FROM admin_events"

// scanAdminEvent never fails for a value that its column cannot have: one damaged event must not
// hide the others.
func scanAdminEvent(scan Scan) (e admin.Event, err error) {
	dest := []any{&e.Seq}
	for i, field := range []any{
		&e.At, &e.NodeID, (*string)(&e.Actor.Type), &e.Actor.ID, &e.Actor.Name, (*string)(&e.Kind), &e.Subject,
		(*jsonObject)(&e.Data),
	} {
		dest = append(dest, &cell{name: adminNames[i], field: field, unreadable: &e.Unreadable})
	}
	err = scan(dest...)
	if e.Data == "" {
		e.Data = "{}"
	}
	return e, err
}

// Get implements admin.Store.
func (db AdminEvents) Get(ctx context.Context, seq int64) (admin.Event, error) {
	e, found, err := One(ctx, db.Query, scanAdminEvent, selectEvents+" WHERE seq = $1", seq)
	if err == nil && !found {
		err = unknownEvent(seq)
	}
	return e, err
}

func unknownEvent(seq int64) error { return fault.New(fault.UnknownEvent, "there is no event %d", seq) }

// List implements admin.Store.
func (db AdminEvents) List(ctx context.Context, f admin.Filter, after *admin.Cursor, limit int) ([]admin.Event, error) {
	if limit <= 0 {
		return []admin.Event{}, nil
	}
	statement, args := db.EventsQuery(f, after, limit)
	return All(ctx, db.Database.List, scanAdminEvent, statement, args...)
}

// EventsQuery returns the statement of a list of administrative events and its parameters: keyset
// paging, newest first.
func (db Database) EventsQuery(f admin.Filter, after *admin.Cursor, limit int) (string, []any) {
	var where []string
	var args Params
	for _, eq := range []struct{ column, value string }{
		{"subject", f.Subject},
		{"actor_id", f.Actor},
		{"kind", string(f.Kind)},
		{"actor_name", f.ActorName},
	} {
		if eq.value == "" {
			continue
		}
		if db.Leading && len(where) > 0 {
			eq.column = "+" + eq.column
		}
		where = append(where, eq.column+" = "+args.Add(Text(eq.value)))
	}
	// A damaged time is in no list, like a damaged created_at of a record. The cursor is a bound
	// already.
	where = append(where, "at >= "+args.Add(db.EncodeTime(roundUp(f.Since))))
	if until := f.Until; after == nil || !until.IsZero() {
		if until.IsZero() {
			until = lastTime
		}
		where = append(where, "at < "+args.Add(db.EncodeTime(roundUp(until))))
	}
	if after != nil {
		where = append(where, "(at, seq) < ("+args.Add(db.stored(inRange(after.At)))+", "+args.Add(after.Seq)+")")
	}
	return selectEvents + " WHERE " + strings.Join(where, " AND ") + " ORDER BY at DESC, seq DESC LIMIT " + args.Add(int64(limit)), args
}
