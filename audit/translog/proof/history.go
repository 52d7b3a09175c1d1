package proof

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"secbox/audit"
	"secbox/internal/whole"
)

// History is the events of one exec, oldest first. There is at least one.
type History struct {
	documents []Document
	columns   []columns // of each document's record
}

// NewHistory reads the records of the events. It fails for a record that cannot be read.
func NewHistory(documents []Document) (History, error) {
	h := History{documents: documents, columns: make([]columns, len(documents))}
	for i, d := range documents {
		if i > 0 && d.Record == documents[i-1].Record {
			h.columns[i] = h.columns[i-1]
			continue
		}
		var err error
		if h.columns[i], err = readColumns(d.Record); err != nil {
			return History{}, fmt.Errorf("the record of event %d cannot be read: %w", i+1, err)
		}
	}
	return h, nil
}

// histories are the kinds of events that an exec can have.
var histories = regexp.MustCompile(`^ created( started)?( ended( corrected)?)?$`)

// Check refuses events that cannot be the history of the exec: of another exec, in another order
// than in the log, of impossible kinds, or with another value of a column that never changes.
// indexes are the events' indexes in the log.
func (h History) Check(execID string, indexes []int64) error {
	kinds := ""
	for i, d := range h.documents {
		if d.ExecID != execID {
			return fmt.Errorf("event %d is of the exec %q, not of %q", i+1, whole.Shorten(d.ExecID), whole.Shorten(execID))
		}
		if i > 0 && (d.Seq <= h.documents[i-1].Seq || indexes[i] <= indexes[i-1]) {
			return fmt.Errorf("event %d does not follow event %d", i+1, i)
		}
		kinds += " " + string(d.Kind)
	}
	if !histories.MatchString(kinds) {
		return fmt.Errorf("an exec cannot have the events %q", whole.Shorten(strings.TrimSpace(kinds)))
	}
	if err := h.checkKinds(); err != nil {
		return err
	}
	return h.checkFixed()
}

// checkKinds compares the kinds with the status of the records. The opening of a running or refused
// exec writes two events, and only a lost exec is corrected.
func (h History) checkKinds() error {
	for i, d := range h.documents {
		status := h.columns[i].text("status")
		next := audit.EventKind("")
		if i+1 < len(h.documents) {
			next = h.documents[i+1].Kind
		}
		switch {
		case d.Kind == audit.EventCreated && status == audit.Running && next != audit.EventStarted,
			d.Kind == audit.EventCreated && status != audit.Queued && status.Final() && next != audit.EventEnded,
			d.Kind == audit.EventCreated && next == audit.EventEnded && h.columns[i+1].has("started_at"):
			return fmt.Errorf("event %d is %q with the status %q, and the event that must follow it is missing", i+1, d.Kind,
				whole.Shorten(string(status)))
		case d.Kind == audit.EventStarted && status != audit.Running,
			(d.Kind == audit.EventEnded || d.Kind == audit.EventCorrected) && !status.Final(),
			next == audit.EventCorrected && status != audit.Lost:
			return fmt.Errorf("event %d is %q with the status %q, which cannot be", i+1, d.Kind, whole.Shorten(string(status)))
		}
	}
	return nil
}

// checkFixed refuses an event that changes a column which never changes.
func (h History) checkFixed() error {
	first := h.columns[0]
	for i := 1; i < len(h.columns); i++ {
		later := h.columns[i]
		if &later[0] == &first[0] {
			continue
		}
		brief := first.has("large_lists") || later.has("large_lists")
		for c, info := range audit.Columns {
			if info.Use&audit.MayChange != 0 || brief && info.Use&audit.Brief != 0 || later[c] == nil || first[c] == nil {
				continue
			}
			if !sameJSON(json.RawMessage(first[c]), json.RawMessage(later[c])) {
				return fmt.Errorf("event %d changes %s, which never changes: expected %s, found %s", i+1, info.Name,
					whole.Shorten(string(first[c])), whole.Shorten(string(later[c])))
			}
		}
		if !brief {
			continue
		}
		if err := h.checkLists(i); err != nil {
			return err
		}
	}
	return nil
}

// checkLists compares the lists of an event with the first event's lists. Only the first event has
// the large lists.
func (h History) checkLists(i int) error {
	first, err := h.documents[0].Decode()
	if err != nil {
		return fmt.Errorf("the record of event 1 cannot be read: %w", err)
	}
	later, err := h.documents[i].Decode()
	if err != nil {
		return fmt.Errorf("the record of event %d cannot be read: %w", i+1, err)
	}
	if brief := first.Brief(); !maps.Equal(brief.LargeLists, later.LargeLists) || !slices.Equal(brief.Args, later.Args) ||
		!slices.Equal(brief.EnvKeys, later.EnvKeys) ||
		!slices.Equal(brief.EnvHMACs, later.EnvHMACs) || !slices.Equal(brief.Inputs, later.Inputs) {
		return fmt.Errorf("event %d has other lists than event 1", i+1)
	}
	return nil
}

// Compare compares the columns of a row with the events. The last event has all columns, except for
// large lists, which only the first one has. unproven are the columns that did not exist when the
// last event was written. Both are in the order of names.
func (h History) Compare(row audit.Record) (differences []Difference, unproven []string, err error) {
	last := h.columns[len(h.columns)-1]
	same := len(row.Unreadable) == 0
	for c, info := range audit.Columns {
		switch {
		case last[c] == nil && info.Use&audit.Omitted == 0:
			unproven = append(unproven, info.Name)
		case same:
			same = last[c].equals(info.In(&row))
		}
	}
	if same {
		slices.Sort(unproven)
		return nil, unproven, nil
	}
	return compare(h.documents, row)
}

// Empty reports whether there are no events that could be read.
func (h History) Empty() bool { return len(h.documents) == 0 }
