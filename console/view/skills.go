package view

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/skills"
)

// Bounds of what pages show.
const (
	maxProblems = 20 // of a broken skill

	maxFiles = 500       // of a skill or a package
	MaxText  = 256 << 10 // bytes of a file that are shown
)

// skillTabs are the pages about skills.
var skillTabs = []ui.NavItem{
	{Label: "Catalog", To: ui.Link("skills")},
	{Label: "Packages", To: ui.Link("packages")},
	{Label: "Registry", To: ui.Link("registry")},
}

// SkillSources are the choices of the filter of the catalog.
var SkillSources = []string{skills.BuiltIn, skills.SkillsDir, skills.Package}

// SkillsPage is a page of the catalog.
type SkillsPage struct {
	Pager
	Query    url.Values
	Rows     []SkillRow
	Usable   int // in the whole catalog
	Broken   int
	Filtered bool
	Curl     string // gets the whole catalog from the API
}

// SkillRow is a skill, or a folder that cannot be used as one.
type SkillRow struct {
	Name     string // the id, or the name of the folder
	Source   string
	Skill    *skills.Skill // nil: it is broken
	Problems []skills.Problem
}

// SortKey orders the rows, and is the place of a page.
func (r SkillRow) SortKey() string {
	state := "0"
	if r.Skill == nil {
		state = "1"
	}
	return r.Name + "\x00" + state + r.Source
}

// SkillRows returns all skills and broken folders by name.
func SkillRows(now *skills.Snapshot) []SkillRow {
	rows := make([]SkillRow, 0, len(now.Skills())+len(now.Broken()))
	for _, s := range now.Skills() {
		rows = append(rows, SkillRow{Name: s.ID(), Source: s.Source, Skill: s})
	}
	for _, b := range now.Broken() {
		rows = append(rows, SkillRow{Name: b.Folder, Source: b.Source, Problems: b.Problems})
	}
	slices.SortFunc(rows, func(a, b SkillRow) int { return cmp.Compare(a.SortKey(), b.SortKey()) })
	return rows
}

// Matches reports whether a row has the source, unless that is empty, and all words.
func (r SkillRow) Matches(words, source string) bool {
	if source != "" && r.Source != source {
		return false
	}
	all := r.Name
	if r.Skill != nil {
		all += " " + r.Skill.Manifest.Name + " " + r.Skill.Manifest.Description
	}
	all = strings.ToLower(all)
	for word := range strings.FieldsSeq(strings.ToLower(words)) {
		if !strings.Contains(all, word) {
			return false
		}
	}
	return true
}

// repairOf says how a broken folder is repaired.
func repairOf(source string) string {
	switch source {
	case skills.SkillsDir:
		return "Repair the file in the folder of the setting sandbox.skills_dir: the server notices it within two seconds. core-api " +
			"skills lint checks the folder before."
	case skills.Package:
		return "Upload a repaired package, or edit its files."
	}
	return "This skill is part of the program: install a version of secbox in which it is whole."
}

// SkillPage is what is known of one skill.
type SkillPage struct {
	*skills.Skill
	Agent, User     string // whose package it is; empty: it is of the catalog
	Inputs, Outputs Parameters
	Policy          []PolicyField
	PolicyProblem   string
	Example         string // the command that invokes it
	MayInvoke       bool
	Runs            *SkillRuns // nil: the role may not list execs
	Readme          Excerpt
}

// Project is the workspace of the package; empty for a skill of the catalog.
func (p SkillPage) Project() string {
	if p.Agent == "" {
		return ""
	}
	return p.Agent + "~" + p.User
}

// Excerpt is the beginning of a text.
type Excerpt struct {
	Text string
	Cut  bool
}

// NewExcerpt returns the first MaxText bytes of a text.
func NewExcerpt(text string) Excerpt {
	if len(text) <= MaxText {
		return Excerpt{Text: text}
	}
	return Excerpt{Text: string(TrimIncomplete([]byte(text[:MaxText]))), Cut: true}
}

// SkillRuns is who ran a skill.
type SkillRuns struct {
	Rows    []audit.Record
	Names   map[string]string // of tokens
	Counts  []StatusCount
	Counted int
	More    bool // there are older ones
	All     ui.Address
	Version string // the digest of the version on the page
}

// StatusCount is how many of the newest execs ended in a state.
type StatusCount struct {
	Status audit.Status
	N      int
}

// startsWith is the command of a skill, as the manifest has it.
func startsWith(s *skills.Skill) string {
	words := make([]string, len(s.Manifest.Runtime.Entrypoint))
	for i, word := range s.Manifest.Runtime.Entrypoint {
		words[i] = ShellQuote(word)
	}
	return strings.Join(words, " ")
}
