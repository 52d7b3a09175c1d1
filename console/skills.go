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
	"secbox/fault"
	"secbox/runner"
	"secbox/skills"
)

const (
	skillRows   = 100       // of a page of the catalog
	skillLook   = 200       // execs of a skill that are counted
	skillRuns   = 10        // that are shown
	maxProblems = 20        // of a broken skill
	maxFiles    = 500       // of a skill or a package
	maxText     = 256 << 10 // bytes of a file that are shown
)

// skillReaders may read the catalog.
var skillReaders = []tokens.Role{tokens.Worker, tokens.Auditor, tokens.AgentAdmin, tokens.Admin}

var skillsQuery = []string{"text", "source", "agent_id", "user_id", "cursor"}

// sources are the choices of the filter of the catalog.
var sources = []string{skills.BuiltIn, skills.SkillsDir, skills.Package}

// skillsPage is a page of the catalog.
type skillsPage struct {
	query    url.Values
	here     ui.Address // without the cursor
	rows     []skillRow
	usable   int // in the whole catalog
	broken   int
	next     ui.Address
	more     bool
	first    bool
	filtered bool
	curl     string // gets the whole catalog from the API
}

// skillRow is a skill, or a folder that cannot be used as one.
type skillRow struct {
	name     string // the id, or the name of the folder
	source   string
	skill    *skills.Skill // nil: it is broken
	problems []skills.Problem
}

// place orders the rows, and is the place of a page.
func (r skillRow) place() string {
	state := "0"
	if r.skill == nil {
		state = "1"
	}
	return r.name + "\x00" + state + r.source
}

// skills lists the catalog.
func (c *Console) skills(v *visit) (ui.Page, error) {
	p := skillsPage{query: v.query, here: v.here().With("cursor", "")}
	page := func() ui.Page { return ui.Page{Title: "Skills", Body: skillsBody(p)} }
	if source := v.query.Get("source"); source != "" && !slices.Contains(sources, source) {
		return unlessRefused(page(), fault.BadField("source", "must be one of %s", strings.Join(sources, ", ")))
	}
	now, err := c.catalog(v)
	if err != nil {
		return unlessRefused(page(), err)
	}
	after, err := parsePlace(v.query.Get("cursor"), p.here.String())
	if err != nil {
		return ui.Page{}, err
	}
	p.usable, p.broken, p.first = len(now.Skills()), len(now.Broken()), after == ""
	asked := url.Values{}
	for _, name := range []string{"agent_id", "user_id"} {
		if value := v.query.Get(name); value != "" {
			asked.Set(name, value)
		}
	}
	p.curl = v.curl(inAPI(asked, "skills"))
	p.filtered = v.query.Get("text")+v.query.Get("source") != ""
	for _, row := range skillRowsOf(now) {
		switch {
		case row.place() <= after && after != "", !row.matches(v.query.Get("text"), v.query.Get("source")):
			continue
		case len(p.rows) == skillRows:
			p.more, p.next = true, p.here.With("cursor", placeText(p.rows[skillRows-1].place(), p.here.String()))
		default:
			p.rows = append(p.rows, row)
		}
		if p.more {
			break
		}
	}
	return page(), nil
}

// skillRowsOf returns all skills and broken folders by name.
func skillRowsOf(now *skills.Snapshot) []skillRow {
	rows := make([]skillRow, 0, len(now.Skills())+len(now.Broken()))
	for _, s := range now.Skills() {
		rows = append(rows, skillRow{name: s.ID(), source: s.Source, skill: s})
	}
	for _, b := range now.Broken() {
		rows = append(rows, skillRow{name: b.Folder, source: b.Source, problems: b.Problems})
	}
	slices.SortFunc(rows, func(a, b skillRow) int { return cmp.Compare(a.place(), b.place()) })
	return rows
}

