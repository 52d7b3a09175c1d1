package console

import (
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
)

// baseline shows an agent's baseline of a skill: its version, who changed it, its files, and who ran it.
func (c *Console) baseline(req *request) (ui.Page, error) {
	p := view.BaselinePage{}
	p.Agent, p.Listed.SkillID = req.Param("agent"), req.Param("skill")
	var err error
	if p.Row, p.Files, err = req.door.Skills().Baseline(req.ctx(), req.caller, p.Agent, p.Listed.SkillID); err != nil {
		return ui.Page{}, err
	}
	if p.SeesChanges = req.may(auditors); p.SeesChanges {
		if err := c.changesOf(req, &p.PackagePage); err != nil {
			return ui.Page{}, err
		}
	}
	return ui.Page{Title: p.Listed.SkillID, Crumbs: view.PackageCrumbs(p.Agent, ""), Body: view.Baseline(p)}, nil
}

// baselineFile shows a file of a baseline, if it is text.
func (c *Console) baselineFile(req *request) (ui.Page, error) {
	agent, skill := req.Param("agent"), req.Param("skill")
	if req.query.Get("path") == "" {
		return ui.Page{}, fault.BadField("path", "is missing; choose a file on the page of the baseline")
	}
	read, err := req.door.Skills().ReadBaseline(req.ctx(), req.caller, agent, skill, req.query.Get("path"))
	if err != nil {
		return ui.Page{}, err
	}
	f, err := shownFileOf(req, read)
	if err != nil {
		return ui.Page{}, err
	}
	crumbs := append(view.PackageCrumbs(agent, ""), ui.Crumb{Label: skill, To: view.BaselineLink(agent, skill)})
	return ui.Page{Title: ui.Cut(f.Path, 200), Crumbs: crumbs, Body: view.PackageFile(f)}, nil
}
