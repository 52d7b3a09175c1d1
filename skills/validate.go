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

// reservedInput cannot be a property of a skill's inputs: the skill's tool takes the caller's
// project by this name, beside the inputs.
const reservedInput = "project_id"

var compiledManifestSchema = sync.OnceValue(func() *schema.Schema {
	s, found := schema.CompileOwn(manifestSchema)
	if found != nil {
		panic(fmt.Sprintf("the schema of manifests is invalid: %+v", found)) // a test compiles it
	}
	return s
})

// readManifest parses manifest.json and compiles its schemas, or returns all problems.
func readManifest(raw []byte, folder string) (m *Manifest, inputs, outputs *schema.Schema, problems []Problem) {
	report := func(prefix []string, found ...schema.Finding) {
		for _, f := range found {
			problems = append(problems, Problem{
				File: ManifestFile, Pointer: schema.Pointer(slices.Concat(prefix, f.Path)),
				Reason: f.Reason,
			})
		}
	}
	doc, unread := schema.Parse(raw)
	if unread != nil {
		report(nil, *unread)
		return nil, nil, nil, problems
	}
	found, err := compiledManifestSchema().Validate(context.Background(), doc)
	if err != nil { // impossible: the context does not end
		report(nil, schema.Finding{Reason: "cannot be validated"})
	}
	report(nil, found...)
	report(nil, checkBeyondSchema(doc, folder)...)
	for _, side := range []struct {
		name string
		into **schema.Schema
	}{{"inputs", &inputs}, {"outputs", &outputs}} {
		path := []string{"interface", side.name}
		written, _ := schema.At(doc, path)
		if _, ok := written.(map[string]any); !ok {
			continue // reported by the manifest's schema
		}
		text, err := json.Marshal(written)
		if err != nil {
			report(path, schema.Finding{Reason: "cannot be read"})
			continue
		}
		var found []schema.Finding
		*side.into, found = schema.Compile(text)
		report(path, found...)
	}
	if len(problems) > 0 {
		return nil, nil, nil, problems
	}
	m = &Manifest{}
	if err := json.Unmarshal(raw, m); err != nil { // impossible: it fits its schema
		report(nil, schema.Finding{Reason: "does not fit its schema"})
		return nil, nil, nil, problems
	}
	for _, f := range policy.Check(m.Layer(), "") {
		report(policyPath(f.Field), schema.Finding{Reason: f.Reason})
	}
	return m, inputs, outputs, problems
}

// policyPath returns the path in a manifest of a field of the policy.
func policyPath(field string) []string {
	switch field {
	case policy.FieldImage:
		return []string{"runtime", "image"}
	case policy.FieldNetMode, policy.FieldNetAllow, policy.FieldNetCredentials, policy.FieldFSRead, policy.FieldFSWrite:
		return append([]string{"permissions"}, strings.Split(field, ".")...)
	}
	return []string{"limits", field}
}

// checkBeyondSchema checks the rules that JSON Schema cannot express, in a document that need not
// fit the schema.
func checkBeyondSchema(doc any, folder string) []schema.Finding {
	var found []schema.Finding
	add := func(path []string, format string, args ...any) {
		found = append(found, schema.Finding{Path: path, Reason: fmt.Sprintf(format, args...)})
	}
	object, _ := doc.(map[string]any)
	if id, ok := object["id"].(string); ok && id != folder {
		add([]string{"id"}, "is %q, but the folder is called %q; they must be equal", schema.Clip(id), schema.Clip(folder))
	}
	for _, needed := range []struct{ list, pattern, why string }{
		{"read", policy.PatternInputs, "it holds the skill's folder and its input"},
		{"write", policy.PatternArtifacts, "it takes the skill's output"},
	} {
		path := []string{"permissions", "fs", needed.list}
		if list, ok := listAt(doc, path); ok && !slices.Contains(list, any(needed.pattern)) {
			add(path, "must hold %q: %s", needed.pattern, needed.why)
		}
	}
	path := []string{"interface", "inputs", "properties", reservedInput}
	if _, ok := schema.At(doc, path); ok {
		add(path, "is reserved: the skill's tool takes the caller's project by this name; choose another")
	}
	path = []string{"interface", "inputs", "required"}
	if list, ok := listAt(doc, path); ok && slices.Contains(list, any(reservedInput)) {
		add(path, "must not hold %s: the name is reserved", reservedInput)
	}
	limits, _ := object["limits"].(map[string]any)
	for name, value := range limits {
		// 6e4 and 60000.0 are integers to JSON Schema, but not to most programs that read them.
		if n, ok := value.(json.Number); ok && name != policy.FieldCPUCores && schema.IsInteger(n) && strings.ContainsAny(n.String(),
			".eE") {
			add([]string{"limits", name}, "must be written in digits, without fraction and exponent")
		}
	}
	return found
}

func listAt(doc any, path []string) ([]any, bool) {
	value, _ := schema.At(doc, path)
	list, ok := value.([]any)
	return list, ok
}