func (r skillRow) matches(words, source string) bool {
	if source != "" && r.source != source {
		return false
	}
	all := r.name
	if r.skill != nil {
		all += " " + r.skill.Manifest.Name + " " + r.skill.Manifest.Description
	}
	all = strings.ToLower(all)
	for word := range strings.FieldsSeq(strings.ToLower(words)) {
		if !strings.Contains(all, word) {
			return false
		}
	}
	return true
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

// repairOf says how a broken folder is repaired.
func repairOf(source string) string {
	switch source {
	case skills.SkillsDir:
		return "Repair the file in the folder of the setting sandbox.skills_dir: the server notices it within two seconds. core-api skills lint checks the folder before."
	case skills.Package:
		return "Upload a repaired package, or edit its files."
	}
	return "This skill is part of the program: install a version of core-api in which it is whole."
}

// skillPage is what is known of one skill.
type skillPage struct {
	*skills.Skill
	agent, user     string // whose package it is; empty: it is of the catalog
	inputs, outputs parameters
	policy          []policyField
	policyProblem   string
	example         string // the command that invokes it
	mayInvoke       bool
	runs            *runsPanel // nil: the role may not list execs
	readme          shownText
	moreFiles       int
}

// noSkill is the error of an id that no usable skill has.
func noSkill(now *skills.Snapshot, id string) error {
	if slices.ContainsFunc(now.Broken(), func(b skills.Broken) bool { return b.Folder == id }) {
		return fault.New(fault.UnknownSkill, "the skill %q is broken; the list of skills shows its problems", ui.Cut(id, 100))
	}
	return fault.New(fault.UnknownSkill, "there is no skill %q; the list of skills has those that there are", ui.Cut(id, 100))
}

// project is the workspace of the package; empty for a skill of the catalog.
func (p skillPage) project() string {
	if p.agent == "" {
		return ""
	}
	return p.agent + "~" + p.user
}

// shownText is the beginning of a text.
type shownText struct {
	text string
	cut  bool
}

func showText(text string) shownText {
	if len(text) <= maxText {
		return shownText{text: text}
	}
	return shownText{text: string(wholeCharacters([]byte(text[:maxText]))), cut: true}
}

// runsPanel is who ran a skill.
type runsPanel struct {
	rows    []audit.Record
	names   map[string]string // of tokens
	counts  []statusCount
	looked  int
	more    bool // there are older ones
	all     ui.Address
	version string // the digest of the version on the page
}

// statusCount is how many of the newest execs ended in a state.
type statusCount struct {
	status audit.Status
	n      int
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
	if err := v.door.Reserve(8*int64(len(s.Raw)) + 4*int64(min(len(s.Readme), maxText)) + 512*int64(len(s.Files))); err != nil {
		return ui.Page{}, err
	}
	p := skillPage{Skill: s, inputs: parametersOf(s.Manifest.Interface.Inputs), outputs: parametersOf(s.Manifest.Interface.Outputs), readme: showText(s.Readme)}
	if s.Source == skills.Package {
		p.agent, p.user = v.query.Get("agent_id"), v.query.Get("user_id")
	}
	p.moreFiles = len(s.Files) - maxFiles
	if p.policy, err = c.policyOfSkill(v, s); err != nil {
		p.policyProblem = reason(err)
	}
	p.mayInvoke = slices.Contains(workers, v.caller.Role)
	p.example = invocation(v, p)
	if slices.Contains(readers, v.caller.Role) {
		if p.runs, err = c.runsOf(v, p.ID(), p.project()); err != nil {
			return ui.Page{}, err
		}
		p.runs.version = p.Digest
	}
	crumb := ui.Link("skills")
	if p.agent != "" {
		crumb = crumb.With("agent_id", p.agent).With("user_id", p.user)
	}
	return ui.Page{Title: s.ID(), Crumbs: []ui.Crumb{{Label: "Skills", To: crumb}}, Badge: skillState(true), Body: skillBody(p)}, nil
}

// policyOfSkill returns the policy that an invoke without overrides gets on this node, with the layer behind every field.
func (c *Console) policyOfSkill(v *visit, s *skills.Skill) ([]policyField, error) {
	snapshot, err := c.cfg.Runner.Resolve(v.ctx(), runner.Request{SkillID: s.ID(), Skill: &runner.Skill{Layer: s.Manifest.Layer()}})
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(snapshot)
	return policyOf(audit.Record{PolicySnapshot: encoded}), err
}

// runsOf returns the newest execs of a skill, in one project if it is not empty, that the caller may see, and counts them by outcome.
func (c *Console) runsOf(v *visit, skillID, projectID string) (*runsPanel, error) {
	f := audit.Filter{SkillID: skillID, ProjectID: projectID, Kind: audit.KindExec, Summary: true}
	out := &runsPanel{all: ui.Link("history").With("skill_id", skillID).With("project_id", projectID)}
	rows, next, err := c.cfg.Execs.List(v.ctx(), v.caller, f, nil, skillLook)
	if err != nil {
		return nil, err
	}
	out.looked, out.more = len(rows), next != nil
	for _, status := range statuses {
		n := 0
		for _, rec := range rows {
			if rec.Status == status {
				n++
			}
		}
		if n > 0 {
			out.counts = append(out.counts, statusCount{status: status, n: n})
		}
	}
	out.rows = rows[:min(len(rows), skillRuns)]
	ids := make([]string, len(out.rows))
	for i, rec := range out.rows {
		ids[i] = rec.RequestedBy
	}
	out.names, err = c.cfg.Execs.Names(v.ctx(), v.caller, ids...)
	return out, err
}

// invocation returns a command that invokes a skill. It has the address of this server as the browser knows it.
func invocation(v *visit, p skillPage) string {
	scheme := "http"
	if v.door.Secure(v.Request()) {
		scheme = "https"
	}
	project := cmp.Or(p.project(), "demo")
	lines := []string{"curl -sS " + quoted(scheme+"://"+v.Request().Host+"/skills/"+url.PathEscape(p.ID())+"/invoke")}
	if v.session != "" {
		lines = append(lines, `-H "Authorization: Bearer $SECBOX_TOKEN"`)
	}
	body := `{"project_id": ` + jsonText(project) + `, "inputs": ` + exampleOf(p.Manifest.Interface.Inputs) + `}`
	lines = append(lines, "-H 'Content-Type: application/json'", "-d "+quoted(body))
	return strings.Join(lines, " \\\n  ")
}

// startsWith is the command of a skill, as the manifest has it.
func startsWith(s *skills.Skill) string {
	words := make([]string, len(s.Manifest.Runtime.Entrypoint))
	for i, word := range s.Manifest.Runtime.Entrypoint {
		words[i] = quoted(word)
	}
	return strings.Join(words, " ")
}
