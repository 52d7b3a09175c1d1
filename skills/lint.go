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

// LintReport is the result of Lint.
type LintReport struct {
	Folders []LintFolder `json:"folders"` // by name
}

// LintFolder is the result for one skill.
type LintFolder struct {
	Folder   string    `json:"folder"`
	ID       string    `json:"id,omitempty"`     // empty: it does not load
	Digest   string    `json:"digest,omitempty"` // empty: it does not load
	Problems []Problem `json:"problems"`         // why it does not load, or what the settings refuse
	Warnings []Problem `json:"warnings"`         // it works, but could serve agents better
}

// Broken counts the skills with problems.
func (r LintReport) Broken() int {
	n := 0
	for _, f := range r.Folders {
		if len(f.Problems) > 0 {
			n++
		}
	}
	return n
}

// Warnings counts the warnings of all skills.
func (r LintReport) Warnings() int {
	n := 0
	for _, f := range r.Folders {
		n += len(f.Warnings)
	}
	return n
}

// Lint reads dir as the catalog would: as one skill, if it holds a manifest.json or a SKILL.md,
// else as a folder of skills. A manifest that asks for more than allowed permits is a problem; nil
// permits everything. The error is fault.InvalidRequest: there is no such folder, or no skill in
// it.
func Lint(dir string, allowed *policy.Resolver) (LintReport, error) {
	if dir == "" {
		return LintReport{}, fault.BadField("DIR", "is empty; name a folder, . for this one")
	}
	full, err := filepath.Abs(dir)
	if err != nil {
		return LintReport{}, fault.BadField("DIR", "%s", reasonOf(err))
	}
	// DIR may be a link: then the name of its target counts.
	if real, err := filepath.EvalSymlinks(full); err == nil {
		full = real
	}
	source, err := openDisk(full)
	if err != nil {
		reason := "is no folder that can be read"
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			reason = reasonOf(err)
		}
		return LintReport{}, fault.BadField("DIR", "%s %s", dir, reason)
	}
	defer source.Close()
	if looksLikeSkill(source.asSkill()) {
		parent, err := openDisk(filepath.Dir(full))
		if err != nil {
			return LintReport{}, fault.BadField("DIR", "the folder above %s %s", dir, reasonOf(err))
		}
		defer parent.Close()
		return lintAll(parent, []string{filepath.Base(full)}, allowed), nil
	}
	names, err := source.names()
	if err != nil {
		return LintReport{}, fault.BadField("DIR", "%s %s", dir, reasonOf(err))
	}
	report := lintAll(source, names, allowed)
	if len(report.Folders) == 0 {
		return report, fault.BadField("DIR", "%s holds neither %s nor %s, and no folder in it does", dir, ManifestFile, ReadmeFile)
	}
	return report, nil
}

func lintAll(dir sourceDir, names []string, allowed *policy.Resolver) LintReport {
	s := source{name: SkillsDir}
	report := LintReport{Folders: []LintFolder{}}
	slices.Sort(names)
	for _, name := range names {
		if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") && len(names) > 1 {
			continue
		}
		state := s.read(dir, name, nil)
		if state == nil {
			continue
		}
		f := LintFolder{Folder: validName(name), Problems: state.problems, Warnings: []Problem{}}
		if skill := state.skill; skill != nil {
			f.ID, f.Digest, f.Problems = skill.ID(), skill.Digest, policyProblems(skill, allowed)
			f.Warnings = append(f.Warnings, warnings(skill)...)
		}
		report.Folders = append(report.Folders, f)
	}
	return report
}

// policyProblems returns the fields of the manifest that exceed the settings.
func policyProblems(s *Skill, allowed *policy.Resolver) []Problem {
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
	return firstProblems(list)
}

// warnings lists shortcomings of the manifest for agents that use the skill.
func warnings(s *Skill) []Problem {
	var list []Problem
	add := func(path []string, format string, args ...any) {
		list = append(list, Problem{File: ManifestFile, Pointer: schema.Pointer(path), Reason: fmt.Sprintf(format, args...)})
	}
	if other := builtInWithID(s.ID()); other != nil && other.Digest != s.Digest && digestOnDisk(other) != s.Digest {
		add([]string{"id"}, "is the id of a built-in skill, which stays: in sandbox.skills_dir this one would be refused")
	}
	for _, side := range []struct {
		name, why string
		doc       any
	}{
		{"inputs", "agents know what to give only by it", s.inputs.Doc()},
		{"outputs", "agents know what they got only by it", s.outputs.Doc()},
	} {
		doc, _ := side.doc.(map[string]any)
		properties, _ := doc["properties"].(map[string]any)
		for name, property := range properties {
			if p, ok := property.(map[string]any); ok && p["description"] == nil && p["$ref"] == nil {
				add([]string{"interface", side.name, "properties", name}, "has no description; %s", side.why)
			}
		}
		if _, ok := doc["required"]; !ok && len(properties) > 0 {
			add([]string{"interface", side.name}, "has no required properties; list those that callers must give")
		}
		if _, ok := doc["additionalProperties"]; !ok && side.name == "inputs" && doc["unevaluatedProperties"] == nil {
			add([]string{"interface", "inputs"},
				"allows any other property too; \"additionalProperties\": false lets a misspelt one be refused")
		}
	}
	return firstProblems(list)
}

func builtInWithID(id string) *Skill {
	s := source{name: BuiltIn, open: openBuiltIn}
	if err := s.refresh(); err != nil || s.states[id] == nil {
		return nil
	}
	return s.states[id].skill
}
