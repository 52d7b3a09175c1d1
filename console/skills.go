package console

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"secbox/access/tokens"
	"secbox/audit"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
	"secbox/runner"
	"secbox/skills"
)

const (
	skillRows = 100 // of a page of the catalog
	skillLook = 200 // execs of a skill that are counted
	skillRuns = 10  // that are shown
)

// skillReaders may read the catalog.
var skillReaders = []tokens.Role{tokens.Worker, tokens.Auditor, tokens.AgentAdmin, tokens.Admin}

var skillsQuery = []string{"text", "source", "agent_id", "user_id", "cursor"}

// skills lists the catalog.
func (c *Console) skills(v *visit) (ui.Page, error) {
	p := view.SkillsPage{Query: v.query, Here: v.here().With("cursor", "")}
	page := func() ui.Page { return ui.Page{Title: "Skills", Body: view.Skills(p)} }
	if source := v.query.Get("source"); source != "" && !slices.Contains(view.SkillSources, source) {
		return unlessRefused(page(), fault.BadField("source", "must be one of %s", strings.Join(view.SkillSources, ", ")))
	}
	now, err := c.catalog(v)
	if err != nil {
		return unlessRefused(page(), err)
	}
	after, err := parsePlace(v.query.Get("cursor"), p.Here.String())
	if err != nil {
		return ui.Page{}, err
	}
	p.Usable, p.Broken, p.First = len(now.Skills()), len(now.Broken()), after == ""
	asked := url.Values{}
	for _, name := range []string{"agent_id", "user_id"} {
		if value := v.query.Get(name); value != "" {
			asked.Set(name, value)
		}
	}
	p.Curl = v.curl(inAPI(asked, "skills"))
	p.Filtered = v.query.Get("text")+v.query.Get("source") != ""
	for _, row := range view.SkillRows(now) {
		switch {
		case row.SortKey() <= after && after != "", !row.Matches(v.query.Get("text"), v.query.Get("source")):
			continue
		case len(p.Rows) == skillRows:
			p.More, p.Next = true, p.Here.With("cursor", placeText(p.Rows[skillRows-1].SortKey(), p.Here.String()))
		default:
			p.Rows = append(p.Rows, row)
		}
		if p.More {
			break
		}
	}
	return page(), nil
}

// catalog returns the catalog that the address asks for.
func (c *Console) catalog(v *visit) (*skills.Snapshot, error) {
	param := func(name string) *string {
		if s := v.query.Get(name); s != "" {
			return &s
		}
		return nil
	}
	if text := v.query.Get("text"); len(text) > maxSearch {
		return nil, fault.BadField("text", "must be at most %d bytes", maxSearch)
	}
	return v.door.Skills().Of(v.ctx(), v.caller, param("agent_id"), param("user_id"))
}

// noSkill is the error of an id that no usable skill has.
func noSkill(now *skills.Snapshot, id string) error {
	if slices.ContainsFunc(now.Broken(), func(b skills.Broken) bool { return b.Folder == id }) {
		return fault.New(fault.UnknownSkill, "the skill %q is broken; the list of skills shows its problems", ui.Cut(id, 100))
	}
	return fault.New(fault.UnknownSkill, "there is no skill %q; the list of skills has those that there are", ui.Cut(id, 100))
}

