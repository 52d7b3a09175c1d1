package console

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"secbox/access/tokens"
	"secbox/api/content"
	"secbox/api/visible"
	"secbox/audit/admin"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
	"secbox/packages/catalog"
	"secbox/packages/library"
	"secbox/packages/registry"
	"secbox/skills"
)

const (
	packageRows = 100 // of a page of packages, baselines or agents
	maxHistory  = 50  // changes of a baseline that a page shows
	diffLines   = 4000
)

// packages lists the packages of a user, or leads to them.
func (c *Console) packages(req *request) (ui.Page, error) {
	p := view.PackagesPage{
		Agent: req.query.Get("agent_id"), User: req.query.Get("user_id"),
		Pager: view.Pager{Here: req.here().With("cursor", "")},
	}
	p.All = req.may(auditors)
	p.SeesAgent = req.caller.Role != tokens.Worker
	after, err := parseNameCursor(req.query.Get("cursor"), p.Here.String())
	if err != nil {
		return ui.Page{}, err
	}
	p.First = after == ""
	page := func() ui.Page {
		return ui.Page{Title: "Packages", Crumbs: view.PackageCrumbs("", ""), Body: view.Packages(p)}
	}
	seen, last := req.door.Skills(), ""
	switch {
	case p.Agent == "" && p.User != "":
		err = fault.BadField("agent_id", "is missing; packages belong to a user of an agent")
	case p.Agent == "":
		p.Agents, last, err = c.agents(req, seen, after)
	case p.User == "":
		if p.Baselines, err = seen.Baselines(req.ctx(), req.caller, p.Agent, after, packageRows); len(p.Baselines) == packageRows {
			last = p.Baselines[packageRows-1].SkillID
		}
	default:
		var all []library.Listed
		if all, err = seen.List(req.ctx(), req.caller, p.Agent, p.User); err != nil {
			break
		}
		p.Counted = len(all)
		from, _ := slices.BinarySearchFunc(all, after+"\x00",
			func(one library.Listed, at string) int { return strings.Compare(one.SkillID, at) })
		if p.Packages = all[from:]; len(p.Packages) > packageRows {
			p.Packages = p.Packages[:packageRows]
			last = p.Packages[packageRows-1].SkillID
		}
	}
	if err != nil {
		return withRefusal(page(), err)
	}
	if last != "" {
		p.SetNext("cursor", nameCursor(last, p.Here.String()))
	}
	return page(), nil
}

// agents returns a page of the agents that the caller may see, and the last one if there may be
// more.
func (c *Console) agents(req *request, seen visible.Skills, after string) (list []string, last string, err error) {
	if req.caller.Role == tokens.AgentAdmin {
		return req.caller.Agents, "", nil
	}
	if !req.may(auditors) {
		return nil, "", nil
	}
	if list, err = seen.View.Agents(req.ctx(), after, packageRows); len(list) == packageRows {
		last = list[packageRows-1]
	}
	return list, last, err
}

// packageOf finds the package of the address.
func (c *Console) packageOf(req *request) (view.PackagePage, library.Owner, error) {
	p := view.PackagePage{Agent: req.Param("agent"), User: req.Param("user"), Listed: library.Listed{SkillID: req.Param("skill")}}
	o, err := req.door.Skills().Owner(req.caller, p.Agent, p.User)
	return p, o, err
}

// onePackage shows a package: its versions, who changed the baseline, its files, and who ran it.
func (c *Console) onePackage(req *request) (ui.Page, error) {
	p, o, err := c.packageOf(req)
	if err != nil {
		return ui.Page{}, err
	}
	seen := req.door.Skills()
	all, err := seen.View.List(req.ctx(), o)
	if err != nil {
		return ui.Page{}, err
	}
	at := slices.IndexFunc(all, func(one library.Listed) bool { return one.SkillID == p.Listed.SkillID })
	if at < 0 {
		return ui.Page{}, fault.New(fault.UnknownSkill, "the user %s of the agent %s has no skill %q; the list has those that there are",
			p.User, p.Agent, ui.Cut(p.Listed.SkillID, 100))
	}
	p.Listed = all[at]
	if p.Own, p.Baseline, err = seen.View.Pointers(req.ctx(), o, p.Listed.SkillID); err != nil {
		return ui.Page{}, err
	}
	if p.Files, err = seen.View.Files(req.ctx(), o, p.Listed.SkillID); err != nil {
		return ui.Page{}, err
	}
	p.IsTool = slices.Contains(p.Files, skills.ManifestFile)
	if p.Entry, err = c.cfg.Registry.Entry(req.ctx(), catalog.Skill, p.Listed.SkillID); err != nil && !fault.Is(err, fault.UnknownEntry) &&
		!fault.Is(err, fault.ReservedSkill) { // the service's own skills are no entries
		return ui.Page{}, err
	}
	if p.Installed, _, err = c.cfg.Registry.Installed(req.ctx(), registry.Owner(o), catalog.Skill, p.Listed.SkillID); err != nil {
		return ui.Page{}, err
	}
	if p.SeesChanges = req.may(auditors); p.SeesChanges {
		if err := c.changesOf(req, &p); err != nil {
			return ui.Page{}, err
		}
	}
	if req.may(readers) {
		if p.Runs, err = c.runsOf(req, p.Listed.SkillID, o.ProjectID()); err != nil {
			return ui.Page{}, err
		}
		p.Runs.Version = p.Listed.Digest
	}
	return ui.Page{
		Title: p.Listed.SkillID, Crumbs: view.PackageCrumbs(p.Agent, p.User), Badge: view.PackageStatus(p.Listed.Status),
		Actions: view.PackageActions(p), Body: view.Package(p),
	}, nil
}

