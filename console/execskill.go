package console

import (
	"strings"

	"secbox/audit"
	"secbox/console/ui"
)

// skillPart is the skill that an exec ran.
type skillPart struct {
	id, digest string // empty id: none
	catalogued bool   // the catalog has it
	pack       ui.Address
	owner      string // of the package, such as agent / user; empty: it came from no package that the caller may read
}

// execs leads to the execs of the skill, or of this version of it.
func (s skillPart) execs(sameVersion bool) ui.Address {
	to := ui.Link("history").With("skill_id", s.id)
	if sameVersion {
		to = to.With("skill_digest", s.digest)
	}
	return to
}

// skillOf finds the pages of the skill that an exec ran. As an invoke does, it looks in the catalog before the packages of the workspace's user; only a
// command that ran in the folder of a package is certainly of the package.
func (c *Console) skillOf(v *visit, rec audit.Record) (skillPart, error) {
	p := skillPart{id: rec.SkillID, digest: rec.SkillDigest}
	if p.id == "" {
		return p, nil
	}
	seen := v.door.Skills()
	now, err := seen.Of(v.ctx(), v.caller, nil, nil)
	if err != nil {
		return p, err
	}
	_, unknown := now.Get(p.id)
	p.catalogued = unknown == nil
	agent, user, isWorkspace := strings.Cut(rec.ProjectID, "~")
	if !isWorkspace || p.catalogued && rec.Cwd != "/workspace/work/skills/"+p.id {
		return p, nil
	}
	if _, err := seen.Owner(v.caller, agent, user); err == nil {
		p.pack, p.owner = ui.Link("packages", agent, user, p.id), agent+" / "+user
	}
	return p, nil
}
