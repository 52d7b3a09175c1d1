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

// packagesPage is a page of agents, of the baselines of an agent, or of the packages of a user.
type packagesPage struct {
	agent, user string
	agents      []string
	baselines   []skills.Pointer
	packages    []library.Listed
	counted     int  // packages of the user
	all         bool // the role sees all agents
	seesAgent   bool // the role may see the baselines of the agent
	next        ui.Address
	more        bool
	first       bool
	here        ui.Address
}

// packages lists the packages of a user, or leads to them.
func (c *Console) packages(v *visit) (ui.Page, error) {
	p := packagesPage{agent: v.query.Get("agent_id"), user: v.query.Get("user_id"), here: v.here().With("cursor", "")}
	p.all = slices.Contains(auditors, v.caller.Role)
	p.seesAgent = v.caller.Role != tokens.Worker
	after, err := parsePlace(v.query.Get("cursor"), p.here.String())
	if err != nil {
		return ui.Page{}, err
	}
	p.first = after == ""
	page := func() ui.Page {
		return ui.Page{Title: "Packages", Crumbs: packageCrumbs("", ""), Body: packagesBody(p)}
	}
	seen, last := v.door.Skills(), ""
	switch {
	case p.agent == "" && p.user != "":
		err = fault.BadField("agent_id", "is missing; packages belong to a user of an agent")
	case p.agent == "":
		p.agents, last, err = c.agents(v, seen, after)
	case p.user == "":
		if p.baselines, err = seen.Baselines(v.ctx(), v.caller, p.agent, after, packageRows); len(p.baselines) == packageRows {
			last = p.baselines[packageRows-1].SkillID
		}
	default:
		var all []library.Listed
		if all, err = seen.List(v.ctx(), v.caller, p.agent, p.user); err != nil {
			break
		}
		p.counted = len(all)
		from, _ := slices.BinarySearchFunc(all, after+"\x00", func(one library.Listed, at string) int { return strings.Compare(one.SkillID, at) })
		if p.packages = all[from:]; len(p.packages) > packageRows {
			p.packages = p.packages[:packageRows]
			last = p.packages[packageRows-1].SkillID
		}
	}
	if err != nil {
		return unlessRefused(page(), err)
	}
	if last != "" {
		p.more, p.next = true, p.here.With("cursor", placeText(last, p.here.String()))
	}
	return page(), nil
}

// agents returns a page of the agents that the caller may look at, and the last one if there may be more.
func (c *Console) agents(v *visit, seen visible.Skills, after string) (list []string, last string, err error) {
	if v.caller.Role == tokens.AgentAdmin {
		return v.caller.Agents, "", nil
	}
	if !slices.Contains(auditors, v.caller.Role) {
		return nil, "", nil
	}
	if list, err = seen.View.Agents(v.ctx(), after, packageRows); len(list) == packageRows {
		last = list[packageRows-1]
	}
	return list, last, err
}

func packageCrumbs(agent, user string) []ui.Crumb {
	crumbs := []ui.Crumb{{Label: "Skills", To: ui.Link("skills")}}
	if agent != "" {
		crumbs = append(crumbs, ui.Crumb{Label: "Packages", To: ui.Link("packages")}, ui.Crumb{Label: agent + " / " + user, To: packagesOf(agent, user)})
	}
	return crumbs
}

// packagesOf leads to the packages of a user, or with an empty user to the baselines of an agent.
func packagesOf(agent, user string) ui.Address {
	return ui.Link("packages").With("agent_id", agent).With("user_id", user)
}

// packagePage is what is known of one package.
type packagePage struct {
	agent, user    string
	one            library.Listed
	mine, baseline *skills.Pointer // nil: there is none
	changes        []baselineChange
	olderChanges   bool
	seesChanges    bool
	files          []string
	moreFiles      int
	isTool         bool
	entry          registry.Entry   // of this name, if it is published
	installed      registry.Install // from the registry, if the user has
	runs           *runsPanel       // nil: the role may not list execs
}

