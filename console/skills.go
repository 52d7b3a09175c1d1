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
	skillRows  = 100 // of a page of the catalog
	maxCounted = 200 // execs of a skill that are counted
	skillRuns  = 10  // that are shown
)

// skillReaders may read the catalog.
var skillReaders = []tokens.Role{tokens.Worker, tokens.Auditor, tokens.AgentAdmin, tokens.Admin}

var skillsQuery = []string{"text", "source", "agent_id", "user_id", "cursor"}

// skills lists the catalog.
func (c *Console) skills(req *request) (ui.Page, error) {
	p := view.SkillsPage{Query: req.query, Pager: view.Pager{Here: req.here().With("cursor", "")}}
	page := func() ui.Page { return ui.Page{Title: "Skills", Body: view.Skills(p)} }
	if source := req.query.Get("source"); source != "" && !slices.Contains(view.SkillSources, source) {
		return withRefusal(page(), fault.BadField("source", "must be one of %s", strings.Join(view.SkillSources, ", ")))
	}
	now, err := c.catalog(req)
	if err != nil {
		return withRefusal(page(), err)
	}
	after, err := parseNameCursor(req.query.Get("cursor"), p.Here.String())
	if err != nil {
		return ui.Page{}, err
	}
	p.Usable, p.Broken, p.First = len(now.Skills()), len(now.Broken()), after == ""
	asked := url.Values{}
	for _, name := range []string{"agent_id", "user_id"} {
		if value := req.query.Get(name); value != "" {
			asked.Set(name, value)
		}
	}
	p.Curl = req.curl(inAPI(asked, "skills"))
	p.Filtered = req.query.Get("text")+req.query.Get("source") != ""
	for _, row := range view.SkillRows(now) {
		switch {
		case row.SortKey() <= after && after != "", !row.Matches(req.query.Get("text"), req.query.Get("source")):
			continue
		case len(p.Rows) == skillRows:
			p.SetNext("cursor", nameCursor(p.Rows[skillRows-1].SortKey(), p.Here.String()))
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
func (c *Console) catalog(req *request) (*skills.Snapshot, error) {
	param := func(name string) *string {
		if s := req.query.Get(name); s != "" {
			return &s
		}
		return nil
	}
	if text := req.query.Get("text"); len(text) > view.MaxSearch {
		return nil, fault.BadField("text", "must be at most %d bytes", view.MaxSearch)
	}
	return req.door.Skills().Of(req.ctx(), req.caller, param("agent_id"), param("user_id"))
}

// noSkill is the error of an id that no usable skill has.
func noSkill(now *skills.Snapshot, id string) error {
	if slices.ContainsFunc(now.Broken(), func(b skills.Broken) bool { return b.Folder == id }) {
		return fault.New(fault.UnknownSkill, "the skill %q is broken; the list of skills shows its problems", ui.Cut(id, 100))
	}
	return fault.New(fault.UnknownSkill, "there is no skill %q; the list of skills has those that there are", ui.Cut(id, 100))
}

// skill shows one skill.
func (c *Console) skill(req *request) (ui.Page, error) {
	now, err := c.catalog(req)
	if err != nil {
		return ui.Page{}, err
	}
	s, err := now.Get(req.Param("id"))
	if fault.Is(err, fault.UnknownSkill) {
		return ui.Page{}, noSkill(now, req.Param("id"))
	}
	if err != nil {
		return ui.Page{}, err
	}
	if err := req.door.Reserve(8*int64(len(s.Raw)) + 4*int64(min(len(s.Readme), view.MaxText)) + 512*int64(len(s.Files))); err != nil {
		return ui.Page{}, err
	}
	p := view.SkillPage{
		Skill: s, Inputs: view.NewParameters(s.Manifest.Interface.Inputs),
		Outputs: view.NewParameters(s.Manifest.Interface.Outputs), Readme: view.NewExcerpt(s.Readme),
	}
	if s.Source == skills.Package {
		p.Agent, p.User = req.query.Get("agent_id"), req.query.Get("user_id")
	}
	if p.Policy, err = c.policyOfSkill(req, s); err != nil {
		p.PolicyProblem = reason(err)
	}
	p.MayInvoke = req.may(workers)
	p.Example = invocation(req, p)
	if req.may(readers) {
		if p.Runs, err = c.runsOf(req, p.ID(), p.Project()); err != nil {
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

// policyOfSkill returns the policy that an invoke without overrides gets on this node, with the
// layer behind every field.
func (c *Console) policyOfSkill(req *request, s *skills.Skill) ([]view.PolicyField, error) {
	snapshot, err := c.cfg.Runner.Resolve(req.ctx(), runner.Request{SkillID: s.ID(), Skill: &runner.Skill{Layer: s.Manifest.Layer()}})
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(snapshot)
	return view.Policy(audit.Record{PolicySnapshot: encoded}), err
}

// runsOf returns the newest execs of a skill, in one project if it is not empty, that the caller
// may see, and counts them by outcome.
func (c *Console) runsOf(req *request, skillID, projectID string) (*view.SkillRuns, error) {
	f := audit.Filter{SkillID: skillID, ProjectID: projectID, Kind: audit.KindExec, Summary: true}
	out := &view.SkillRuns{All: ui.Link("history").With("skill_id", skillID).With("project_id", projectID)}
	rows, next, err := c.cfg.Execs.List(req.ctx(), req.caller, f, nil, maxCounted)
	if err != nil {
		return nil, err
	}
	out.Counted, out.More = len(rows), next != nil
	for _, status := range audit.Statuses {
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
	out.Names, err = tokenNames(c, req, out.Rows, requestedBy)
	return out, err
}

// invocation returns a command that invokes a skill. It has the address of this server as the
// browser knows it.
func invocation(req *request, p view.SkillPage) string {
	project := cmp.Or(p.Project(), "demo")
	lines := []string{"curl -sS " + view.ShellQuote(req.server()+"/skills/"+url.PathEscape(p.ID())+"/invoke")}
	if req.session != "" {
		lines = append(lines, tokenHeader)
	}
	body := `{"project_id": ` + view.JSONString(project) + `, "inputs": ` + view.Example(p.Manifest.Interface.Inputs) + `}`
	lines = append(lines, "-H 'Content-Type: application/json'", "-d "+view.ShellQuote(body))
	return strings.Join(lines, " \\\n  ")
}
