package console

import (
	"maps"
	"strconv"
	"strings"

	"secbox/access/tokens"
	"secbox/api/visible"
	"secbox/audit/admin"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
	"secbox/runner"
)

const eventRows = 50 // of a page

// events lists administrative events, newest first.
func (c *Console) events(req *request) (ui.Page, error) {
	var bad fault.Fields
	q, err := visible.ParseEvents(req.query.Get, c.cfg.Now(), &bad)
	p := view.EventsPage{Query: req.query, Pager: view.Pager{First: q.After == nil, Here: req.here().With("cursor", "")}}
	if err != nil {
		return withRefusal(p.Page(), err)
	}
	events, err := c.cfg.AdminEvents.List(req.ctx(), q.Filter, q.After, eventRows)
	if err != nil {
		return ui.Page{}, err
	}
	if p.Rows, err = eventRowsOf(req, events); err != nil {
		return ui.Page{}, err
	}
	if n := len(events); n == eventRows {
		p.SetNext("cursor", q.Cursor(events[n-1]))
	}
	asked := maps.Clone(req.query)
	asked.Set("limit", strconv.Itoa(eventRows))
	p.Curl = req.curl(inAPI(asked, "audit", "events"))
	return p.Page(), nil
}

// eventRowsOf counts the memory of events, and finds the pages of their subjects.
func eventRowsOf(req *request, events []admin.Event) ([]view.EventRow, error) {
	rows, size := make([]view.EventRow, len(events)), 0
	for i, e := range events {
		rows[i] = view.EventRow{Event: e}
		rows[i].SubjectLink, rows[i].Linked = subjectPage(e, req.caller.Role)
		size += e.Size()
	}
	return rows, req.door.Reserve(2 * int64(size))
}

// subjectPage returns the page of what an event is about; false if there is none.
func subjectPage(e admin.Event, role tokens.Role) (ui.Address, bool) {
	switch e.Kind {
	case admin.TokenCreated, admin.TokenRevoked, admin.DownloadsOmitted, admin.ExportsOmitted, admin.ChangesRefused, admin.SignedIn,
		admin.SignedOut,
		admin.PersonBlocked, admin.PersonUnblocked, admin.WebhookSecret, admin.WebhookDefault:
		return callerPage(e.Subject, role), e.Subject != ""
	case admin.Download:
		return ui.Link("execs", e.Subject), e.Subject != ""
	case admin.NodeStarted, admin.NodeEnded, admin.NodeLost, admin.NodeDrained, admin.NodeUndrained, admin.NodeForgotten:
		return ui.Link("runners"), true
	case admin.BackendChosen:
		return ui.Link("runners").With("user_id", e.Subject), true
	case admin.ExecsRemoved, admin.RetentionRun, admin.WorkspaceRemoved:
		return ui.Link("audit", "retention"), true
	case admin.HoldAdded, admin.HoldRemoved, admin.BaselinePromoted, admin.BaselineDeleted:
		return ui.Link("audit", "events").With("subject", e.Subject), e.Subject != ""
	}
	return ui.Address{}, false
}

// callerPage returns the page of a token or, for others than admins and of a person, the execs.
func callerPage(id string, role tokens.Role) ui.Address {
	if role == tokens.Admin && id != runner.Tokenless && !strings.HasPrefix(id, admin.PersonPrefix) {
		return ui.Link("tokens", id)
	}
	return ui.Link("history").With("requested_by", id)
}
