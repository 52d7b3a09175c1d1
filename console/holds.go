package console

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"secbox/api/visible"
	"secbox/audit/admin"
	"secbox/audit/retention"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
)

const (
	holdRows     = 50 // of a page
	releasedRows = 10 // of a page of the released holds
)

// holds lists the holds that were not released, oldest first.
func (c *Console) holds(req *request) (ui.Page, error) {
	p, err := c.readHolds(req)
	return p.Page(), err
}

// readHolds reads the page that the address asks for; a form's has no parameters.
func (c *Console) readHolds(req *request) (view.HoldsPage, error) {
	cursor, here := req.query.Get("cursor"), ui.Link("audit", "holds").WithAll(req.query)
	p := view.HoldsPage{
		MayHold: req.may(admins), Pager: view.Pager{First: cursor == "", Here: ui.Link("audit", "holds")},
		Form: view.HoldForm{ID: uuid.Must(uuid.NewV7()).String()},
	}
	var next string
	var err error
	if p.Rows, next, err = c.cfg.Holds.List(req.ctx(), cursor, holdRows); err != nil {
		return p, err
	}
	if p.More = next != ""; p.More {
		p.Next = here.With("cursor", next)
	}
	if p.Covered, err = c.cfg.Holds.Covered(req.ctx(), p.Rows, view.MaxCovered); err != nil {
		return p, err
	}
	asked := url.Values{"limit": {strconv.Itoa(holdRows)}}
	if cursor != "" {
		asked.Set("cursor", cursor)
	}
	p.Curl = req.curl(inAPI(asked, "audit", "holds"))
	p.Form.Kind, p.Form.Value = req.query.Get("kind"), req.query.Get("value")
	if p.Names, err = tokenNames(c, req, p.Rows, func(h retention.Hold) string { return h.AddedBy }); err != nil {
		return p, err
	}
	p.Released, err = c.readReleased(req, here)
	return p, err
}

// readReleased reads a page of the released holds, of whose cursor the parameter is released.
func (c *Console) readReleased(req *request, here ui.Address) (view.ReleasedHolds, error) {
	params := map[string]string{"kind": string(admin.HoldRemoved), "cursor": req.query.Get("released")}
	p := view.ReleasedHolds{Pager: view.Pager{First: params["cursor"] == "", Here: here.With("released", "")}}
	q, err := visible.ParseEvents(func(name string) string { return params[name] }, c.cfg.Now(), new(fault.Fields))
	if err != nil {
		return p, err
	}
	events, err := c.cfg.AdminEvents.List(req.ctx(), q.Filter, q.After, releasedRows+1)
	if err != nil {
		return p, err
	}
	if len(events) > releasedRows {
		events = events[:releasedRows]
		p.SetNext("released", q.Cursor(events[releasedRows-1]))
	}
	p.Rows, err = eventRowsOf(req, events)
	return p, err
}

// addHold places a hold. A refusal comes back with the form as it was sent.
func (c *Console) addHold(req *request) (ui.Address, error) {
	asked := view.HoldForm{
		ID: req.form.Get("id"), Kind: req.form.Get("kind"), Value: strings.Trim(req.form.Get("value"), " "),
		Reason: strings.TrimSpace(req.form.Get("reason")),
	}
	_, err := c.cfg.Holds.Add(req.ctx(), req.caller,
		retention.Hold{ID: asked.ID, Kind: retention.HoldKind(asked.Kind), Value: asked.Value, Reason: asked.Reason})
	if fault.Is(err, fault.InvalidRequest) && view.FieldReason(fault.From(err), "id") == "" {
		asked.Problem = fault.From(err)
		return ui.Address{}, c.refuseHold(req, err, func(p *view.HoldsPage) {
			asked.ID = p.Form.ID
			p.Form = asked
		})
	}
	if err != nil && c.heldBefore(req, asked.ID) { // the form was sent again, such as by a reload
		again := fault.New(fault.InvalidRequest, "This form was sent before. It placed a hold then, and none now.")
		return ui.Address{}, c.refuseHold(req, again, func(p *view.HoldsPage) { p.Notice, p.Status = again.Message, http.StatusConflict })
	}
	return ui.Link("audit", "holds"), err
}

// heldBefore reports whether a hold with an id was added, also if it was released since.
func (c *Console) heldBefore(req *request, id string) bool {
	if id == "" {
		return false
	}
	events, err := c.cfg.AdminEvents.List(req.ctx(), admin.Filter{Kind: admin.HoldAdded, Subject: id}, nil, 1)
	return err == nil && len(events) > 0
}

// releaseHold ends a hold.
func (c *Console) releaseHold(req *request) (ui.Address, error) {
	_, err := c.cfg.Holds.Remove(req.ctx(), req.caller, req.Param("id"))
	if fault.Is(err, fault.UnknownHold) {
		return ui.Address{},
			c.refuseHold(req, err, func(p *view.HoldsPage) { p.Notice = "This hold was released before, or there never was one." })
	}
	return ui.Link("audit", "holds"), err
}

// refuseHold returns the error with the page of the holds, to which change adds what was refused.
func (c *Console) refuseHold(req *request, why error, change func(*view.HoldsPage)) error {
	p, err := c.readHolds(req)
	if err != nil {
		return err
	}
	p.Status = fault.HTTPStatus(fault.From(why).Code)
	change(&p)
	return refusedForm{why, p.Page()}
}
