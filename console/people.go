package console

import (
	"secbox/console/ui"
	"secbox/console/view"
)

const peopleRows = 100 // of a page

// navIfSignOn is the label of a page that has no content without single sign-on: then it is not in
// the navigation.
func (c *Console) navIfSignOn(label string) string {
	if c.cfg.SignOn == nil {
		return ""
	}
	return label
}

// people lists who signed in by single sign-on.
func (c *Console) people(req *request) (ui.Page, error) {
	after := req.query.Get("after")
	rows, err := c.cfg.Sessions.People(req.ctx(), after, peopleRows+1)
	if err != nil {
		return ui.Page{}, err
	}
	p := view.PeoplePage{
		Rows: rows, Own: req.caller.ID, Pager: view.Pager{First: after == "", Here: ui.Link("people")},
		SignOn: c.cfg.SignOn != nil,
	}
	if len(rows) > peopleRows {
		p.Rows = rows[:peopleRows]
		p.SetNext("after", rows[peopleRows-1].ID)
	}
	return ui.Page{Title: "People", Body: view.People(p)}, nil
}

// blockPerson blocks a person, or ends that.
func (c *Console) blockPerson(req *request) (ui.Address, error) {
	change := c.cfg.Sessions.Block
	if req.form.Get("unblock") != "" {
		change = c.cfg.Sessions.Unblock
	}
	return ui.Link("people"), change(req.ctx(), req.form.Get("id"))
}
