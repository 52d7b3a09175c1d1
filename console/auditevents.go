package console

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

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
	events, account, err := c.listEvents(req, q, &p)
	if err != nil {
		return ui.Page{}, err
	}
	if p.Rows, err = eventRowsOf(req, events); err != nil {
		return ui.Page{}, err
	}
	if n := len(events); n == eventRows {
		p.SetNext("cursor", q.Cursor(events[n-1]))
	}
	if len(p.Named) == 0 && !account { // the API takes ids only
		asked := maps.Clone(req.query)
		asked.Set("limit", strconv.Itoa(eventRows))
		p.Curl = req.curl(inAPI(asked, "audit", "events"))
	}
	return p.Page(), nil
}

// listEvents returns the events of a page. The actor and the subject of the query are ids, or the
// names of tokens and people, and the actor also the account of commands: the list then has the
// events of all of them. account reports whether there are any by such an account.
func (c *Console) listEvents(req *request, q visible.EventQuery, p *view.EventsPage) (events []admin.Event, account bool, err error) {
	named := func(name, param string) ([]string, error) {
		tokens, err := c.callersNamed(req.ctx(), name)
		ids := []string{name}
		for _, n := range tokens {
			ids = append(ids, n.id)
			p.Named = append(p.Named, ui.NavItem{Label: n.label, To: p.Here.With(param, n.id)})
		}
		return ids, err
	}
	actors, err := named(q.Filter.Actor, "actor")
	if err != nil {
		return nil, false, err
	}
	subjects, err := named(q.Filter.Subject, "subject")
	if err != nil {
		return nil, false, err
	}
	list := func(f admin.Filter) (int, error) {
		more, err := c.cfg.AdminEvents.List(req.ctx(), f, q.After, eventRows)
		events = append(events, more...)
		slices.SortFunc(events, func(a, b admin.Event) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.Seq, a.Seq)) })
		events = slices.CompactFunc(events, func(a, b admin.Event) bool { return a.Seq == b.Seq })
		events = slices.Clip(events[:min(len(events), eventRows)])
		return len(more), err
	}
	for _, subject := range subjects {
		f := q.Filter
		f.Subject = subject
		if f.Actor != "" {
			f.Actor, f.ActorName = admin.CommandID, q.Filter.Actor
			n, err := list(f)
			if err != nil {
				return nil, false, err
			}
			account = account || n > 0
		}
		f.ActorName = ""
		for _, f.Actor = range actors {
			if _, err := list(f); err != nil {
				return nil, false, err
			}
		}
	}
	return events, account, nil
}

// namedCaller is a token or person with the name that a reader has given.
type namedCaller struct{ id, label string }

// isName reports whether a text that stands for a caller can only be a name.
func isName(text string) bool {
	return text != "" && text != runner.Tokenless && uuid.Validate(text) != nil && !strings.HasPrefix(text, admin.PersonPrefix)
}

// callersNamed returns tokens and people with a name, as tokensNamed does; none for an id.
func (c *Console) callersNamed(ctx context.Context, name string) (all []namedCaller, err error) {
	if !isName(name) {
		return nil, nil
	}
	named, err := c.tokensNamed(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, t := range named {
		all = append(all, namedCaller{t.ID, tokenLabel(t)})
	}
	people, err := c.cfg.Sessions.People(ctx, "", maxTokens)
	for _, p := range people {
		if p.Name == name && len(all) < 2*maxNamed {
			all = append(all, namedCaller{p.ID, "person " + name + " (" + p.ID + ")"})
		}
	}
	return all, err
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
	case admin.Download, admin.SessionExtended, admin.PortLinked:
		return ui.Link("execs", e.Subject), e.Subject != "" && e.Subject != admin.Searched
	case admin.NodeStarted, admin.NodeEnded, admin.NodeLost, admin.NodeDrained, admin.NodeUndrained, admin.NodeForgotten:
		return ui.Link("operations"), true
	case admin.BackendChosen:
		return ui.Link("runners").With("user_id", e.Subject), true
	case admin.ExecsRemoved, admin.RetentionRun, admin.WorkspaceRemoved:
		return ui.Link("audit", "retention"), true
	case admin.ImageAllowed, admin.ImageRemoved:
		return ui.Link("images"), true
	case admin.ProjectRemoved, admin.HoldAdded, admin.HoldRemoved, admin.BaselinePromoted, admin.BaselineDeleted:
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