// skill shows one skill.
func (c *Console) skill(v *visit) (ui.Page, error) {
	now, err := c.catalog(v)
	if err != nil {
		return ui.Page{}, err
	}
	s, err := now.Get(v.Param("id"))
	if fault.Is(err, fault.UnknownSkill) {
		return ui.Page{}, noSkill(now, v.Param("id"))
	}
	if err != nil {
		return ui.Page{}, err
	}
	if err := v.door.Reserve(8*int64(len(s.Raw)) + 4*int64(min(len(s.Readme), view.MaxText)) + 512*int64(len(s.Files))); err != nil {
		return ui.Page{}, err
	}
	p := view.SkillPage{Skill: s, Inputs: view.NewParameters(s.Manifest.Interface.Inputs), Outputs: view.NewParameters(s.Manifest.Interface.Outputs), Readme: view.NewExcerpt(s.Readme)}
	if s.Source == skills.Package {
		p.Agent, p.User = v.query.Get("agent_id"), v.query.Get("user_id")
	}
	p.MoreFiles = len(s.Files) - view.MaxFiles
	if p.Policy, err = c.policyOfSkill(v, s); err != nil {
		p.PolicyProblem = reason(err)
	}
	p.MayInvoke = slices.Contains(workers, v.caller.Role)
	p.Example = invocation(v, p)
	if slices.Contains(readers, v.caller.Role) {
		if p.Runs, err = c.runsOf(v, p.ID(), p.Project()); err != nil {
			return ui.Page{}, err
		}
		p.Runs.Version = p.Digest
	}
	crumb := ui.Link("skills")
	if p.Agent != "" {
		crumb = crumb.With("agent_id", p.Agent).With("user_id", p.User)
	}
	return ui.Page{Title: s.ID(), Crumbs: []ui.Crumb{{Label: "Skills", To: crumb}}, Badge: view.SkillBadge(true), Body: view.Skill(p)}, nil
}

// policyOfSkill returns the policy that an invoke without overrides gets on this node, with the layer behind every field.
func (c *Console) policyOfSkill(v *visit, s *skills.Skill) ([]view.PolicyField, error) {
	snapshot, err := c.cfg.Runner.Resolve(v.ctx(), runner.Request{SkillID: s.ID(), Skill: &runner.Skill{Layer: s.Manifest.Layer()}})
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(snapshot)
	return view.Policy(audit.Record{PolicySnapshot: encoded}), err
}

// runsOf returns the newest execs of a skill, in one project if it is not empty, that the caller may see, and counts them by outcome.
func (c *Console) runsOf(v *visit, skillID, projectID string) (*view.SkillRuns, error) {
	f := audit.Filter{SkillID: skillID, ProjectID: projectID, Kind: audit.KindExec, Summary: true}
	out := &view.SkillRuns{All: ui.Link("history").With("skill_id", skillID).With("project_id", projectID)}
	rows, next, err := c.cfg.Execs.List(v.ctx(), v.caller, f, nil, skillLook)
	if err != nil {
		return nil, err
	}
	out.Counted, out.More = len(rows), next != nil
	for _, status := range view.Statuses {
		n := 0
		for _, rec := range rows {
			if rec.Status == status {
				n++
			}
		}
		if n > 0 {
			out.Counts = append(out.Counts, view.StatusCount{Status: status, N: n})
		}
	}
	out.Rows = rows[:min(len(rows), skillRuns)]
	ids := make([]string, len(out.Rows))
	for i, rec := range out.Rows {
		ids[i] = rec.RequestedBy
	}
	out.Names, err = c.cfg.Execs.Names(v.ctx(), v.caller, ids...)
	return out, err
}

// invocation returns a command that invokes a skill. It has the address of this server as the browser knows it.
func invocation(v *visit, p view.SkillPage) string {
	scheme := "http"
	if v.door.Secure(v.Request()) {
		scheme = "https"
	}
	project := cmp.Or(p.Project(), "demo")
	lines := []string{"curl -sS " + view.ShellQuote(scheme+"://"+v.Request().Host+"/skills/"+url.PathEscape(p.ID())+"/invoke")}
	if v.session != "" {
		lines = append(lines, `-H "Authorization: Bearer $SECBOX_TOKEN"`)
	}
	body := `{"project_id": ` + view.JSONString(project) + `, "inputs": ` + view.Example(p.Manifest.Interface.Inputs) + `}`
	lines = append(lines, "-H 'Content-Type: application/json'", "-d "+view.ShellQuote(body))
	return strings.Join(lines, " \\\n  ")
}
