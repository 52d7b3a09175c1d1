package skills

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"secbox/policy"
	"secbox/skills/schema"
)

// ReservedInput is the property that no skill's inputs can have: its tool takes it beside them.
const ReservedInput = "project_id"

// contract is the validator of manifests.
var contract = sync.OnceValue(func() *schema.Schema {
	v, bad := schema.CompileOwn(manifestSchema)
	if bad != nil {
		panic(fmt.Sprintf("the schema of manifests is wrong: %+v", bad)) // a test compiles it
	}
	return v
})

// readManifest reads manifest.json and compiles its schemas, or says all that is wrong with it.
func readManifest(raw []byte, folder string) (m *Manifest, inputs, outputs *schema.Schema, problems []Problem) {
	report := func(prefix []string, found ...schema.Finding) {
		for _, f := range found {
			problems = append(problems, Problem{File: ManifestFile, Pointer: schema.Pointer(slices.Concat(prefix, f.Path)), Reason: f.Reason})
		}
	}
	doc, bad := schema.Parse(raw)
	if bad != nil {
		report(nil, *bad)
		return nil, nil, nil, problems
	}
	found, err := contract().Validate(context.Background(), doc)
	if err != nil {
		report(nil, schema.Finding{Reason: "cannot be validated"}) // cannot be: that context does not end
	}
	report(nil, found...)
	report(nil, beyondSchema(doc, folder)...)
	for _, side := range []struct {
		name string
		into **schema.Schema
	}{{"inputs", &inputs}, {"outputs", &outputs}} {
		path := []string{"interface", side.name}
		written, _ := schema.At(doc, path)
		if _, ok := written.(map[string]any); !ok {
			continue // the contract has said so
		}
		text, err := json.Marshal(written)
		if err != nil {
			report(path, schema.Finding{Reason: "cannot be read"})
			continue
		}
		v, found := schema.Compile(text)
		*side.into = v
		report(path, found...)
	}
	if len(problems) > 0 {
		return nil, nil, nil, problems
	}
	m = &Manifest{}
	if err := json.Unmarshal(raw, m); err != nil {
		report(nil, schema.Finding{Reason: "does not fit its schema"}) // cannot be: the contract has let it through
		return nil, nil, nil, problems
	}
	for _, f := range policy.Check(m.Layer(), "") {
		report(policyPath(f.Field), schema.Finding{Reason: f.Reason})
	}
	return m, inputs, outputs, problems
}

// policyPath is where a manifest says what policy calls by that name.
func policyPath(field string) []string {
	switch field {
	case policy.FieldImage:
		return []string{"runtime", "image"}
	case policy.FieldNetMode, policy.FieldFSRead, policy.FieldFSWrite:
		return append([]string{"permissions"}, strings.Split(field, ".")...)
	}
	return []string{"limits", field}
}

// beyondSchema checks what the contract's schema cannot say. It looks at a document of any form.
func beyondSchema(doc any, folder string) []schema.Finding {
	var found []schema.Finding
	add := func(path []string, format string, args ...any) {
		found = append(found, schema.Finding{Path: path, Reason: fmt.Sprintf(format, args...)})
	}
	if id, ok := text(doc, "id"); ok && id != folder {
		add([]string{"id"}, "is %q, but the folder is called %q; they must be equal", schema.Clip(id), schema.Clip(folder))
	}
	for _, needed := range []struct{ list, pattern, why string }{
		{"read", policy.PatternInputs, "the skill's folder and its input lie there"},
		{"write", policy.PatternArtifacts, "the skill's output lies there"},
	} {
		path := []string{"permissions", "fs", needed.list}
		if list, ok := schema.At(doc, path); ok {
			if list, ok := list.([]any); ok && !slices.Contains(list, any(needed.pattern)) {
				add(path, "must hold %q: %s", needed.pattern, needed.why)
			}
		}
	}
	for _, path := range [][]string{{"interface", "inputs", "properties", ReservedInput}} {
		if _, ok := schema.At(doc, path); ok {
			add(path, "is reserved: the skill's tool takes the caller's project by this name; choose another")
		}
	}
	if required, ok := schema.At(doc, []string{"interface", "inputs", "required"}); ok {
		if list, ok := required.([]any); ok && slices.Contains(list, any(ReservedInput)) {
			add([]string{"interface", "inputs", "required"}, "must not hold %s: the name is reserved", ReservedInput)
		}
	}
	limits, _ := schema.At(doc, []string{"limits"})
	if limits, ok := limits.(map[string]any); ok {
		for name, value := range limits {
			// 6e4 and 60000.0 are integers to JSON Schema, and none to most programs that read them.
			if n, ok := value.(json.Number); ok && name != policy.FieldCPUCores && schema.IsInteger(n) && strings.ContainsAny(n.String(), ".eE") {
				add([]string{"limits", name}, "must be written in digits, without fraction and exponent")
			}
		}
	}
	return found
}

func text(doc any, name string) (string, bool) {
	v, _ := schema.At(doc, []string{name})
	s, ok := v.(string)
	return s, ok
}
