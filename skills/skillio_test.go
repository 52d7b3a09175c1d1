package skills

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"secbox/fault"
)

// inputsSchema returns the good manifest with another schema of the inputs.
func inputsSchema(t testing.TB, schema string) string {
	t.Helper()
	return set(t, "/interface/inputs", schema)
}

// skillWith returns the demo with this schema for inputs and outputs.
func skillWith(t testing.TB, schema string) *Skill {
	t.Helper()
	raw := edit(t, inputsSchema(t, schema), []string{"interface"}, func(parent map[string]any) { parent["outputs"] = json.RawMessage(schema) })
	m, inputs, outputs, problems := readManifest([]byte(raw), "text.demo")
	if len(problems) > 0 {
		t.Fatalf("%+v", problems)
	}
	return &Skill{Manifest: *m, inputs: inputs, outputs: outputs}
}

// wantFields checks a refusal: each field begins with the wanted text, in that order.
func wantFields(t *testing.T, err error, wanted ...string) {
	t.Helper()
	if !fault.Is(err, fault.InvalidInputs) {
		t.Fatalf("got %v", err)
	}
	e := fault.From(err)
	if len(e.Fields) != len(wanted) {
		t.Errorf("%d fields: %+v", len(e.Fields), e.Fields)
	}
	for n, f := range e.Fields {
		if got := f.Field + ": " + f.Reason; n < len(wanted) && !strings.HasPrefix(got, wanted[n]) {
			t.Errorf("field %d is %q, want %q", n, got, wanted[n])
		}
	}
	if !strings.Contains(e.Message, e.Fields[0].Field) || !strings.Contains(e.Message, "text.demo") {
		t.Errorf("message %q", e.Message)
	}
}

