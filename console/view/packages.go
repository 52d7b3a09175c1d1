package view

import (
	"secbox/audit/admin"
	"secbox/console/ui"
	"secbox/packages/library"
	"secbox/packages/registry"
	"secbox/skills"
)

// PackagesPage is a page of agents, of the baselines of an agent, or of the packages of a user.
type PackagesPage struct {
	Pager
	Agent, User string
	Agents      []string
	Baselines   []skills.Pointer
	Packages    []library.Listed
	Counted     int  // packages of the user
	All         bool // the role sees all agents
	SeesAgent   bool // the role may see the baselines of the agent
}

// PackageCrumbs are the pages above a package of a user, with an empty user above a baseline, and
// with an empty agent above the lists.
func PackageCrumbs(agent, user string) []ui.Crumb {
	crumbs := []ui.Crumb{{Label: "Skills", To: ui.Link("skills")}}
	if agent != "" {
		whose := agent
		if user != "" {
			whose += " / " + user
		}
		crumbs = append(crumbs, ui.Crumb{Label: "Packages", To: ui.Link("packages")}, ui.Crumb{Label: whose, To: PackagesLink(agent, user)})
	}
	return crumbs
}

// PackagesLink leads to the packages of a user, or with an empty user to the baselines of an agent.
func PackagesLink(agent, user string) ui.Address {
	return ui.Link("packages").With("agent_id", agent).With("user_id", user)
}

// PackagePage is what is known of one package.
type PackagePage struct {
	Agent, User   string
	Listed        library.Listed
	Own, Baseline *skills.Pointer // nil: there is none
	Changes       []BaselineChange
	OlderChanges  bool
	SeesChanges   bool
	Files         []string
	IsTool        bool
	Entry         registry.Entry   // of this name, if it is published
	Installed     registry.Install // from the registry, if the user has
	Runs          *SkillRuns       // nil: the role may not list execs
}

// BaselineChange is an administrative event about a baseline.
type BaselineChange struct {
	admin.Event
	Digest, Replaced string
}

// Link returns the address of the package, or of a part of it.
func (p PackagePage) Link(parts ...string) ui.Address {
	return ui.Link(append([]string{"packages", p.Agent, p.User, p.Listed.SkillID}, parts...)...)
}

// PackageFilePage is a file of a package.
type PackageFilePage struct {
	Path   string
	Size   int
	Sum    string
	Binary bool
	Text   Excerpt
}

// DiffLine is a line of a unified diff.
type DiffLine struct{ Class, Text string }

// DiffPage is what a user changed.
type DiffPage struct {
	Digest string
	Lines  []DiffLine
	Cut    bool
}

// BaselinePage is what is known of an agent's baseline of a skill.
type BaselinePage struct {
	PackagePage // its agent, skill, changes, files and runs; no user

	Row skills.Pointer
}

// BaselineLink is the address of a baseline, or of a part of it.
func BaselineLink(agent, skill string, parts ...string) ui.Address {
	return ui.Link(append([]string{"baselines", agent, skill}, parts...)...)
}
