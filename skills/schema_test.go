package skills

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// inputsSchema is the good manifest with another schema of the inputs.
func inputsSchema(t testing.TB, schema string) string {
	t.Helper()
	return set(t, "/interface/inputs", schema)
}

// TestNothingIsFetched tries every way out of a schema that there is, to a server that must not be asked and to a file that would serve.
func TestNothingIsFetched(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s was fetched", r.Method, r.URL)
		fmt.Fprint(w, `{"type": "object"}`)
	}))
	t.Cleanup(server.Close)
	secret := filepath.Join(t.TempDir(), "secret.json")
	must(t, os.WriteFile(secret, []byte(`{"type": "object", "title": "hunter2"}`), 0o600))
	file := "file://" + filepath.ToSlash(secret)

	const top = "/interface/inputs"
	cases := map[string]struct{ schema, where string }{
		"$ref to http":                {`{"type":"object","$ref":"URL"}`, top + "/$ref"},
		"$ref to a file":              {`{"type":"object","$ref":"FILE"}`, top + "/$ref"},
		"$ref to a path":              {`{"type":"object","$ref":"/etc/passwd"}`, top + "/$ref"},
		"$ref to a name":              {`{"type":"object","$ref":"other.json"}`, top + "/$ref"},
		"$ref to a query":             {`{"type":"object","$ref":"?x#/a"}`, top + "/$ref"},
		"$ref to nothing":             {`{"type":"object","$ref":""}`, top + "/$ref"},
		"$ref with a fragment":        {`{"type":"object","$ref":"URL#/a"}`, top + "/$ref"},
		"$ref to a metaschema":        {`{"type":"object","$ref":"https://json-schema.org/draft/2020-12/schema"}`, top + "/$ref"},
		"$ref in a property":          {`{"type":"object","properties":{"a/b":{"$ref":"URL"}}}`, top + "/properties/a~1b/$ref"},
		"$ref in a definition":        {`{"type":"object","$defs":{"x":{"items":{"$ref":"URL"}}}}`, top + "/$defs/x/items/$ref"},
		"$ref in allOf":               {`{"type":"object","allOf":[{"if":{"not":{"$ref":"FILE"}}}]}`, top + "/allOf/0/if/not/$ref"},
		"$ref in contentSchema":       {`{"type":"object","properties":{"x":{"contentMediaType":"application/json","contentSchema":{"$ref":"URL"}}}}`, top + "/properties/x/contentSchema/$ref"},
		"$ref in old keywords":        {`{"type":"object","definitions":{"x":{"$ref":"URL"}},"dependencies":{"y":{"$ref":"URL"}}}`, ""},
		"$ref by a detour":            {`{"type":"object","$ref":"#/default","default":{"$ref":"URL"}}`, top},
		"$ref by a detour to a file":  {`{"type":"object","$ref":"#/examples/0","examples":[{"$ref":"FILE"}]}`, top},
		"$ref by an unknown keyword":  {`{"type":"object","$ref":"#/x/y","x":{"y":{"$id":"URL","$ref":"z"}}}`, top},
		"$dynamicRef":                 {`{"type":"object","$dynamicRef":"URL#node"}`, top + "/$dynamicRef"},
		"$recursiveRef":               {`{"type":"object","$recursiveRef":"URL"}`, top + "/$recursiveRef"},
		"$schema":                     {`{"$schema":"URL","type":"object"}`, top + "/$schema"},
		"$schema of a file":           {`{"$schema":"FILE","type":"object"}`, top + "/$schema"},
		"$schema of another dialect":  {`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}`, top + "/$schema"},
		"$schema of half the dialect": {`{"$schema":"https://json-schema.org/draft/2020-12/meta/core","type":"object","pattern":7}`, top + "/$schema"},
		"$schema in a part":           {`{"type":"object","properties":{"x":{"$schema":"URL"}}}`, top + "/properties/x/$schema"},
		"$schema of no text":          {`{"$schema":5,"type":"object"}`, top + "/$schema"},
		"$id as a base":               {`{"$id":"URL","type":"object","properties":{"x":{"$ref":"#/a"}}}`, top + "/$id"},
		"$id in a part":               {`{"type":"object","properties":{"x":{"$id":"FILE"}}}`, top + "/properties/x/$id"},
		"$vocabulary":                 {`{"type":"object","$vocabulary":{"URL":true}}`, top},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schema := strings.NewReplacer("URL", server.URL+"/x", "FILE", file).Replace(c.schema)
			bad := problemsOf(inputsSchema(t, schema))
			if len(bad) == 0 {
				t.Fatal("it was accepted")
			}
			for _, p := range bad {
				if c.where != "" && p.Pointer != c.where || strings.Contains(p.Reason, "hunter2") {
					t.Errorf("%s: %s; want it at %s", p.Pointer, p.Reason, c.where)
				}
			}
		})
	}
}

