package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"secbox/audit/admin"
	"secbox/audit/translog/proof"
)

// HoldSource is a Source that also has the holds of retention.
type HoldSource interface {
	// Holds returns all holds, also removed holds, and the administrative events of holds in the
	// order of their seq, as they were at one moment.
	Holds(ctx context.Context) ([]Hold, []proof.AdminDocument, error)
}

// Hold is a row of the table of holds.
type Hold struct {
	ID, Kind, Value, Reason string
	AddedAt, RemovedAt      time.Time // RemovedAt is zero while it holds
	AddedBy, RemovedBy      string

	Unreadable map[string]string // as in audit.Record
}

// holdDelay is the longest time between a change of a hold and its event, which are one
// transaction.
const holdDelay = time.Minute

// compareHolds compares the holds with their events, which were compared with the log before.
func (r *run) compareHolds(ctx context.Context) error {
	source, ok := r.source.(HoldSource)
	if !ok || r.o.narrowed() {
		return nil
	}
	holds, events, err := source.Holds(ctx)
	if err != nil {
		return err
	}
	rows, added, removed := map[string]Hold{}, map[string]proof.AdminDocument{}, map[string]proof.AdminDocument{}
	for _, h := range holds {
		rows[h.ID] = h
		r.sum.Holds++
	}
	for _, e := range events {
		of := added
		if e.Kind == admin.HoldRemoved {
			of = removed
		}
		if first, twice := of[e.Subject]; twice {
			r.reportHold(e.Subject, "events", "one "+string(e.Kind), adminName(first.Seq)+" and "+adminName(e.Seq))
			continue
		}
		of[e.Subject] = e
		if _, ok := rows[e.Subject]; !ok && e.Kind == admin.HoldAdded {
			r.reportHold(e.Subject, "row", "the hold of "+adminName(e.Seq)+": "+e.Data, "none")
		}
	}
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		h, begin, end := rows[id], added[id], removed[id]
		if begin.Seq == 0 {
			r.reportHold(id, "events", "a hold_added of this row", "none")
		} else {
			r.compareHold(h, begin)
		}
		switch {
		case end.Seq == 0 && !h.RemovedAt.IsZero():
			r.reportHold(id, "removed_at", "nothing: there is no hold_removed", formatTime(h.RemovedAt))
		case end.Seq != 0 && apart(h.RemovedAt, end.At):
			r.reportHold(id, "removed_at", formatTime(end.At)+" of "+adminName(end.Seq), formatTime(h.RemovedAt))
		case end.Seq != 0 && end.Actor.Calls() && end.Actor.ID != h.RemovedBy:
			r.reportHold(id, "removed_by", end.Actor.ID, h.RemovedBy)
		}
	}
	return nil
}

// compareHold compares the columns of a hold with the event that added it.
func (r *run) compareHold(h Hold, e proof.AdminDocument) {
	var data struct{ Kind, Value, Reason string }
	if err := json.Unmarshal([]byte(e.Data), &data); err != nil {
		r.reportHold(h.ID, adminName(e.Seq), "JSON", e.Data)
		return
	}
	for _, c := range []struct{ name, expected, found string }{
		{"kind", data.Kind, h.Kind},
		{"value", data.Value, h.Value},
		{"reason", data.Reason, h.Reason},
	} {
		if c.expected != c.found {
			r.reportHold(h.ID, c.name, c.expected, c.found)
		}
	}
	if e.Actor.Calls() && e.Actor.ID != h.AddedBy {
		r.reportHold(h.ID, "added_by", e.Actor.ID, h.AddedBy)
	}
	if apart(h.AddedAt, e.At) {
		r.reportHold(h.ID, "added_at", formatTime(e.At)+" of "+adminName(e.Seq), formatTime(h.AddedAt))
	}
	for _, column := range slices.Sorted(maps.Keys(h.Unreadable)) {
		r.reportHold(h.ID, column, "a value of this column", h.Unreadable[column])
	}
}

// adminName is how differences name an administrative event.
func adminName(seq int64) string { return fmt.Sprintf("administrative event %d", seq) }

func apart(a, b time.Time) bool { return a.Sub(b).Abs() > holdDelay }

func formatTime(t time.Time) string {
	if t.IsZero() {
		return "nothing"
	}
	return t.Format(time.RFC3339Nano)
}

func (r *run) reportHold(holdID, what, expected, found string) {
	r.report(Difference{What: "hold " + id(holdID) + ": " + what, Expected: expected, Found: found})
}
