package skills

import (
	"encoding/json"
	"strings"
	"testing"

	"secbox/fault"
)

// FuzzManifest reads any bytes as a manifest: the result is either a usable skill or problems.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(good))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, inputs, outputs, problems := readManifest(raw, "text.demo")
		if (len(problems) == 0) != (m != nil && inputs != nil && outputs != nil) {
			t.Fatalf("%+v, %+v", m, problems)
		}
		for _, p := range problems {
			if p.File != ManifestFile || p.Reason == "" || p.Pointer != "" && p.Pointer[0] != '/' {
				t.Errorf("%+v", p)
			}
		}
		if m == nil {
			return
		}
		if m.ID != "text.demo" || len(m.Runtime.Entrypoint) == 0 || m.Layer().NetMode == nil {
			t.Errorf("%+v", m)
		}
		s := &Skill{Manifest: *m, inputs: inputs, outputs: outputs}
		for _, value := range []string{`{}`, `{"text":"a","times":1}`, string(raw)} {
			_ = s.CheckInputs(t.Context(), json.RawMessage(value))
			_, _ = s.CheckOutputs(t.Context(), []byte(value))
		}
	})
}

// FuzzInputsAndOutputs validates any bytes: they are a JSON object or refused with reasons.
func FuzzInputsAndOutputs(f *testing.F) {
	s := skillWith(f, `{"type":"object","properties":{
		"code":{"type":"string","minLength":1,"pattern":"^[a-z]*$"},"n":{"type":"integer","minimum":1,"multipleOf":3},
		"list":{"type":"array","items":{"anyOf":[{"$ref":"#"},{"type":"null"},{"const":"x"}]},"uniqueItems":true,"contains":{"type":"null"}},
		"map":{"type":"object","propertyNames":{"maxLength":3},"additionalProperties":{"$ref":"#/properties/list"}},
		"one":{"oneOf":[{"type":"number"},{"minimum":5},{"enum":[1,"a",null]}]},"not":{"not":{"required":["x"]}}},
		"dependentRequired":{"n":["code"]},"unevaluatedProperties":false}`)
	f.Add([]byte(`{"code":"abc","n":3,"list":[null,{}],"map":{"a":[null]},"one":1,"not":{}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		err := s.CheckInputs(t.Context(), json.RawMessage(raw))
		out, outErr := s.CheckOutputs(t.Context(), raw)
		if strings.TrimSpace(string(raw)) != "" && (err == nil) != (outErr == nil) {
			t.Errorf("as inputs %v, as outputs %v", err, outErr)
		}
		if err != nil {
			e := fault.From(err)
			if e.Code != fault.InvalidInputs || len(e.Fields) == 0 || len(e.Fields) > maxFields {
				t.Errorf("%v", err)
			}
			for _, field := range e.Fields {
				if !strings.HasPrefix(field.Field, "inputs") || field.Reason == "" {
					t.Errorf("%+v", field)
				}
			}
		}
		if outErr != nil && (out != nil || !strings.HasPrefix(outErr.Error(), outputFile)) {
			t.Errorf("%s, %v", out, outErr)
		}
		var object map[string]any
		if outErr == nil && json.Unmarshal(out, &object) != nil {
			t.Errorf("%s is no object", out)
		}
	})
}
