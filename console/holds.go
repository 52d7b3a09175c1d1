package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"secbox/access/tokens"
	"secbox/api/visible"
	"secbox/audit/admin"
	"secbox/audit/retention"
	"secbox/console/ui"
	"secbox/fault"
)

const (
	holdRows     = 50 // of a page
	releasedRows = 10 // of a page of the released holds

	coveredMost = 1000 // execs of a hold that its row counts
)

// holdsPage is a page of the holds.
type holdsPage struct {
	rows    []retention.Hold
	covered []int             // execs of each row, counted up to coveredMost
	names   map[string]string // of tokens
	mayHold bool              // the visitor is an admin
	first   bool
	more    bool
	next    ui.Address

	released releasedHolds

	curl string // gets the same from the API

	asked holdForm
	said  string // why a form did nothing, if it is not beside a field

	status int // of the answer; 0: 200
}

// releasedHolds is a page of the released holds, newest first.
type releasedHolds struct {
	rows        []eventRow
	first, more bool
	newest      ui.Address
	older       ui.Address
}

// holdForm is what the form for a new hold asks for, in the API's names.
type holdForm struct {
	id, kind, value, reason string       // id: chosen by the page, so that a form that is sent twice makes one hold
	problem                 *fault.Error // why it was refused
}

// holds lists the holds that were not released, oldest first.
func (c *Console) holds(v *visit) (ui.Page, error) {
	p, err := c.readHolds(v)
	return p.page(), err
}

func (p holdsPage) page() ui.Page {
	return ui.Page{Title: "Holds", Body: holdsBody(p), Status: p.status}
}

// readHolds reads the page that the address asks for; a form's has no parameters.
func (c *Console) readHolds(v *visit) (holdsPage, error) {
	cursor, here := v.query.Get("cursor"), ui.Link("audit", "holds").WithAll(v.query)
	p := holdsPage{mayHold: v.caller.Role == tokens.Admin, first: cursor == "", asked: holdForm{id: uuid.Must(uuid.NewV7()).String()}}
	var next string
	var err error
	if p.rows, next, err = c.cfg.Holds.List(v.ctx(), cursor, holdRows); err != nil {
		return p, err
	}
	if p.more = next != ""; p.more {
		p.next = here.With("cursor", next)
	}
	if p.covered, err = c.cfg.Holds.Covered(v.ctx(), p.rows, coveredMost); err != nil {
		return p, err
	}
	asked := url.Values{"limit": {strconv.Itoa(holdRows)}}
	if cursor != "" {
		asked.Set("cursor", cursor)
	}
	p.curl = v.curl(inAPI(asked, "audit", "holds"))
	p.asked.kind, p.asked.value = v.query.Get("kind"), v.query.Get("value")
	ids := make([]string, len(p.rows))
	for i, h := range p.rows {
		ids[i] = h.AddedBy
	}
	if p.names, err = c.cfg.Execs.Names(v.ctx(), v.caller, ids...); err != nil {
		return p, err
	}
	p.released, err = c.readReleased(v, here)
	return p, err
}

// readReleased reads a page of the released holds, of whose cursor the parameter is released.
func (c *Console) readReleased(v *visit, here ui.Address) (releasedHolds, error) {
	params := map[string]string{"kind": string(admin.HoldRemoved), "cursor": v.query.Get("released")}
	p := releasedHolds{first: params["cursor"] == "", newest: here.With("released", "")}
	q, err := visible.ParseEvents(func(name string) string { return params[name] }, c.cfg.Now(), new(fault.Fields))
	if err != nil {
		return p, err
	}
	events, err := c.cfg.AdminEvents.List(v.ctx(), q.Filter, q.After, releasedRows+1)
	if err != nil {
		return p, err
	}
	if p.more = len(events) > releasedRows; p.more {
		events = events[:releasedRows]
		p.older = here.With("released", q.Cursor(events[releasedRows-1]))
	}
	p.rows, err = eventRowsOf(v, events)
	return p, err
}

// heldBy returns what the hold of an event named; of an unreadable event nothing.
func heldBy(e admin.Event) retention.Hold {
	h := retention.Hold{ID: e.Subject}
	_ = json.Unmarshal([]byte(e.Data), &h)
	return h
}

// addHold places a hold. A refusal comes back with the form as it was sent.
func (c *Console) addHold(v *visit) (ui.Address, error) {
	asked := holdForm{id: v.form.Get("id"), kind: v.form.Get("kind"), value: strings.Trim(v.form.Get("value"), " "), reason: strings.TrimSpace(v.form.Get("reason"))}
	_, err := c.cfg.Holds.Add(v.ctx(), v.caller, retention.Hold{ID: asked.id, Kind: retention.HoldKind(asked.kind), Value: asked.value, Reason: asked.reason})
	if fault.Is(err, fault.InvalidRequest) && wrong(fault.From(err), "id") == "" {
		asked.problem = fault.From(err)
		return ui.Address{}, c.refuseHold(v, err, func(p *holdsPage) {
			asked.id = p.asked.id
			p.asked = asked
		})
	}
	if err != nil && c.heldBefore(v, asked.id) { // the form was sent again, such as by a reload
		again := fault.New(fault.InvalidRequest, "This form was sent before. It placed a hold then, and none now.")
		return ui.Address{}, c.refuseHold(v, again, func(p *holdsPage) { p.said, p.status = again.Message, http.StatusConflict })
	}
	return ui.Link("audit", "holds"), err
}

// heldBefore reports whether a hold with an id was added, also if it was released since.
func (c *Console) heldBefore(v *visit, id string) bool {
	if id == "" {
		return false
	}
	events, err := c.cfg.AdminEvents.List(v.ctx(), admin.Filter{Kind: admin.HoldAdded, Subject: id}, nil, 1)
	return err == nil && len(events) > 0
}

// releaseHold ends a hold.
func (c *Console) releaseHold(v *visit) (ui.Address, error) {
	_, err := c.cfg.Holds.Remove(v.ctx(), v.caller, v.Param("id"))
	if fault.Is(err, fault.UnknownHold) {
		return ui.Address{}, c.refuseHold(v, err, func(p *holdsPage) { p.said = "This hold was released before, or there never was one." })
	}
	return ui.Link("audit", "holds"), err
}

// refusedHold is the error of a form, which is shown on its page.
type refusedHold struct {
	error
	shown ui.Page
}

func (e refusedHold) Unwrap() error { return e.error }

func (e refusedHold) page() ui.Page { return e.shown }

// refuseHold returns the error with the page of the holds, to which change adds what was refused.
func (c *Console) refuseHold(v *visit, why error, change func(*holdsPage)) error {
	p, err := c.readHolds(v)
	if err != nil {
		return err
	}
	p.status = fault.HTTPStatus(fault.From(why).Code)
	change(&p)
	return refusedHold{why, p.page()}
}

func holdKinds() []string {
	var names []string
	for _, k := range retention.HoldKinds {
		names = append(names, string(k))
	}
	return names
}

// coveredText is how many execs a hold names.
func coveredText(n int) string {
	if n >= coveredMost {
		return ui.Count(coveredMost) + " or more"
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

// wrong returns why a field was refused; empty if it was not.
func wrong(problem *fault.Error, field string) string {
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