// baselineChange is an administrative event about a baseline.
type baselineChange struct {
	admin.Event
	digest, replaced string
}

// to returns the address of the package, or of a part of it.
func (p packagePage) to(parts ...string) ui.Address {
	return ui.Link(append([]string{"packages", p.agent, p.user, p.one.SkillID}, parts...)...)
}

// packageOf finds the package of the address.
func (c *Console) packageOf(v *visit) (packagePage, library.Owner, error) {
	p := packagePage{agent: v.Param("agent"), user: v.Param("user"), one: library.Listed{SkillID: v.Param("skill")}}
	o, err := v.door.Skills().Owner(v.caller, p.agent, p.user)
	return p, o, err
}

// onePackage shows a package: its versions, who changed the baseline, its files, and who ran it.
func (c *Console) onePackage(v *visit) (ui.Page, error) {
	p, o, err := c.packageOf(v)
	if err != nil {
		return ui.Page{}, err
	}
	seen := v.door.Skills()
	all, err := seen.View.List(v.ctx(), o)
	if err != nil {
		return ui.Page{}, err
	}
	at := slices.IndexFunc(all, func(one library.Listed) bool { return one.SkillID == p.one.SkillID })
	if at < 0 {
		return ui.Page{}, fault.New(fault.UnknownSkill, "the user %s of the agent %s has no skill %q; the list has those that there are", p.user, p.agent, ui.Cut(p.one.SkillID, 100))
	}
	p.one = all[at]
	if p.mine, p.baseline, err = seen.View.Pointers(v.ctx(), o, p.one.SkillID); err != nil {
		return ui.Page{}, err
	}
	if p.files, err = seen.View.Files(v.ctx(), o, p.one.SkillID); err != nil {
		return ui.Page{}, err
	}
	p.isTool = slices.Contains(p.files, skills.ManifestFile)
	if p.moreFiles = len(p.files) - maxFiles; p.moreFiles > 0 {
		p.files = p.files[:maxFiles]
	}
	if p.entry, err = c.cfg.Registry.Entry(v.ctx(), catalog.Skill, p.one.SkillID); err != nil && !fault.Is(err, fault.UnknownEntry) {
		return ui.Page{}, err
	}
	if p.installed, _, err = c.cfg.Registry.Installed(v.ctx(), registry.Owner(o), catalog.Skill, p.one.SkillID); err != nil {
		return ui.Page{}, err
	}
	if p.seesChanges = slices.Contains(auditors, v.caller.Role); p.seesChanges {
		if err := c.changesOf(v, &p); err != nil {
			return ui.Page{}, err
		}
	}
	if slices.Contains(readers, v.caller.Role) {
		if p.runs, err = c.runsOf(v, p.one.SkillID, o.ProjectID()); err != nil {
			return ui.Page{}, err
		}
		p.runs.version = p.one.Digest
	}
	return ui.Page{Title: p.one.SkillID, Crumbs: packageCrumbs(p.agent, p.user), Badge: packageStatus(p.one.Status), Actions: packageActions(p), Body: packageBody(p)}, nil
}

// changesOf reads who changed the baseline of a package, newest first.
func (c *Console) changesOf(v *visit, p *packagePage) error {
	events, err := c.cfg.AdminEvents.List(v.ctx(), admin.Filter{Subject: p.agent + "/" + p.one.SkillID}, nil, maxHistory)
	if err != nil {
		return err
	}
	p.olderChanges = len(events) == maxHistory
	for _, e := range events {
		var data struct {
			Digest   string `json:"digest"`
			Replaced string `json:"replaced_digest"`
		}
		_ = json.Unmarshal([]byte(e.Data), &data) // an event without digests is shown without
		p.changes = append(p.changes, baselineChange{Event: e, digest: data.Digest, replaced: data.Replaced})
	}
	return nil
}

