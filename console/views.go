package console

import (
	"net/url"
	"slices"
	"strings"

	"secbox/access/views"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
)

// readViews adds the caller's saved views. Without tokens, all callers are one.
func (c *Console) readViews(req *request, p *view.HistoryPage) error {
	saved, err := c.cfg.Views.List(req.ctx(), req.caller.ID)
	for _, v := range saved {
		query, _ := url.ParseQuery(v.Query) // the page of the view refuses what is wrong
		to := ui.Link("history").WithAll(query)
		p.Views = append(p.Views, view.SavedView{Name: v.Name, To: to, Current: to.String() == p.Here.String()})
	}
	return err
}

// viewOf returns the parameters in the field query of a form, as the page of the history takes
// them.
func (c *Console) viewOf(req *request) (url.Values, error) {
	refused := fault.BadField("query", "is no query of the history; save the view on its page")
	query, err := url.ParseQuery(req.form.Get("query"))
	if err != nil {
		return nil, refused
	}
	for name, values := range query {
		if len(values) != 1 || values[0] == "" || !slices.Contains(listQuery, name) {
			return nil, refused
		}
	}
	var bad fault.Fields
	c.filter(query, &bad)
	searchText(query, &bad)
	view.Columns(query.Get("columns"), &bad)
	return query, bad.Err()
}

// saveView saves the view of a page under a name, in place of the caller's view of this name, if
// any. A refused name comes back with the page.
func (c *Console) saveView(req *request) (ui.Address, error) {
	query, err := c.viewOf(req)
	if err != nil {
		return ui.Address{}, err
	}
	name := strings.TrimSpace(req.form.Get("name"))
	err = c.cfg.Views.Save(req.ctx(), req.caller.ID, views.View{Name: name, Query: query.Encode()})
	if fault.Is(err, fault.InvalidRequest) && view.FieldReason(fault.From(err), "name") != "" {
		return ui.Address{}, c.refuseView(req, query, name, fault.From(err))
	}
	return ui.Link("history").WithAll(query), err
}

// refuseView returns the error with the page of the view and the name that was refused.
func (c *Console) refuseView(req *request, query url.Values, name string, why *fault.Error) error {
	req.query = query
	p, err := c.readHistory(req)
	if err != nil {
		return err
	}
	if err := c.readViews(req, &p); err != nil {
		return err
	}
	p.ViewName, p.ViewProblem = name, why
	return refusedForm{why, ui.Page{Title: "History", Body: view.History(p), Status: fault.HTTPStatus(why.Code)}}
}

// removeView removes a view of the caller, and leads back to the page.
func (c *Console) removeView(req *request) (ui.Address, error) {
	query, err := c.viewOf(req)
	if err != nil {
		return ui.Address{}, err
	}
	return ui.Link("history").WithAll(query), c.cfg.Views.Remove(req.ctx(), req.caller.ID, req.form.Get("name"))
}
