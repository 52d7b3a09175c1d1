package console

import (
	"secbox/console/ui"
	"secbox/console/view"
)

const peopleRows = 100 // of a page

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
	p := view.PeoplePage{Rows: rows, Own: v.caller.ID, First: after == "", SignOn: c.cfg.SignOn != nil}
	if len(rows) > peopleRows {
		p.Rows, p.More = rows[:peopleRows], true
		p.Next = v.here().With("after", rows[peopleRows-1].ID)
	}
	return ui.Page{Title: "People", Body: view.People(p)}, nil
}

// blockPerson blocks a person, or ends that.
func (c *Console) blockPerson(v *visit) (ui.Address, error) {
	change := c.cfg.Sessions.Block
	if v.form.Get("unblock") != "" {
		change = c.cfg.Sessions.Unblock
	}
	return ui.Link("people"), change(v.ctx(), v.form.Get("id"))
}
