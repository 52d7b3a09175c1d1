package skills

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"secbox/fault"
	"secbox/policy"
	"secbox/skills/schema"
)

// LintReport is what Lint has found.
type LintReport struct {
	Folders []LintFolder `json:"folders"` // by name
}

// LintFolder is what there is to say about one skill.
type LintFolder struct {
	Folder   string    `json:"folder"`
	ID       string    `json:"id,omitempty"`     // empty: it does not load
	Digest   string    `json:"digest,omitempty"` // empty: it does not load
	Problems []Problem `json:"problems"`         // why it does not load, or what the settings refuse
	Warnings []Problem `json:"warnings"`         // what does not, but its users would be better off without
}

// Broken counts the skills that cannot be used.
func (r LintReport) Broken() int {
	n := 0
	for _, f := range r.Folders {
		if len(f.Problems) > 0 {
			n++
		}
	}
	return n
}

// Warnings counts the warnings of all of them.
func (r LintReport) Warnings() int {
	n := 0
	for _, f := range r.Folders {
		n += len(f.Warnings)
	}
	return n
}

// Lint reads dir as the catalog would: one skill, when it holds a manifest.json or a SKILL.md, else a folder of skills. A skill whose
// manifest asks for what allowed refuses has a problem too; nil allows everything. Lint needs nothing that runs. The error is
// fault.InvalidRequest: there is no such folder, or no skill in it.
func Lint(dir string, allowed *policy.Resolver) (LintReport, error) {
	if dir == "" {
		return LintReport{}, fault.BadField("DIR", "is empty; name a folder, . for this one")
	}
	full, err := filepath.Abs(dir)
	if err != nil {
		return LintReport{}, fault.BadField("DIR", "%s", reasonOf(err))
	}
	// Links to DIR itself are the author's affair: its own name is what counts then.
	if real, err := filepath.EvalSymlinks(full); err == nil {
		full = real
	}
	p, err := openPlace(full)
	if err != nil {
		return LintReport{}, fault.BadField("DIR", "%s %s", dir, notAFolder(err))
	}
	defer p.Close()
	if self, ok := p.(diskPlace); ok && meantToBeSkill(self.treeOfItself()) {
		parent, err := openPlace(filepath.Dir(full))
		if err != nil {
			return LintReport{}, fault.BadField("DIR", "the folder above %s %s", dir, reasonOf(err))
		}
		defer parent.Close()
		return lintAll(parent, []string{filepath.Base(full)}, allowed), nil
	}
	names, err := p.names()
	if err != nil {
		return LintReport{}, fault.BadField("DIR", "%s %s", dir, reasonOf(err))
	}
	report := lintAll(p, names, allowed)
	if len(report.Folders) == 0 {
		return report, fault.BadField("DIR", "%s holds neither %s nor %s, and no folder in it does", dir, ManifestFile, ReadmeFile)
	}
	return report, nil
}

func notAFolder(err error) string {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return reasonOf(err)
	}
	return "is no folder that can be read"
}

// treeOfItself looks at the place as at one skill. It shares the place's descriptor.
func (d diskPlace) treeOfItself() diskTree { return diskTree{d.root} }

func lintAll(p place, names []string, allowed *policy.Resolver) LintReport {
	s := source{name: SkillsDir}
	report := LintReport{Folders: []LintFolder{}}
	slices.Sort(names)
	for _, name := range names {
		if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") && len(names) > 1 {
			continue
		}
		k := s.examine(p, name, nil)
		if k == nil {
			continue
		}
		f := LintFolder{Folder: clipName(name), Problems: k.problems, Warnings: []Problem{}}
		if k.skill != nil {
			f.ID, f.Digest, f.Problems = k.skill.ID(), k.skill.Digest, refused(k.skill, allowed)
			f.Warnings = append(f.Warnings, advise(k.skill)...)
		}
		report.Folders = append(report.Folders, f)
	}
	return report
}

// refused is what the settings do not allow the skill unless a request asks for less.
func refused(s *Skill, allowed *policy.Resolver) []Problem {
	list := []Problem{}
	if allowed == nil {
		return list
	}
	layer := s.Manifest.Layer()
	_, err := allowed.Resolve(&layer, policy.Layer{}, policy.Host{})
	if err == nil {
		return list
	}
	for _, f := range fault.From(err).Fields {
		list = append(list, Problem{File: ManifestFile, Pointer: schema.Pointer(policyPath(f.Field)), Reason: f.Reason})
	}
	return inOrder(list)
}

// advise says what an agent will miss that is to use the skill.
func advise(s *Skill) []Problem {
	var list []Problem
	add := func(path []string, format string, args ...any) {
		list = append(list, Problem{File: ManifestFile, Pointer: schema.Pointer(path), Reason: fmt.Sprintf(format, args...)})
	}
	if other := builtInWithID(s.ID()); other != nil && other.Digest != s.Digest {
		add([]string{"id"}, "is the id of a built-in skill, which stays: in sandbox.skills_dir this one would be refused")
	}
	for _, side := range []struct {
		name, who string
		schema    any
	}{
		{"inputs", "agents know what to give only by it", s.inputs.Doc()},
		{"outputs", "agents know what they got only by it", s.outputs.Doc()},
	} {
		schema, _ := side.schema.(map[string]any)
		properties, _ := schema["properties"].(map[string]any)
		for name, property := range properties {
			if p, ok := property.(map[string]any); ok && p["description"] == nil && p["$ref"] == nil {
				add([]string{"interface", side.name, "properties", name}, "has no description; %s", side.who)
			}
		}
		if _, ok := schema["required"]; !ok && len(properties) > 0 {
			add([]string{"interface", side.name}, "says nothing of required, so nothing is")
		}
		if _, ok := schema["additionalProperties"]; !ok && side.name == "inputs" && schema["unevaluatedProperties"] == nil {
			add([]string{"interface", "inputs"}, "allows any other property too; \"additionalProperties\": false lets a misspelt one be refused")
		}
	}
	return inOrder(list)
}

func builtInWithID(id string) *Skill {
	s := source{name: BuiltIn, open: func() (place, error) { return embeddedPlace{embedded{builtIn}}, nil }}
	if s.look() != nil {
		return nil
	}
	all, _ := s.hold()
	if n := slices.IndexFunc(all, func(s *Skill) bool { return s.ID() == id }); n >= 0 {
		return all[n]
	}
	return nil
}
