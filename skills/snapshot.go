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

// Snapshot is the catalog at one moment. It does not change, and neither may what its methods return.
type Snapshot struct {
	skills  []*Skill
	broken  []Broken
	byID    map[string]*Skill
	version string
	ofUser  bool // packages of a user are in it
}

// newSnapshot takes what the sources hold.
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

// Skills lists them by id.
func (s *Snapshot) Skills() []*Skill { return s.skills }

// Broken lists the folders that are meant to be skills and cannot be used, by source and folder.
func (s *Snapshot) Broken() []Broken { return s.broken }

// Version changes with the catalog: with any file of any skill, and with what is wrong with a broken one. Equal catalogs have equal
// versions, on every node.
func (s *Snapshot) Version() string { return s.version }

// Get finds a skill; fault.UnknownSkill.
func (s *Snapshot) Get(id string) (*Skill, error) {
	if skill := s.byID[id]; skill != nil {
		return skill, nil
	}
	e := fault.New(fault.UnknownSkill, "there is no skill %q in the catalog; GET /skills lists them", schema.Clip(id))
	e.Fields = []fault.Field{{Field: "skill_id", Reason: "is not in the catalog"}}
	if slices.ContainsFunc(s.broken, func(b Broken) bool { return b.Folder == id }) {
		e.Message = fmt.Sprintf("the skill %q is there, but broken; GET /skills?broken=true%s says what is wrong with it", schema.Clip(id), s.whose())
		e.Fields[0].Reason = "is broken"
	}
	return nil, e
}

// whose is what a query for this snapshot says beside the rest.
func (s *Snapshot) whose() string {
	if s.ofUser {
		return "&agent_id=…&user_id=…"
	}
	return ""
}