// changesOf reads who changed the baseline of a package, newest first.
func (c *Console) changesOf(req *request, p *view.PackagePage) error {
	events, err := c.cfg.AdminEvents.List(req.ctx(), admin.Filter{Subject: p.Agent + "/" + p.Listed.SkillID}, nil, maxHistory)
	if err != nil {
		return err
	}
	p.OlderChanges = len(events) == maxHistory
	for _, e := range events {
		var data struct {
			Digest   string `json:"digest"`
			Replaced string `json:"replaced_digest"`
		}
		_ = json.Unmarshal([]byte(e.Data), &data) // an event without digests is shown without
		p.Changes = append(p.Changes, view.BaselineChange{Event: e, Digest: data.Digest, Replaced: data.Replaced})
	}
	return nil
}

// packageFile shows a file of a package, if it is text.
func (c *Console) packageFile(req *request) (ui.Page, error) {
	p, o, err := c.packageOf(req)
	if err != nil {
		return ui.Page{}, err
	}
	if req.query.Get("path") == "" {
		return ui.Page{}, fault.BadField("path", "is missing; choose a file on the page of the package")
	}
	read, err := req.door.Skills().View.Read(req.ctx(), o, p.Listed.SkillID, req.query.Get("path"))
	if err != nil {
		return ui.Page{}, err
	}
	crumbs := append(view.PackageCrumbs(p.Agent, p.User), ui.Crumb{Label: p.Listed.SkillID, To: p.Link()})
	return filePage(req, crumbs, read)
}

// filePage shows the file that the address names.
func filePage(req *request, crumbs []ui.Crumb, read []byte) (ui.Page, error) {
	if err := req.door.Reserve(int64(len(read)) + outputPrice*int64(min(len(read), view.MaxText))); err != nil {
		return ui.Page{}, err
	}
	sum := sha256.Sum256(read)
	f := view.PackageFilePage{Path: req.query.Get("path"), Size: len(read), Sum: hex.EncodeToString(sum[:]), Binary: !utf8.Valid(read) ||
		slices.Contains(read, 0)}
	if !f.Binary {
		f.Text = view.NewExcerpt(string(read))
	}
	return ui.Page{Title: ui.Cut(f.Path, 200), Crumbs: crumbs, Body: view.PackageFile(f)}, nil
}

// packageDiff shows how a user's version differs from the baseline that it is based on.
func (c *Console) packageDiff(req *request) (ui.Page, error) {
	p, o, err := c.packageOf(req)
	if err != nil {
		return ui.Page{}, err
	}
	text, digest, err := req.door.Skills().View.Diff(req.ctx(), o, p.Listed.SkillID)
	if err != nil {
		return ui.Page{}, err
	}
	if err := req.door.Reserve(int64(len(text)) + outputPrice*int64(min(len(text), view.MaxText))); err != nil {
		return ui.Page{}, err
	}
	d := view.DiffPage{Digest: digest}
	d.Lines, d.Cut = diffLinesOf(text)
	crumbs := append(view.PackageCrumbs(p.Agent, p.User), ui.Crumb{Label: p.Listed.SkillID, To: p.Link()})
	return ui.Page{Title: "Changes", Crumbs: crumbs, Body: view.Diff(d)}, nil
}

// downloadPackage sends a package as a ZIP, as the API does.
func (c *Console) downloadPackage(req *request, w http.ResponseWriter) error {
	p, o, err := c.packageOf(req)
	if err != nil {
		return err
	}
	packages, r := req.door.Skills().View, req.Request()
	if r.Method == http.MethodHead {
		if _, err := packages.Files(req.ctx(), o, p.Listed.SkillID); err != nil {
			return err
		}
	}
	return content.ServeStream(w, r, "application/zip", p.Listed.SkillID+".zip",
		func() error { return packages.Download(req.ctx(), o, p.Listed.SkillID, w) })
}

// baseline shows an agent's baseline of a skill: its version, who changed it, its files, and who
// ran it.
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
	crumbs := append(view.PackageCrumbs(agent, ""), ui.Crumb{Label: skill, To: view.BaselineLink(agent, skill)})
	return filePage(req, crumbs, read)
}
