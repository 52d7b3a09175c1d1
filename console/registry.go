package console

import (
	"slices"

	"secbox/api/visible"
	"secbox/audit"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
	"secbox/packages/catalog"
	"secbox/packages/registry"
)

const (
	registryRows   = 100 // of a page of entries
	entryEventRows = 50  // of a page of events
)

// entryKind returns the kind of entries; one that does not exist is refused by the registry.
func entryKind(text string) catalog.Kind {
	if text == "agents" {
		return catalog.Agent
	}
	if text == "" || text == "skills" {
		return catalog.Skill
	}
	return catalog.Kind(text)
}

// registry lists or searches the published skills or agents, by name.
func (c *Console) registry(req *request) (ui.Page, error) {
	p := view.RegistryPage{
		Kind: req.query.Get("kind"), Words: req.query.Get("query"),
		Pager: view.Pager{Here: req.here().With("cursor", "")},
	}
	if p.Kind == "" {
		p.Kind = view.RegistryKinds[0]
	}
	after, err := parseNameCursor(req.query.Get("cursor"), p.Here.String())
	if err != nil {
		return ui.Page{}, err
	}
	p.First = after == ""
	page := func() ui.Page {
		return ui.Page{Title: "Registry", Crumbs: view.PackageCrumbs("", ""), Body: view.Registry(p)}
	}
	if p.Rows, err = c.cfg.Registry.Search(req.ctx(), entryKind(p.Kind), p.Words, registry.Owner{}, after, registryRows); err != nil {
		return withRefusal(page(), err)
	}
	if len(p.Rows) == registryRows {
		p.SetNext("cursor", nameCursor(p.Rows[registryRows-1].Name, p.Here.String()))
	}
	return page(), nil
}

// entry shows a published skill or agent. Its record stays after it is withdrawn.
func (c *Console) entry(req *request) (ui.Page, error) {
	name := req.Param("name")
	p := view.RegistryEntryPage{Kind: req.Param("kind"), Pager: view.Pager{Here: req.here().With("cursor", "")}}
	p.SeesEvents = req.may(auditors)
	if !slices.Contains(view.RegistryKinds, p.Kind) {
		return ui.Page{}, fault.New(fault.NotFound, "the registry has skills and agents")
	}
	entry, missing := c.cfg.Registry.Entry(req.ctx(), entryKind(p.Kind), name)
	if missing != nil && (!p.SeesEvents || !fault.Is(missing, fault.UnknownEntry)) {
		return ui.Page{}, missing
	}
	p.Entry = entry
	if p.SeesEvents {
		if err := c.readEntryEvents(req, name, &p); err != nil {
			return ui.Page{}, err
		}
		if missing != nil && len(p.Events) == 0 {
			return ui.Page{}, missing
		}
	}
	return ui.Page{Title: name, Crumbs: append(view.PackageCrumbs("", ""),
		ui.Crumb{Label: "Registry", To: ui.Link("registry").With("kind", p.Kind)}), Body: view.RegistryEntry(p)}, nil
}

// readEntryEvents reads a page of who published, installed and removed a name.
func (c *Console) readEntryEvents(req *request, name string, p *view.RegistryEntryPage) error {
	list := p.Here.String()
	var after *registry.Cursor
	last, err := timeCursor(req.query.Get("cursor"), list)
	if err != nil {
		return err
	}
	if p.First = last == nil; !p.First {
		after = &registry.Cursor{At: last.CreatedAt, ID: last.ExecID}
	}
	if p.Events, err = c.cfg.Registry.Events(req.ctx(), entryKind(p.Kind), name, after, entryEventRows); err != nil {
		return err
	}
	if len(p.Events) == entryEventRows {
		last := p.Events[entryEventRows-1]
		p.SetNext("cursor", visible.EncodeCursor(audit.Cursor{CreatedAt: last.At, ExecID: last.ID}, list))
	}
	p.Names, err = tokenNames(c, req, p.Events, func(e registry.Event) string { return e.RequestedBy })
	return err
}