func TestReferencesWithinASchema(t *testing.T) {
	t.Parallel()
	tree := `{"type":"object","properties":{"root":{"$ref":"#/$defs/node"}},"$defs":{"node":{"type":"object",
		"properties":{"name":{"type":"string"},"below":{"type":"array","items":{"$ref":"#/$defs/node"}}},"required":["name"]}}}`
	for name, schema := range map[string]string{
		"a tree":         tree,
		"itself":         `{"type":"object","properties":{"root":{"$ref":"#"}},"additionalProperties":false}`,
		"an anchor":      `{"type":"object","properties":{"root":{"$ref":"#n"}},"$defs":{"n":{"$anchor":"n","type":"object"}}}`,
		"dynamic":        `{"type":"object","$dynamicAnchor":"n","properties":{"root":{"$dynamicRef":"#n"}},"additionalProperties":false}`,
		"the dialect":    `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object"}`,
		"names of words": `{"type":"object","properties":{"$ref":{"type":"string"},"$id":{"type":"string"},"$schema":{}}}`,
		"data":           `{"type":"object","default":{"$ref":"http://example.org"},"examples":[{"$id":"x"}],"const":{}}`,
	} {
		if bad := problemsOf(inputsSchema(t, schema)); len(bad) > 0 {
			t.Errorf("%s: %+v", name, bad)
		}
	}
	s := skillWith(t, tree)
	if err := s.CheckInputs(json.RawMessage(`{"root":{"name":"a","below":[{"name":"b","below":[{"name":"c"}]}]}}`)); err != nil {
		t.Error(err)
	}
	wantFields(t, s.CheckInputs(json.RawMessage(`{"root":{"name":"a","below":[{"name":"b"},{"name":"c","below":[{"name":7}]}]}}`)),
		"inputs.root.below[1].below[0].name: must be a string, not a number")
}

func TestSchemasThatAreNone(t *testing.T) {
	t.Parallel()
	const top = "/interface/inputs"
	for _, c := range []struct{ schema, where, says string }{
		{`{"type":"object","properties":{"a":{"type":"strin"}}}`, top + "/properties/a/type", "is no valid JSON Schema: value must be one of"},
		{`{"type":"object","properties":{"a":{"pattern":"(?<=x)y"}}}`, top + "/properties/a/pattern", "is not valid 'regex'"},
		{`{"type":"object","patternProperties":{"(":{}}}`, top + "/patternProperties/(", "is not valid 'regex'"},
		{`{"type":"object","properties":{"a":{"minLength":-1}}}`, top + "/properties/a/minLength", "must be >= 0"},
		{`{"type":"object","properties":{"a":{"multipleOf":0}}}`, top + "/properties/a/multipleOf", "must be > 0"},
		{`{"type":"object","properties":{"a":7}}`, top + "/properties/a", "expected object or boolean"},
		{`{"type":"object","required":"a"}`, top + "/required", "expected array"},
		{`{"type":"object","properties":[]}`, top + "/properties", "expected object"},
		{`{"type":"object","$ref":"#/$defs/none"}`, top, "not found"},
		{`{"type":"object","$ref":"#none"}`, top, "not found"},
		{`{"type":"object","$ref":"#"}`, top, "refers to itself without end"},
		{`{"type":"object","allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"}]}}}`, top, "refers to itself without end"},
		{`{"type":"object","properties":{"a":{"pattern":"` + strings.Repeat("a", 1001) + `"}}}`, top + "/properties/a/pattern", "is longer than 1000 bytes"},
		{`{"type":"object","$defs":{"a":{"$dynamicAnchor":7}}}`, top + "/$defs/a/$dynamicAnchor", "expected string"},
		{`{"type":"object","$defs":{` + manyDefs(maxSubschemas) + `}}`, top, "has more than 2000 subschemas"},
	} {
		t.Run(fmt.Sprintf("%.80s", c.schema), func(t *testing.T) {
			t.Parallel()
			wants(t, problemsOf(inputsSchema(t, c.schema)), c.where, c.says)
		})
	}
	if bad := problemsOf(inputsSchema(t, `{"type":"object","$defs":{`+manyDefs(maxSubschemas-10)+`}}`)); len(bad) > 0 {
		t.Errorf("%+v", bad)
	}
}

func manyDefs(n int) string {
	defs := make([]string, n)
	for i := range defs {
		defs[i] = fmt.Sprintf(`"d%d":{"$dynamicAnchor":"a%d"}`, i, i)
	}
	return strings.Join(defs, ",")
}

// TestSchemasThatAskForTooMuchWork: a few lines that would keep a processor busy for longer than anybody waits.
func TestSchemasThatAskForTooMuchWork(t *testing.T) {
	t.Parallel()
	doubling := make([]string, 40)
	for n := range doubling {
		doubling[n] = fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, n, n+1, n+1)
	}
	deep := strings.Repeat(`{"c":`, 60) + `1` + strings.Repeat(`}`, 60)
	for name, c := range map[string]struct{ schema, inputs string }{
		"doubling in place":   {`{"type":"object","$ref":"#/$defs/d0","$defs":{` + strings.Join(doubling, ",") + `,"d40":{"minProperties":0}}}`, `{}`},
		"doubling each level": {`{"type":"object","$ref":"#/$defs/n","$defs":{"n":{"anyOf":[{"properties":{"c":{"$ref":"#/$defs/n"}},"required":["x"]},{"properties":{"c":{"$ref":"#/$defs/n"}},"required":["y"]}]}}}`, deep},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := skillWith(t, c.schema)
			wantFields(t, s.CheckInputs(json.RawMessage(c.inputs)), "inputs: cannot be validated: the skill's schema asks for too much work")
			// And the validator is as good as before.
			wantFields(t, s.CheckInputs(json.RawMessage(`[]`)), "inputs: must be an object, not a list")
		})
	}
}
