package view

import (
	"encoding/json"

	"secbox/audit/admin"
	"secbox/audit/retention"
	"secbox/console/ui"
	"secbox/fault"
)

// MaxCovered is how many execs of a hold its row counts.
const MaxCovered = 1000

// HoldsPage is a page of the holds.
type HoldsPage struct {
	Pager
	Rows    []retention.Hold
	Covered []int             // execs of each row, counted up to MaxCovered
	Names   map[string]string // of tokens
	MayHold bool              // the caller is an admin

	Released ReleasedHolds

	Curl string // gets the same from the API

	Form   HoldForm
	Notice string // why a form did nothing, if it is not beside a field

	Status int // of the answer; 0: 200
}

// ReleasedHolds is a page of the released holds, newest first.
type ReleasedHolds struct {
	Pager
	Rows []EventRow
}

// HoldForm is what the form for a new hold asks for, in the API's names.
type HoldForm struct {
	ID, Kind, Value, Reason string       // id: chosen by the page, so that a form that is sent twice makes one hold
	Problem                 *fault.Error // why it was refused
}

// Page returns the page with its title.
func (p HoldsPage) Page() ui.Page {
	return ui.Page{Title: "Holds", Body: holdsBody(p), Status: p.Status}
}

// heldBy returns what the hold of an event named; of an unreadable event nothing.
func heldBy(e admin.Event) retention.Hold {
	h := retention.Hold{ID: e.Subject}
	_ = json.Unmarshal([]byte(e.Data), &h)
	return h
}

// coveredText is how many execs a hold names.
func coveredText(n int) string {
	if n >= MaxCovered {
		return ui.Count(MaxCovered) + " or more"
	}
	return ui.Count(int64(n))
}

// heldExecs returns the page of what a hold names.
func heldExecs(h retention.Hold) ui.Address {
	if h.Kind == retention.HoldExec {
		return ui.Link("execs", h.Value)
	}
	return ui.Link("history").With(string(h.Kind)+"_id", h.Value)
}

// FieldReason returns why a field was refused; empty if it was not.
func FieldReason(problem *fault.Error, field string) string {
	if problem == nil {
		return ""
	}
	for _, f := range problem.Fields {
		if f.Field == field {
			return f.Reason
		}
	}
	return ""
}
