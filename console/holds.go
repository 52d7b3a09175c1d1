package console

import (
	"strings"

	"secbox/admin"
	"secbox/console/ui"
	"secbox/fault"
	"secbox/retention"
	"secbox/tokens"
)

const (
	holdRows     = 50 // of a page
	releasedRows = 10 // the last released holds

	coveredMost = 1000 // execs of a hold that its row counts
)

// holdsPage is a page of the holds.
type holdsPage struct {
	rows     []retention.Hold
	covered  []int             // execs of each row, counted up to coveredMost
	names    map[string]string // of tokens
	released []eventRow        // the last ones
	mayHold  bool              // the visitor is an admin
	first    bool
	more     bool
	next     ui.Address

	asked   holdForm
	problem *fault.Error // why a hold was not released
}

// holdForm is what the form for a new hold asks for, in the API's names.
type holdForm struct {
	kind, value, reason string
	problem             *fault.Error // why it was refused
}

// holds lists the holds that were not released, oldest first.
func (c *Console) holds(v *visit) (ui.Page, error) {
	p, err := c.readHolds(v, v.query.Get("cursor"))
	return p.page(), err
}

func (p holdsPage) page() ui.Page { return ui.Page{Title: "Holds", Body: holdsBody(p)} }

func (c *Console) readHolds(v *visit, cursor string) (holdsPage, error) {
	p := holdsPage{mayHold: v.caller.Role == tokens.Admin, first: cursor == ""}
	var next string
	var err error
	if p.rows, next, err = c.cfg.Holds.List(v.ctx(), cursor, holdRows); err != nil {
		return p, err
	}
	if p.more = next != ""; p.more {
		p.next = ui.Link("audit", "holds").With("cursor", next)
	}
	if p.covered, err = c.cfg.Holds.Covered(v.ctx(), p.rows, coveredMost); err != nil {
		return p, err
	}
	p.asked.kind, p.asked.value = v.query.Get("kind"), v.query.Get("value")
	ids := make([]string, len(p.rows))
	for i, h := range p.rows {
		ids[i] = h.AddedBy
	}
	if p.names, err = c.cfg.Execs.Names(v.ctx(), v.caller, ids...); err != nil {
		return p, err
	}
	events, err := c.cfg.AdminEvents.List(v.ctx(), admin.Filter{Kind: admin.HoldRemoved}, nil, releasedRows)
	if err == nil {
		p.released, err = eventRowsOf(v, events)
	}
	return p, err
}

// addHold places a hold. A refusal comes back with the form as it was sent.
func (c *Console) addHold(v *visit) (ui.Address, error) {
	asked := holdForm{kind: v.form.Get("kind"), value: strings.Trim(v.form.Get("value"), " "), reason: strings.TrimSpace(v.form.Get("reason"))}
	_, err := c.cfg.Holds.Add(v.ctx(), v.caller, retention.HoldKind(asked.kind), asked.value, asked.reason)
	if fault.Is(err, fault.InvalidRequest) {
		asked.problem = fault.From(err)
		return ui.Address{}, c.refuseHold(v, err, func(p *holdsPage) { p.asked = asked })
	}
	return ui.Link("audit", "holds"), err
}

// releaseHold ends a hold.
func (c *Console) releaseHold(v *visit) (ui.Address, error) {
	_, err := c.cfg.Holds.Remove(v.ctx(), v.caller, v.Param("id"))
	if fault.Is(err, fault.UnknownHold) {
		return ui.Address{}, c.refuseHold(v, err, func(p *holdsPage) {
			p.problem = fault.New(fault.UnknownHold, "This hold was released before, or there never was one.")
		})
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
	p, err := c.readHolds(v, "")
	if err != nil {
		return err
	}
	change(&p)
	shown := p.page()
	shown.Status = fault.HTTPStatus(fault.From(why).Code)
	return refusedHold{why, shown}
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