// filePage is a file of a package.
type filePage struct {
	path   string
	size   int
	sum    string
	binary bool
	text   shownText
}

// packageFile shows a file of a package, if it is text.
func (c *Console) packageFile(v *visit) (ui.Page, error) {
	p, o, err := c.packageOf(v)
	if err != nil {
		return ui.Page{}, err
	}
	if v.query.Get("path") == "" {
		return ui.Page{}, fault.BadField("path", "is missing; choose a file on the page of the package")
	}
	read, err := v.door.Skills().View.Read(v.ctx(), o, p.one.SkillID, v.query.Get("path"))
	if err != nil {
		return ui.Page{}, err
	}
	f, err := shownFileOf(v, read)
	if err != nil {
		return ui.Page{}, err
	}
	crumbs := append(packageCrumbs(p.agent, p.user), ui.Crumb{Label: p.one.SkillID, To: p.to()})
	return ui.Page{Title: ui.Cut(f.path, 200), Crumbs: crumbs, Body: fileBody(f)}, nil
}

// shownFileOf prepares the file that the address names for its page.
func shownFileOf(v *visit, read []byte) (filePage, error) {
	if err := v.door.Reserve(int64(len(read)) + outputPrice*int64(min(len(read), maxText))); err != nil {
		return filePage{}, err
	}
	sum := sha256.Sum256(read)
	f := filePage{path: v.query.Get("path"), size: len(read), sum: hex.EncodeToString(sum[:]), binary: !utf8.Valid(read) || slices.Contains(read, 0)}
	if !f.binary {
		f.text = showText(string(read))
	}
	return f, nil
}

// diffLine is a line of a unified diff.
type diffLine struct{ class, text string }

// diffPage is what a user changed.
type diffPage struct {
	digest string
	lines  []diffLine
	cut    bool
}

// packageDiff shows how a user's version differs from the baseline that it is based on.
func (c *Console) packageDiff(v *visit) (ui.Page, error) {
	p, o, err := c.packageOf(v)
	if err != nil {
		return ui.Page{}, err
	}
	text, digest, err := v.door.Skills().View.Diff(v.ctx(), o, p.one.SkillID)
	if err != nil {
		return ui.Page{}, err
	}
	if err := v.door.Reserve(int64(len(text)) + outputPrice*int64(min(len(text), maxText))); err != nil {
		return ui.Page{}, err
	}
	d := diffPage{digest: digest}
	shown := showText(text)
	d.cut = shown.cut
	for line := range strings.Lines(shown.text) {
		if len(d.lines) == diffLines {
			d.cut = true
			break
		}
		one := diffLine{text: strings.TrimSuffix(line, "\n")}
		switch {
		case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"), strings.HasPrefix(line, "Binary files"):
			one.class = "t-bold"
		case strings.HasPrefix(line, "+"):
			one.class = "t-f2"
		case strings.HasPrefix(line, "-"):
			one.class = "t-f1"
		case strings.HasPrefix(line, "@@"):
			one.class = "t-dim"
		}
		d.lines = append(d.lines, one)
	}
	crumbs := append(packageCrumbs(p.agent, p.user), ui.Crumb{Label: p.one.SkillID, To: p.to()})
	return ui.Page{Title: "Changes", Crumbs: crumbs, Body: diffBody(d)}, nil
}

// downloadPackage sends a package as a ZIP, as the API does.
func (c *Console) downloadPackage(v *visit, w http.ResponseWriter) error {
	p, o, err := c.packageOf(v)
	if err != nil {
		return err
	}
	packages, r := v.door.Skills().View, v.Request()
	if r.Method == http.MethodHead {
		if _, err := packages.Files(v.ctx(), o, p.one.SkillID); err != nil {
			return err
		}
	}
	return content.ServeStream(w, r, "application/zip", p.one.SkillID+".zip", func() error { return packages.Download(v.ctx(), o, p.one.SkillID, w) })
}
