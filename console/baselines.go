package console

import (
	"slices"

	"secbox/console/ui"
	"secbox/fault"
	"secbox/skills"
)

// baselinePage is what is known of an agent's baseline of a skill.
type baselinePage struct {
	packagePage // its agent, skill, changes, files and runs; no user

	row skills.Pointer
}

// baselineLink is the address of a baseline, or of a part of it.
func baselineLink(agent, skill string, parts ...string) ui.Address {
	return ui.Link(append([]string{"baselines", agent, skill}, parts...)...)
}

// baseline shows an agent's baseline of a skill: its version, who changed it, its files, and who ran it.
func (c *Console) baseline(v *visit) (ui.Page, error) {
	p := baselinePage{}
	p.agent, p.one.SkillID = v.Param("agent"), v.Param("skill")
	var err error
	if p.row, p.files, err = v.door.Skills().Baseline(v.ctx(), v.caller, p.agent, p.one.SkillID); err != nil {
		return ui.Page{}, err
	}
	if p.moreFiles = len(p.files) - maxFiles; p.moreFiles > 0 {
		p.files = p.files[:maxFiles]
	}
	if p.seesChanges = slices.Contains(auditors, v.caller.Role); p.seesChanges {
		if err := c.changesOf(v, &p.packagePage); err != nil {
			return ui.Page{}, err
		}
	}
	crumbs := append(packageCrumbs("", ""), ui.Crumb{Label: "Packages", To: ui.Link("packages")}, ui.Crumb{Label: p.agent, To: packagesOf(p.agent, "")})
	return ui.Page{Title: p.one.SkillID, Crumbs: crumbs, Body: baselineBody(p)}, nil
}

// baselineFile shows a file of a baseline, if it is text.
func (c *Console) baselineFile(v *visit) (ui.Page, error) {
	agent, skill := v.Param("agent"), v.Param("skill")
	if v.query.Get("path") == "" {
		return ui.Page{}, fault.BadField("path", "is missing; choose a file on the page of the baseline")
	}
	read, err := v.door.Skills().ReadBaseline(v.ctx(), v.caller, agent, skill, v.query.Get("path"))
	if err != nil {
		return ui.Page{}, err
	}
	f, err := shownFileOf(v, read)
	if err != nil {
		return ui.Page{}, err
	}
	crumbs := append(packageCrumbs("", ""), ui.Crumb{Label: "Packages", To: ui.Link("packages")}, ui.Crumb{Label: agent, To: packagesOf(agent, "")}, ui.Crumb{Label: skill, To: baselineLink(agent, skill)})
	return ui.Page{Title: ui.Cut(f.path, 200), Crumbs: crumbs, Body: fileBody(f)}, nil
}
