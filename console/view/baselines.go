package view

import (
	"secbox/console/ui"
	"secbox/skills"
)

// BaselinePage is what is known of an agent's baseline of a skill.
type BaselinePage struct {
	PackagePage // its agent, skill, changes, files and runs; no user

	Row skills.Pointer
}

// BaselineLink is the address of a baseline, or of a part of it.
func BaselineLink(agent, skill string, parts ...string) ui.Address {
	return ui.Link(append([]string{"baselines", agent, skill}, parts...)...)
}