func TestInvalidInputs(t *testing.T) {
	t.Parallel()
	s := skillWith(t, `{
		"type": "object",
		"properties": {
			"code": {"type": "string", "minLength": 1, "maxLength": 5},
			"n": {"type": "integer", "minimum": 1, "maximum": 9},
			"f": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "multipleOf": 0.25},
			"mode": {"enum": ["fast", "slow", 3]},
			"fixed": {"const": {"a": 1}},
			"name": {"type": "string", "pattern": "^[a-z]+$", "description": "Lower-case letters."},
			"list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]}, "minItems": 1, "maxItems": 3, "uniqueItems": true},
			"pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "null"}], "items": false},
			"either": {"type": ["string", "null"]},
			"any": {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}]},
			"one": {"oneOf": [{"type": "integer"}, {"minimum": 5}]},
			"not": {"not": {"type": "string"}},
			"map": {"type": "object", "propertyNames": {"maxLength": 3}, "maxProperties": 2, "minProperties": 1, "additionalProperties": {"type": "integer"}},
			"if": {"type": "object", "if": {"properties": {"k": {"const": "a"}}}, "then": {"required": ["va"]}, "else": {"required": ["vb"]}},
			"dep": {"type": "object", "dependentRequired": {"user": ["password"]}},
			"has": {"type": "array", "contains": {"const": "x"}, "maxContains": 1},
			"sealed": {"type": "object", "allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": false},
			"never": false,
			"a b.c": {"type": "string"}
		},
		"required": ["code"],
		"additionalProperties": false
	}`)
	if err := s.CheckInputs(t.Context(), json.RawMessage(`{"code":"x","n":9,"f":0.25,"mode":3,"fixed":{"a":1.0},"name":"abc","list":[{"x":true}],"pair":["a",null],
		"either":null,"any":{"id":1},"one":7.5,"not":1,"map":{"abc":1},"if":{"k":"a","va":1},"dep":{"user":1,"password":1},"has":["x"],"sealed":{"a":1},"a b.c":""}`)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		inputs string
		want   []string
	}{
		{``, []string{"inputs.code: is missing"}},
		{` {} `, []string{"inputs.code: is missing"}},
		{`{"code":""}`, []string{"inputs.code: must not be empty"}},
		{`{"code":"secret"}`, []string{"inputs.code: must have at most 5 characters"}},
		{`{"code":{}}`, []string{"inputs.code: must be a string, not an object"}},
		{`{"code":"x","n":0}`, []string{"inputs.n: must be at least 1"}},
		{`{"code":"x","n":10.0}`, []string{"inputs.n: must be at most 9"}},
		{`{"code":"x","n":1.5}`, []string{"inputs.n: must be a whole number, not one with a fraction"}},
		{`{"code":"x","f":0}`, []string{"inputs.f: must be greater than 0"}},
		{`{"code":"x","f":1}`, []string{"inputs.f: must be less than 1"}},
		{`{"code":"x","f":0.3}`, []string{"inputs.f: must be a multiple of 0.25"}},
		{`{"code":"x","f":1e400}`, []string{"inputs.f: is a number beyond the range of 64 bits"}},
		{`{"code":"x","f":1e-9999999}`, []string{"inputs.f: is a number beyond the range of 64 bits"}},
		{`{"code":"x","mode":"secret"}`, []string{`inputs.mode: must be one of "fast", "slow", 3`}},
		{`{"code":"x","fixed":{"a":2}}`, []string{`inputs.fixed: must be {"a":1}`}},
		{`{"code":"x","name":"SECRET"}`, []string{"inputs.name: must match the pattern ^[a-z]+$: Lower-case letters."}},
		{`{"code":"x","list":[]}`, []string{"inputs.list: must not be empty"}},
		{
			`{"code":"x","list":[{"x":true},{"x":false},{"x":true},{"x":"secret"}]}`,
			[]string{
				"inputs.list: must have at most 3 items", "inputs.list: must not hold the same item twice",
				"inputs.list[3].x: must be true or false, not a string",
			},
		},
		{`{"code":"x","list":[{}]}`, []string{"inputs.list[0].x: is missing"}},
		{`{"code":"x","pair":["a",null,"secret"]}`, []string{"inputs.pair[2]: is not known; leave it out"}},
		{`{"code":"x","either":5}`, []string{"inputs.either: must be a string or null, not a number"}},
		{
			`{"code":"x","any":5}`,
			[]string{"inputs.any: fits none of the forms it can have: must be a string, not a number; or must be an object, not a number"},
		},
		{`{"code":"x","any":{}}`, []string{"inputs.any: fits none of the forms it can have: must be a string, not an object; or id is missing"}},
		{`{"code":"x","one":7}`, []string{"inputs.one: fits more than one of the forms"}},
		{
			`{"code":"x","one":2.5}`,
			[]string{"inputs.one: fits none of the forms it can have: must be a whole number, not one with a fraction; or must be at least 5"},
		},
		{`{"code":"x","not":"secret"}`, []string{"inputs.not: has a form that the schema excludes"}},
		{`{"code":"x","map":{}}`, []string{"inputs.map: must have at least 1 property"}},
		{`{"code":"x","map":{"a":1,"b":1,"c":1}}`, []string{"inputs.map: must have at most 2 properties"}},
		{`{"code":"x","map":{"abcd":1}}`, []string{"inputs.map.abcd: has a name that must have at most 3 characters"}},
		{`{"code":"x","map":{"a":"secret"}}`, []string{"inputs.map.a: must be a whole number, not a string"}},
		{`{"code":"x","if":{"k":"a"}}`, []string{"inputs.if.va: is missing"}},
		{`{"code":"x","if":{"k":"b"}}`, []string{"inputs.if.vb: is missing"}},
		{`{"code":"x","dep":{"user":"secret"}}`, []string{"inputs.dep.password: is missing; user needs it"}},
		{`{"code":"x","has":[]}`, []string{"inputs.has: must hold"}},
		{`{"code":"x","has":["secret"]}`, []string{"inputs.has: must hold at least 1 item of the form"}},
		{`{"code":"x","has":["x","x"]}`, []string{"inputs.has: must hold at most 1 item"}},
		{`{"code":"x","sealed":{"b":1}}`, []string{"inputs.sealed.b: is not known; leave it out"}},
		{`{"code":"x","never":1}`, []string{"inputs.never: is not known; leave it out"}},
		{`{"code":"x","a b.c":1}`, []string{`inputs["a b.c"]: must be a string`}},
		{`{"code":"x","x":"secret","y":1}`, []string{"inputs.x: is not known", "inputs.y: is not known"}},
		{`{"code":"x","code":"y"}`, []string{"inputs.code: is given more than once"}},
		{`{"code":"x","list":[{"x":true,"x":true}]}`, []string{"inputs.list[0].x: is given more than once"}},
		{"{\"code\":\"\xc3\"}", []string{"inputs.code: is not valid UTF-8"}},
		{`{"code":"x"`, []string{"inputs: is no JSON"}},
		{`{"code":"x"}{}`, []string{"inputs: must be one JSON value"}},
		{`{'code':"x"}`, []string{"inputs: is no JSON at byte"}},
		{`null`, []string{"inputs: must be an object, not null"}},
		{`"secret"`, []string{"inputs: must be an object, not a string"}},
		{
			`{"code":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + `}`,
			[]string{"inputs.code" + strings.Repeat("[0]", 63) + ": is nested deeper than 64 levels"},
		},
		{`{"code":` + strings.Repeat("9", 2000) + `}`, []string{"inputs.code: is a number of more than 1000 characters"}},
	} {
		t.Run(fmt.Sprintf("%.60s", c.inputs), func(t *testing.T) {
			t.Parallel()
			err := s.CheckInputs(t.Context(), json.RawMessage(c.inputs))
			wantFields(t, err, c.want...)
			if text := strings.ToLower(err.Error()); strings.Contains(text, "secret") {
				t.Errorf("the value is told: %s", text)
			}
		})
	}
}

func TestSizeOfInputsAndOutputs(t *testing.T) {
	t.Parallel()
	s := skillWith(t, `{"type":"object"}`)
	frame := len(`{"a":""}`)
	fits := []byte(`{"a":"` + strings.Repeat("x", MaxInputBytes-frame) + `"}`)
	if err := s.CheckInputs(t.Context(), fits); err != nil {
		t.Error(err)
	}
	if got, err := s.CheckOutputs(t.Context(), fits); err != nil || len(got) != MaxOutputBytes {
		t.Error(err)
	}
	tooLong := append(fits, ' ')
	wantFields(t, s.CheckInputs(t.Context(), tooLong), "inputs: is larger than 4194304 bytes; put that much data into a file")
	if _, err := s.CheckOutputs(t.Context(), tooLong); err == nil || !strings.HasPrefix(err.Error(), "skill_output.json is larger than 4194304 bytes") {
		t.Error(err)
	}
	wantFields(t, s.CheckInputs(t.Context(), json.RawMessage(`{"a":[`+strings.Repeat("0,", 250_000)+`0]}`)), "inputs.a[")
}

func TestManyInvalidInputsAreCut(t *testing.T) {
	t.Parallel()
	s := skillWith(t, `{"type":"object","additionalProperties":{"type":"string"}}`)
	var members []string
	for n := range 1000 {
		members = append(members, fmt.Sprintf(`"k%03d":%d`, n, n))
	}
	e := fault.From(s.CheckInputs(t.Context(), json.RawMessage("{"+strings.Join(members, ",")+"}")))
	if len(e.Fields) != maxFields || e.Fields[0].Field != "inputs.k000" || e.Fields[maxFields-1].Reason != "and 981 more" {
		t.Errorf("%d fields: %+v", len(e.Fields), e.Fields)
	}
}

func TestOutputs(t *testing.T) {
	t.Parallel()
	s := skillWith(t,
		`{"type":"object","properties":{"matches":{"type":"array","items":{"type":"object","properties":{"line":{"type":"integer"}}}}},"required":["matches"]}`)
	got, err := s.CheckOutputs(t.Context(), []byte("{ \"matches\" : [ {\"line\": 12345678901234567890} ],\n \"b\": \"<é>\" }\n"))
	if err != nil || string(got) != `{"matches":[{"line":12345678901234567890}],"b":"<é>"}` {
		t.Errorf("%s, %v", got, err)
	}
	for raw, want := range map[string]string{
		``:                                   "skill_output.json is empty; a JSON object is needed",
		` `:                                  "skill_output.json is empty; a JSON object is needed",
		`{}`:                                 "skill_output.json: /matches is missing",
		`hello`:                              "skill_output.json is no JSON at byte 0",
		`[]`:                                 "skill_output.json must be an object, not a list",
		`{"matches":[{"line":"x"}]}`:         "skill_output.json: /matches/0/line must be a whole number, not a string",
		`{"matches":[{"line":[]},[]]}`:       "skill_output.json: /matches/0/line must be a whole number, not a list (and 1 more)",
		`{"matches":[],"a/b":{"c":1,"c":2}}`: "skill_output.json: /a~1b/c is given more than once",
		`{"matches":` + strings.Repeat("[", 100_000): "skill_output.json: /matches" + strings.Repeat("/0", 63) + " is nested deeper than 64 levels",
		`{"matches":[],"n":1E+500}`:                  "skill_output.json: /n is a number beyond the range of 64 bits",
		"{\"matches\":[],\"n\":\"\xff\"}":            "skill_output.json: /n is not valid UTF-8 at byte",
		`{"matches":[]} trailing`:                    "skill_output.json must be one JSON value; there is something after it",
	} {
		if out, err := s.CheckOutputs(t.Context(), []byte(raw)); err == nil || out != nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.40s: %s, %v; want %s", raw, out, err, want)
		}
	}
}

func TestConcurrentValidation(t *testing.T) {
	t.Parallel()
	s := skillWith(t, `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
	var wait sync.WaitGroup
	for n := range 50 {
		wait.Go(func() {
			for range 20 {
				if err := s.CheckInputs(t.Context(), fmt.Appendf(nil, `{"n":%d}`, n)); err != nil {
					t.Error(err)
				}
				if err := s.CheckInputs(t.Context(), fmt.Appendf(nil, `{"n":"%d"}`, n)); !fault.Is(err, fault.InvalidInputs) {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
}
