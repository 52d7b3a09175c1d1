package console_test

import (
	"context"
	"encoding/json"
	"strings"

	"secbox/api/visible"
	"secbox/policy"
	"secbox/runner"
	"secbox/skills"
)

// fakeSkills is the catalog of an application of a test.
type fakeSkills struct {
	usable []*skills.Skill
	broken []skills.Broken

	packages  fakePackages
	published fakeRegistry
	real      *visible.Skills // used instead; nil: none
}

// Now implements visible.Catalog.
func (f *fakeSkills) Now() *skills.Snapshot {
	return (&skills.Snapshot{}).WithPackages(f.usable, f.broken)
}

func (f *fakeSkills) visible() visible.Skills {
	if f.real != nil {
		return *f.real
	}
	return visible.Skills{Catalog: f, Library: &f.packages, View: &f.packages}
}

func (f *fakeApp) Resolve(_ context.Context, req runner.Request) (policy.Snapshot, error) {
	field := policy.Field{Value: int64(60000), Layer: policy.LayerDefault, Ceiling: int64(1800000), CeilingFrom: policy.LayerDefault}
	if asked := req.Skill.Layer.TimeoutMS; asked != nil {
		field.Value, field.Layer = *asked, policy.LayerManifest
	}
	return policy.Snapshot{Fields: map[string]policy.Field{"timeout_ms": field}, SettingsDigest: "sha256:s"}, nil
}

// skill returns a skill of the catalog.
func skill(id, source, inputs string) *skills.Skill {
	return &skills.Skill{
		Manifest: skills.Manifest{
			SchemaVersion: "1", ID: id, Name: "Run a script", Description: "Runs a bash script in work/ and says how it ended.",
			Interface: skills.Interface{
				Inputs:  json.RawMessage(inputs),
				Outputs: json.RawMessage(`{"type": "object", "properties": {"exit_code": {"type": "integer"}}}`),
			},
			Runtime: skills.Runtime{Kind: "docker", Entrypoint: []string{"python3", "./run.py"}},
			Permissions: skills.Permissions{
				FS:  skills.FSPermissions{Read: []string{"inputs/**"}, Write: []string{"artifacts/**"}},
				Net: skills.NetPermissions{Mode: "none"},
			},
			Limits: policy.Limits{TimeoutMS: new(int64(20000))},
		},
		Raw: json.RawMessage(`{}`), Readme: "# Run a script\n\nRuns it.\n", Source: source, Digest: strings.Repeat("c", 64),
		Files: []skills.File{
			{Path: "SKILL.md", Size: 27, SHA256: strings.Repeat("d", 64)},
			{Path: "run.py", Size: 100, SHA256: strings.Repeat("e", 64), Executable: true},
		},
	}
}

const shellInputs = `{"type": "object", "properties": {
	"script": {"type": "string", "minLength": 1, "maxLength": 4000, "description": "What runs."},
	"args": {"type": "array", "items": {"type": "string"}, "default": []},
	"mode": {"enum": ["fast", "safe"]},
	"limits": {"type": "object", "properties": {"seconds": {"type": ["integer", "null"], "minimum": 1}}, "required": ["seconds"]}},
	"required": ["script", "mode", "limits"], "additionalProperties": false}`

// fillSkills gives the application three skills and a broken one.
func (f *fakeApp) fillSkills() {
	f.skills.usable = []*skills.Skill{
		skill("shell.run", skills.BuiltIn, shellInputs), skill("text.count", skills.SkillsDir, `{"type": "object"}`),
		skill("text.greet", skills.Package, `{"type": "object"}`),
	}
	f.fillPackages()
	f.fillRegistry()
	f.skills.broken = []skills.Broken{{
		Folder: "text.broken", Source: skills.SkillsDir,
		Problems: []skills.Problem{{File: skills.ManifestFile, Pointer: "/runtime/kind", Reason: "must be docker"}},
	}}
}

// hostileSkills makes every text of the skills s.
func (f *fakeApp) hostileSkills(s string) {
	quoted, _ := json.Marshal(s)
	q := string(quoted)
	inputs := `{"type": "object", "description": ` + q + `, "properties": {` + q + `: {"type": [` + q + `, "array"], "description": ` + q + `, "enum": [` + q +
		`], "pattern": ` + q +
		`, "default": ` + q + `, ` + q + `: {` + q + `: ` + q + `}, "items": {"properties": {` + q + `: {"type": ` + q + `}}}}}, "required": [` + q + `]}`
	f.hostilePackages(s)
	f.hostileRegistry(s)
	for _, one := range f.skills.usable {
		m := &one.Manifest
		m.Name, m.Description, m.Runtime.Image, m.Runtime.Entrypoint = s, s, s, []string{s, s}
		m.Interface = skills.Interface{Inputs: json.RawMessage(inputs), Outputs: json.RawMessage(inputs)}
		one.Readme, one.Digest = strings.Repeat(s+"\n", 300_000/len(s)+1), s
		one.Files = []skills.File{{Path: s, Size: 1, SHA256: s}}
	}
	f.skills.usable[1].Manifest.ID, f.skills.usable[1].Source = s, s
	f.skills.broken = []skills.Broken{{Folder: s, Source: s, Problems: []skills.Problem{{File: s, Pointer: s, Reason: s}}}}
}
