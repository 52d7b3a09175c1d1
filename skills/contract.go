package skills

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"secbox/policy"
)

// ReservedInput is the property that no skill's inputs can have: its tool takes it beside them.
const ReservedInput = "project_id"

// contract is the validator of manifests.
var contract = sync.OnceValue(func() *validator {
	v, bad := newValidator(manifestSchema)
	if bad != nil {
		panic(fmt.Sprintf("the schema of manifests is wrong: %+v", bad)) // a test compiles it
	}
	v.turns = nil // it asks for little work, and no manifest may count as broken because the server is busy
	return v
})

// readManifest reads manifest.json and compiles its schemas, or says all that is wrong with it.
func readManifest(raw []byte, folder string) (m *Manifest, inputs, outputs *validator, problems []Problem) {
	report := func(prefix []string, found ...finding) {
		for _, f := range found {
			problems = append(problems, Problem{File: ManifestFile, Pointer: pointer(slices.Concat(prefix, f.path)), Reason: f.reason})
		}
	}
	doc, bad := parse(raw)
	if bad != nil {
		report(nil, *bad)
		return nil, nil, nil, problems
	}
	found, err := contract().validate(context.Background(), doc)
	if err != nil {
		report(nil, finding{nil, "cannot be validated"}) // cannot be: that context does not end
	}
	report(nil, found...)
	report(nil, beyondSchema(doc, folder)...)
	for _, side := range []struct {
		name string
		into **validator
	}{{"inputs", &inputs}, {"outputs", &outputs}} {
		path := []string{"interface", side.name}
		schema, _ := at(doc, path)
		if _, ok := schema.(map[string]any); !ok {
			continue // the contract has said so
		}
		text, err := json.Marshal(schema)
		if err != nil {
			report(path, finding{nil, "cannot be read"})
			continue
		}
		v, found := newValidator(text)
		*side.into = v
		report(path, found...)
	}
	if len(problems) > 0 {
		return nil, nil, nil, problems
	}
	m = &Manifest{}
	if err := json.Unmarshal(raw, m); err != nil {
		report(nil, finding{nil, "does not fit its schema"}) // cannot be: the contract has let it through
		return nil, nil, nil, problems
	}
	for _, f := range policy.Check(m.Layer(), "") {
		report(policyPath(f.Field), finding{nil, f.Reason})
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
func beyondSchema(doc any, folder string) []finding {
	var found []finding
	add := func(path []string, format string, args ...any) {
		found = append(found, finding{path, fmt.Sprintf(format, args...)})
	}
	if id, ok := text(doc, "id"); ok && id != folder {
		add([]string{"id"}, "is %q, but the folder is called %q; they must be equal", clip(id), clip(folder))
	}
	for _, needed := range []struct{ list, pattern, why string }{
		{"read", policy.PatternInputs, "the skill's folder and its input lie there"},
		{"write", policy.PatternArtifacts, "the skill's output lies there"},
	} {
		path := []string{"permissions", "fs", needed.list}
		if list, ok := at(doc, path); ok {
			if list, ok := list.([]any); ok && !slices.Contains(list, any(needed.pattern)) {
				add(path, "must hold %q: %s", needed.pattern, needed.why)
			}
		}
	}
	for _, path := range [][]string{{"interface", "inputs", "properties", ReservedInput}} {
		if _, ok := at(doc, path); ok {
			add(path, "is reserved: the skill's tool takes the caller's project by this name; choose another")
		}
	}
	if required, ok := at(doc, []string{"interface", "inputs", "required"}); ok {
		if list, ok := required.([]any); ok && slices.Contains(list, any(ReservedInput)) {
			add([]string{"interface", "inputs", "required"}, "must not hold %s: the name is reserved", ReservedInput)
		}
	}
	limits, _ := at(doc, []string{"limits"})
	if limits, ok := limits.(map[string]any); ok {
		for name, value := range limits {
			// 6e4 and 60000.0 are integers to JSON Schema, and none to most programs that read them.
			if n, ok := value.(json.Number); ok && name != policy.FieldCPUCores && whole(n) && strings.ContainsAny(n.String(), ".eE") {
				add([]string{"limits", name}, "must be written in digits, without fraction and exponent")
			}
		}
	}
	return found
}

func text(doc any, name string) (string, bool) {
	v, _ := at(doc, []string{name})
	s, ok := v.(string)
	return s, ok
}
