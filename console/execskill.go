package console

import (
	"strings"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/console/view"
)

// skillOf finds the pages of the skill that an exec ran. As an invoke does, it searches the catalog before the packages of the workspace's user; only a
// command that ran in the folder of a package is certainly of the package.
func (c *Console) skillOf(req *request, rec audit.Record) (view.ExecSkill, error) {
	p := view.ExecSkill{ID: rec.SkillID, Digest: rec.SkillDigest}
	if p.ID == "" {
		return p, nil
	}
	seen := req.door.Skills()
	now, err := seen.Of(req.ctx(), req.caller, nil, nil)
	if err != nil {
		return p, err
	}
	_, unknown := now.Get(p.ID)
	p.Catalogued = unknown == nil
	agent, user, isWorkspace := strings.Cut(rec.ProjectID, "~")
	if !isWorkspace || p.Catalogued && rec.Cwd != "/workspace/work/skills/"+p.ID {
		return p, nil
	}
	if _, err := seen.Owner(req.caller, agent, user); err == nil {
		p.Package, p.Owner = ui.Link("packages", agent, user, p.ID), agent+" / "+user
	}
	return p, nil
}
