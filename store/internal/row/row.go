// Package row is the common part of both databases: the columns of an audit record, the conversion
// of their values, and the methods that are one statement with the same text. Its SQL ($1,
// RETURNING, ON CONFLICT) works in both; it knows neither driver.
package row

import (
	"encoding/json"
	"fmt"
	"time"

	"secbox/audit"
	"secbox/fault"
)

// scanEvent reads one row of seq, exec_id, kind, at, node_id, data. The data has the form of
// audit.Record from both databases.
func scanEvent(scan Scan) (audit.Event, error) {
	var e audit.Event
	var stored audit.Record
	if err := scan(&e.Seq, &e.ExecID, (*string)(&e.Kind), timeInto{&e.At}, &e.NodeID, jsonInto{&stored}); err != nil {
		return audit.Event{}, err
	}
	data, err := json.Marshal(utc(stored))
	if err != nil {
		return audit.Event{}, err
	}
	e.Data = data
	return e, nil
}

// EventData is the data of an event of the record.
func EventData(r audit.Record) (string, error) {
	data, err := json.Marshal(r)
	return string(data), err
}

func utc(r audit.Record) audit.Record {
	r.CreatedAt, r.StartedAt, r.EndedAt = r.CreatedAt.UTC(), r.StartedAt.UTC(), r.EndedAt.UTC()
	return r
}

// OpeningEvents are the kinds of the first events of a record.
func OpeningEvents(s audit.Status) []string {
	switch {
	case s == audit.Running:
		return []string{string(audit.EventCreated), string(audit.EventStarted)}
	case s.Final():
		return []string{string(audit.EventCreated), string(audit.EventEnded)}
	}
	return []string{string(audit.EventCreated)}
}

// MaxKey is the longest key, in bytes, that a record may have in a column with an index: PostgreSQL
// refuses an index entry of more than 2,704 bytes, and two keys share one.
const MaxKey = 512

// check refuses an invalid record. The fields of a request were checked before, except for their
// length.
func check(r *audit.Record, all []column, ended bool) error {
	for _, c := range all {
		if c.Use&audit.Key != 0 && len(*c.field.(*string)) > MaxKey {
			return fault.BadField(c.Name, "is longer than %d bytes", MaxKey)
		}
	}
	refuse := func(format string, args ...any) error {
		return fault.Wrap(fault.Internal, fmt.Errorf("audit record "+format, args...), "the exec could not be recorded")
	}
	switch {
	case r.ExecID == "":
		return refuse("without exec_id")
	case !r.Status.Valid():
		return refuse("%s with status %q", r.ExecID, r.Status)
	case r.CreatedAt.IsZero():
		return refuse("%s without created_at", r.ExecID)
	case ended && (!r.Status.Final() || r.EndedAt.IsZero()):
		return refuse("%s closed with status %q, ended_at %v", r.ExecID, r.Status, r.EndedAt)
	}
	return nil
}

// LostDetail is the detail of a row that LoseOpen ended.
const LostDetail = "the node that ran this exec ended before the exec did; whether its command finished is not known"

// Lose ends an open record as lost, at a time of the database's clock, which may be behind the
// clock that started the exec.
func Lose(r audit.Record, now time.Time) audit.Record {
	r.Status, r.ErrorReason, r.Detail = audit.Lost, audit.NodeLost, LostDetail
	r.EndedAt = now
	for _, t := range []time.Time{r.CreatedAt, r.StartedAt} {
		if r.EndedAt.Before(t) {
			r.EndedAt = t
		}
	}
	r.DurationMS = r.Duration().Milliseconds()
	return r
}
