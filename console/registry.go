package console

import (
	"slices"

	"secbox/api/visible"
	"secbox/audit"
	"secbox/console/ui"
	"secbox/fault"
	"secbox/packages/catalog"
	"secbox/packages/registry"
)

const (
	registryRows   = 100 // of a page of entries
	entryEventRows = 50  // of a page of events
)

// kinds are the choices of what the registry has, as in the paths of the API.
var kinds = []string{"skills", "agents"}

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

// registryPage is a page of what users published.
type registryPage struct {
	kind, words string
	rows        []registry.Entry
	next        ui.Address
	more, first bool
	here        ui.Address
}

// registry lists or searches the published skills or agents, by name.
func (c *Console) registry(v *visit) (ui.Page, error) {
	p := registryPage{kind: v.query.Get("kind"), words: v.query.Get("query"), here: v.here().With("cursor", "")}
	if p.kind == "" {
		p.kind = kinds[0]
	}
	after, err := parsePlace(v.query.Get("cursor"), p.here.String())
	if err != nil {
		return ui.Page{}, err
	}
	p.first = after == ""
	page := func() ui.Page {
		return ui.Page{Title: "Registry", Crumbs: packageCrumbs("", ""), Body: registryBody(p)}
	}
	if p.rows, err = c.cfg.Registry.Search(v.ctx(), entryKind(p.kind), p.words, registry.Owner{}, after, registryRows); err != nil {
		return unlessRefused(page(), err)
	}
	if len(p.rows) == registryRows {
		p.more, p.next = true, p.here.With("cursor", placeText(p.rows[registryRows-1].Name, p.here.String()))
	}
	return page(), nil
}

// entryPage is a published skill or agent, with the record of its name.
type entryPage struct {
	kind       string
	entry      registry.Entry // zero: it is withdrawn
	seesEvents bool
	events     []registry.Event
	names      map[string]string // of tokens
	next       ui.Address
	more       bool
	first      bool
	here       ui.Address
}

// entry shows a published skill or agent. Its record stays after it is withdrawn.
func (c *Console) entry(v *visit) (ui.Page, error) {
	name := v.Param("name")
	p := entryPage{kind: v.Param("kind"), here: v.here().With("cursor", "")}
	p.seesEvents = slices.Contains(auditors, v.caller.Role)
	if !slices.Contains(kinds, p.kind) {
		return ui.Page{}, fault.New(fault.NotFound, "the registry has skills and agents")
	}
	entry, missing := c.cfg.Registry.Entry(v.ctx(), entryKind(p.kind), name)
	if missing != nil && (!p.seesEvents || !fault.Is(missing, fault.UnknownEntry)) {
		return ui.Page{}, missing
	}
	p.entry = entry
	if p.seesEvents {
		if err := c.readEntryEvents(v, name, &p); err != nil {
			return ui.Page{}, err
		}
		if missing != nil && len(p.events) == 0 {
			return ui.Page{}, missing
		}
	}
	return ui.Page{Title: name, Crumbs: append(packageCrumbs("", ""), ui.Crumb{Label: "Registry", To: ui.Link("registry").With("kind", p.kind)}), Body: entryBody(p)}, nil
}

// readEntryEvents reads a page of who published, installed and removed a name.
func (c *Console) readEntryEvents(v *visit, name string, p *entryPage) error {
	list := p.here.String()
	var after *registry.Cursor
	if s := v.query.Get("cursor"); s != "" {
		last, err := visible.DecodeCursor(s, list)
		if err != nil {
			return err
		}
		after = &registry.Cursor{At: last.CreatedAt, ID: last.ExecID}
	}
	p.first = after == nil
	var err error
	if p.events, err = c.cfg.Registry.Events(v.ctx(), entryKind(p.kind), name, after, entryEventRows); err != nil {
		return err
	}
	if len(p.events) == entryEventRows {
		last := p.events[entryEventRows-1]
		p.more, p.next = true, p.here.With("cursor", visible.EncodeCursor(audit.Cursor{CreatedAt: last.At, ExecID: last.ID}, list))
	}
	ids := make([]string, len(p.events))
	for i, e := range p.events {
		ids[i] = e.RequestedBy
	}
	p.names, err = c.cfg.Execs.Names(v.ctx(), v.caller, ids...)
	return err
}
