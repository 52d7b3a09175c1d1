package skills

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"secbox/fault"
	"secbox/skills/schema"
)

// Snapshot is the catalog at one moment. It is immutable, and callers must not change the results
// of its methods.
type Snapshot struct {
	skills  []*Skill
	broken  []Broken
	byID    map[string]*Skill
	version string
	ofUser  bool // it includes the packages of a user
}

func newSnapshot(skills []*Skill, broken []Broken) *Snapshot {
	s := &Snapshot{skills: skills, broken: broken, byID: make(map[string]*Skill, len(skills))}
	slices.SortFunc(s.skills, func(a, b *Skill) int { return strings.Compare(a.ID(), b.ID()) })
	slices.SortFunc(s.broken, func(a, b Broken) int {
		return cmp.Or(strings.Compare(a.Source, b.Source), strings.Compare(a.Folder, b.Folder))
	})
	sum := sha256.New()
	for _, skill := range s.skills {
		s.byID[skill.ID()] = skill
		fmt.Fprintln(sum, skill.ID(), skill.Source, skill.Digest)
	}
	if len(s.broken) > 0 {
		text, _ := json.Marshal(s.broken) // strings only
		sum.Write(text)
	}
	s.version = hex.EncodeToString(sum.Sum(nil))
	return s
}

// with adds skills of another source. One that has the id of a skill in the snapshot is broken.
func (s *Snapshot) with(more []*Skill, broken []Broken) *Snapshot {
	all := slices.Clone(s.skills)
	broken = slices.Concat(s.broken, broken)
	for _, skill := range more {
		if other := s.byID[skill.ID()]; other != nil {
			broken = append(broken, Broken{Folder: skill.ID(), Source: skill.Source, Problems: []Problem{{
				File: ManifestFile, Pointer: "/id", Reason: fmt.Sprintf(
					"is the id of a skill that is there already (%s) and stays; give this one another id and its folder the same name",
					other.Source),
			}}})
			continue
		}
		all = append(all, skill)
	}
	return newSnapshot(all, broken)
}

// WithPackages returns the catalog together with the packages of one user. A package that has the
// id of another skill is broken.
func (s *Snapshot) WithPackages(packages []*Skill, broken []Broken) *Snapshot {
	with := s.with(packages, broken)
	with.ofUser = true
	return with
}

// Skills returns the skills by id.
func (s *Snapshot) Skills() []*Skill { return s.skills }

// Broken returns the broken skills by source and folder.
func (s *Snapshot) Broken() []Broken { return s.broken }

// Version changes with any file of any skill and with the problems of broken ones. Equal catalogs
// have equal versions on every node.
func (s *Snapshot) Version() string { return s.version }

// Get returns a skill; fault.UnknownSkill.
func (s *Snapshot) Get(id string) (*Skill, error) {
	if skill := s.byID[id]; skill != nil {
		return skill, nil
	}
	e := fault.New(fault.UnknownSkill, "there is no skill %q in the catalog; GET /skills lists them", schema.Clip(id))
	e.Fields = []fault.Field{{Field: "skill_id", Reason: "is not in the catalog"}}
	if slices.ContainsFunc(s.broken, func(b Broken) bool { return b.Folder == id }) {
		query := "broken=true"
		if s.ofUser {
			query += "&agent_id=…&user_id=…"
		}
		e.Message = fmt.Sprintf("the skill %q is broken; GET /skills?%s lists its problems", schema.Clip(id), query)
		e.Fields[0].Reason = "is broken"
	}
	return nil, e
}
