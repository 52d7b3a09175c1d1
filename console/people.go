package console

import (
	"secbox/access/sessions"
	"secbox/console/ui"
)

const peopleRows = 100 // of a page

// peoplePage is a page of the people, newest first.
type peoplePage struct {
	rows  []sessions.Person
	own   string // id of the visitor
	next  ui.Address
	more  bool
	first bool

	signOn bool // single sign-on is set up
}

// navIfSignOn is the label of a page that has no content without single sign-on: then it is not in the navigation.
func (c *Console) navIfSignOn(label string) string {
	if c.cfg.SignOn == nil {
		return ""
	}
	return label
}

// people lists who signed in by single sign-on.
func (c *Console) people(v *visit) (ui.Page, error) {
	after := v.query.Get("after")
	rows, err := c.cfg.Sessions.People(v.ctx(), after, peopleRows+1)
	if err != nil {
		return ui.Page{}, err
	}
	p := peoplePage{rows: rows, own: v.caller.ID, first: after == "", signOn: c.cfg.SignOn != nil}
	if len(rows) > peopleRows {
		p.rows, p.more = rows[:peopleRows], true
		p.next = v.here().With("after", rows[peopleRows-1].ID)
	}
	return ui.Page{Title: "People", Body: peopleBody(p)}, nil
}

// blockPerson blocks a person, or ends that.
func (c *Console) blockPerson(v *visit) (ui.Address, error) {
	change := c.cfg.Sessions.Block
	if v.form.Get("unblock") != "" {
		change = c.cfg.Sessions.Unblock
	}
	return ui.Link("people"), change(v.ctx(), v.form.Get("id"))
}
