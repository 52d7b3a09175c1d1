package view

import "secbox/console/ui"

// ExecSkill is the skill that an exec ran.
type ExecSkill struct {
	ID, Digest string // empty id: none
	Catalogued bool   // the catalog has it
	Package    ui.Address
	Owner      string // of the package, such as agent / user; empty: it came from no package that the caller may read
}

// execs leads to the execs of the skill, or of this version of it.
func (s ExecSkill) execs(sameVersion bool) ui.Address {
	to := ui.Link("history").With("skill_id", s.ID)
	if sameVersion {
		to = to.With("skill_digest", s.Digest)
	}
	return to
}
