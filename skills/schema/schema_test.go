package schema

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNothingIsFetched tries every way out of a schema, to a server that fails the test when asked
// and to a file that exists.
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

	const top = ""
	cases := map[string]struct{ schema, where string }{
		"$ref to http":         {`{"type":"object","$ref":"URL"}`, top + "/$ref"},
		"$ref to a file":       {`{"type":"object","$ref":"FILE"}`, top + "/$ref"},
		"$ref to a path":       {`{"type":"object","$ref":"/etc/passwd"}`, top + "/$ref"},
		"$ref to a name":       {`{"type":"object","$ref":"other.json"}`, top + "/$ref"},
		"$ref to a query":      {`{"type":"object","$ref":"?x#/a"}`, top + "/$ref"},
		"$ref to nothing":      {`{"type":"object","$ref":""}`, top + "/$ref"},
		"$ref with a fragment": {`{"type":"object","$ref":"URL#/a"}`, top + "/$ref"},
		"$ref to a metaschema": {`{"type":"object","$ref":"https://json-schema.org/draft/2020-12/schema"}`, top + "/$ref"},
		"$ref in a property":   {`{"type":"object","properties":{"a/b":{"$ref":"URL"}}}`, top + "/properties/a~1b/$ref"},
		"$ref in a definition": {`{"type":"object","$defs":{"x":{"items":{"$ref":"URL"}}}}`, top + "/$defs/x/items/$ref"},
		"$ref in allOf":        {`{"type":"object","allOf":[{"if":{"not":{"$ref":"FILE"}}}]}`, top + "/allOf/0/if/not/$ref"},
		"$ref in contentSchema": {
			`{"type":"object","properties":{"x":{"contentMediaType":"application/json","contentSchema":{"$ref":"URL"}}}}`,
			top + "/properties/x/contentSchema/$ref",
		},
		"$ref in old keywords":        {`{"type":"object","definitions":{"x":{"$ref":"URL"}},"dependencies":{"y":{"$ref":"URL"}}}`, ""},
		"$ref by a detour":            {`{"type":"object","$ref":"#/default","default":{"$ref":"URL"}}`, top + "/$ref"},
		"$ref by a detour to a file":  {`{"type":"object","$ref":"#/examples/0","examples":[{"$ref":"FILE"}]}`, top + "/$ref"},
		"$ref by an unknown keyword":  {`{"type":"object","$ref":"#/x/y","x":{"y":{"$id":"URL","$ref":"z"}}}`, top + "/$ref"},
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
		"$vocabulary":                 {`{"type":"object","$vocabulary":{"URL":true}}`, top + "/$vocabulary"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schema := strings.NewReplacer("URL", server.URL+"/x", "FILE", file).Replace(c.schema)
			bad := problemsOf(schema)
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
		if bad := problemsOf(schema); len(bad) > 0 {
			t.Errorf("%s: %+v", name, bad)
		}
	}
	s := mustCompile(t, tree)
	wantFindings(t, s, `{"root":{"name":"a","below":[{"name":"b","below":[{"name":"c"}]}]}}`)
	wantFindings(t, s, `{"root":{"name":"a","below":[{"name":"b"},{"name":"c","below":[{"name":7}]}]}}`,
		"value.root.below[1].below[0].name: must be a string, not a number")
}

func TestInvalidSchemas(t *testing.T) {
	t.Parallel()
	const top = ""
	for _, c := range []struct{ schema, where, says string }{
		{`{"type":"object","properties":{"a":{"type":"strin"}}}`, top + "/properties/a/type", "is no valid JSON Schema: value must be one of"},
		{`{"type":"object","properties":{"a":{"pattern":"(?<=x)y"}}}`, top + "/properties/a/pattern", "is not valid 'regex'"},
		{`{"type":"object","patternProperties":{"(":{}}}`, top + "/patternProperties/(", "is not valid 'regex'"},
		{`{"type":"object","properties":{"a":{"minLength":-1}}}`, top + "/properties/a/minLength", "must be >= 0"},
		{`{"type":"object","properties":{"a":{"multipleOf":0}}}`, top + "/properties/a/multipleOf", "must be > 0"},
		{`{"type":"object","properties":{"a":7}}`, top + "/properties/a", "expected object or boolean"},
		{`{"type":"object","required":"a"}`, top + "/required", "expected array"},
		{`{"type":"object","properties":[]}`, top + "/properties", "expected object"},
		{`{"type":"object","$ref":"#/$defs/none"}`, top + "/$ref", "leads to no schema"},
		{`{"type":"object","$ref":"#none"}`, top + "/$ref", "leads to no schema"},
		{`{"type":"object","$ref":"#"}`, top, "refers to itself without end"},
		{`{"type":"object","allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"}]}}}`, top, "refers to itself without end"},
		{`{"type":"object","properties":{"a":{"pattern":"` + strings.Repeat("a", 1001) + `"}}}`, top + "/properties/a/pattern", "is longer than 1000 bytes"},
		{`{"type":"object","$defs":{"a":{"$dynamicAnchor":7}}}`, top + "/$defs/a/$dynamicAnchor", "expected string"},
		{`{"type":"object","$defs":{` + manyDefs(maxSubschemas) + `}}`, top, "has more than 2000 subschemas"},
	} {
		t.Run(fmt.Sprintf("%.80s", c.schema), func(t *testing.T) {
			t.Parallel()
			wants(t, problemsOf(c.schema), c.where, c.says)
		})
	}
	if bad := problemsOf(`{"type":"object","$defs":{` + manyDefs(maxSubschemas-10) + `}}`); len(bad) > 0 {
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

// TestSchemasThatAreTooLarge expects findings at the parts of a schema that would take too much
// memory or time to compile.
func TestSchemasThatAreTooLarge(t *testing.T) {
	t.Parallel()
	const top = ""
	bomb := `"(?:` + strings.Repeat(`.{0,1000}`, 109) + `)\\d$"`
	long := strings.Repeat("n", 5000)
	var many, deep, lists []string
	for n := range 900 {
		many = append(many, fmt.Sprintf(`"p%d":{"pattern":"^(?:%s)$"}`, n, strings.Repeat("[a-z]{99}|", 98)))
	}
	for n := range 300 {
		deep = append(deep, fmt.Sprintf(`"d%d":{}`, n))
	}
	for n := range 60 {
		lists = append(lists, fmt.Sprintf(`[%d]`, n))
	}
	for name, c := range map[string]struct{ schema, where, says string }{
		"a program": {
			`{"type":"object","properties":{"a":{"pattern":` + bomb + `}}}`, top + "/properties/a/pattern",
			"compiles to more than 10000 instructions",
		},
		"nested repeats": {
			`{"type":"object","properties":{"a":{"pattern":"(?:(?:(?:a{9}){9}){9}b?){1}` + strings.Repeat("(?:c{31}){31}", 11) + `"}}}`,
			top + "/properties/a/pattern", "compiles to more than 10000 instructions",
		},
		"classes of many ranges": {
			`{"type":"object","properties":{"a":{"pattern":"\\pL{999}"}}}`, top + "/properties/a/pattern",
			"compiles to more than 10000 instructions",
		},
		"a program of a name": {`{"type":"object","patternProperties":{` + bomb + `:{}}}`, "", "compiles to more than 10000 instructions"},
		"many programs": {
			`{"type":"object","properties":{` + strings.Join(many, ",") + `}}`, top + "/properties/p493/pattern",
			"instructions together",
		},
		"beside its schemas": {`{"type":"object","$ref":"#/x","x":{"properties":{"a":{"pattern":` + bomb + `}}}}`, top + "/$ref", "leads to no schema"},
		"beside, escaped":    {`{"type":"object","$ref":"#%2Fx~1y","x/y":{"pattern":` + bomb + `}}`, top + "/$ref", "leads to no schema"},
		"within a list":      {`{"type":"object","$ref":"#/enum/0","enum":[{"pattern":` + bomb + `}]}`, top + "/$ref", "leads to no schema"},
		"within a const":     {`{"type":"object","$dynamicRef":"#/const","const":{"pattern":` + bomb + `}}`, top + "/$dynamicRef", "leads to no schema"},
		"a bad escape":       {`{"type":"object","$ref":"#/%zz"}`, top + "/$ref", "leads to no schema"},
		"an older reference": {`{"type":"object","$recursiveRef":"#"}`, top + "/$recursiveRef", "belongs to an older dialect"},
		"two anchors": {
			`{"type":"object","$defs":{"a":{"$anchor":"x"},"b":{"$dynamicAnchor":"x"}}}`, top + "/$defs/b/$dynamicAnchor",
			"is the name of another schema too",
		},
		"long pointers": {
			`{"type":"object","$defs":{"` + long + `":{"$defs":{` + strings.Join(deep, ",") + `}}}}`, top,
			"JSON pointers take more than",
		},
		"lists of no names": {`{"type":"object","required":[` + strings.Join(lists, ",") + `]}`, top + "/required", "must hold names only"},
		"lists of no names, too": {
			`{"type":"object","dependentRequired":{"a":[` + strings.Join(lists, ",") + `]}}`, top + "/dependentRequired/a",
			"must hold names only",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			problems := problemsOf(c.schema)
			if c.where == "" {
				if len(problems) != 1 || !strings.Contains(problems[0].Reason, c.says) {
					t.Errorf("%+v", problems)
				}
				return
			}
			wants(t, problems, c.where, c.says)
		})
	}
}

// TestReferencesAreSpeltInOneWay checks that every spelling of a reference leads to the same
// schema, which is compiled once.
func TestReferencesAreSpeltInOneWay(t *testing.T) {
	t.Parallel()
	for _, ref := range []string{"#/$defs/a~1b%25~0", "#/%24defs/a%7E1b%25~0", "#%2F$defs/%61~1b%25~0", "#here"} {
		s := mustCompile(t, `{"type":"object","properties":{"x":{"$ref":"`+ref+`"}},"$defs":{"a/b%~":{"$anchor":"here","type":"string"}}}`)
		wantFindings(t, s, `{"x":"y"}`)
		wantFindings(t, s, `{"x":1}`, "value.x: must be a string, not a number")
		c := s.compiled().schema
		if c.Properties["x"].Ref != s.compiled().schema.Properties["x"].Ref || c.Properties["x"].Ref.Location != schemaURL+"#/$defs/a~1b%25~0" {
			t.Errorf("%s leads to %s", ref, c.Properties["x"].Ref.Location)
		}
	}
}

const tooMuchWork = "value: cannot be validated: the schema asks for too much work"

// TestSchemasThatAskForTooMuchWork has short schemas that would keep a processor busy for minutes.
func TestSchemasThatAskForTooMuchWork(t *testing.T) {
	t.Parallel()
	doubling := make([]string, 40)
	for n := range doubling {
		doubling[n] = fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, n, n+1, n+1)
	}
	deep := strings.Repeat(`{"c":`, 60) + `1` + strings.Repeat(`}`, 60)
	text := `{"a":"` + strings.Repeat("a", 4_000_000) + `"}`
	var split []string // items that all look alike when they are written one after the other
	for n := range 60_000 {
		split = append(split, fmt.Sprintf(`["%sb"]`, strings.Repeat("b\\u0003", n%7)+fmt.Sprint(n)))
	}
	var lengths, numbers []string
	for n := range 1500 {
		lengths = append(lengths, fmt.Sprintf(`{"maxLength":%d}`, 5_000_000+n))
	}
	for n := range 20_000 {
		numbers = append(numbers, fmt.Sprintf(`%d.5`, n))
	}
	digits := `{"a":[` + strings.Repeat("0."+strings.Repeat("7", 997)+",", 1000) + `7]}`
	for name, c := range map[string]struct{ schema, inputs, says string }{
		"doubling in place": {
			`{"type":"object","$ref":"#/$defs/d0","$defs":{` + strings.Join(doubling, ",") + `,"d40":{"minProperties":0}}}`, `{}`,
			tooMuchWork,
		},
		"doubling each level":   {`{"type":"object","$ref":"#/$defs/n","$defs":{"n":{"anyOf":[{"properties":{"c":{"$ref":"#/$defs/n"}},"required":["x"]},{"properties":{"c":{"$ref":"#/$defs/n"}},"required":["y"]}]}}}`, deep, tooMuchWork},
		"a long text":           {`{"type":"object","properties":{"a":{"pattern":"(?:.{0,900}){1}\\d$"}}}`, text, tooMuchWork},
		"a long name":           {`{"type":"object","patternProperties":{"(?:.{0,900}){1}\\d$":true}}`, `{"` + text[6:4_000_000] + `":1}`, tooMuchWork},
		"a text measured often": {`{"type":"object","properties":{"a":{"allOf":[` + strings.Join(lengths, ",") + `]}}}`, text, tooMuchWork},
		"numbers compared":      {`{"type":"object","properties":{"a":{"contains":{"enum":[` + strings.Join(numbers, ",") + `]}}}}`, digits, tooMuchWork},
		"numbers divided":       {`{"type":"object","properties":{"a":{"contains":{"multipleOf":11e-300}}}}`, digits, "value.a: must hold at least 1 item"},
		"items alike":           {`{"type":"object","properties":{"a":{"uniqueItems":true}}}`, `{"a":[` + strings.Join(split, ",") + `]}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := mustCompile(t, c.schema)
			if c.says == tooMuchWork {
				s.work = maxWork / 100
			}
			if c.says != "" {
				wantFindings(t, s, c.inputs, c.says)
			} else {
				wantFindings(t, s, c.inputs)
			}
			// The schema can be used again.
			wantFindings(t, s, `[]`, "value: must be an object, not a list")
		})
	}
}

// TestValidationEndsWithContext cancels during a single match.
func TestValidationEndsWithContext(t *testing.T) {
	t.Parallel()
	re := regexp.MustCompile(`x{0,100}y$`)
	ctx, cancel := context.WithCancelCause(t.Context())
	e := &evaluation{ctx: ctx, programs: map[string]int{re.String(): 200}, left: maxWork}
	text := &interruptible{e: e, rest: strings.Repeat("x", 100_000), every: 1000}
	for range 5000 {
		_, _, _ = text.ReadRune()
	}
	why := errors.New("why")
	cancel(why)
	if re.MatchReader(text) || text.read > 7000 {
		t.Errorf("the match went on to %d", text.read)
	}
	s := mustCompile(t, `{"type":"object"}`)
	if _, err := explain(ctx, s, `{}`); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

// TestSentencesAreShort checks that neither a large constant nor many of them make a report large.
func TestSentencesAreShort(t *testing.T) {
	t.Parallel()
	long := `"` + strings.Repeat("s", 20_000) + `"`
	list := "[" + strings.TrimSuffix(strings.Repeat(`"0123456789",`, 2000), ",") + "]"
	s := mustCompile(t, `{"type":"object","properties":{"const":{"items":{"const":`+long+`}},"enum":{"items":{"enum":[`+long+`,`+list+`]}},
		"list":{"const":`+list+`},"either":{"anyOf":[{"const":`+long+`},{"const":{"a":`+list+`}}]},"pattern":{"pattern":"^(?:`+strings.Repeat("a", 900)+`)$"}}}`)
	items := strings.TrimSuffix(strings.Repeat("1,", 5000), ",")
	sentences, err := explain(t.Context(), s, `{"const":[`+items+`],"enum":[`+items+`],"list":1,"either":1,"pattern":"x"}`)
	must(t, err)
	if len(sentences) != maxFindings {
		t.Errorf("%d findings", len(sentences))
	}
	for _, one := range sentences {
		if len(one) > 620 {
			t.Errorf("%d bytes: %.100s", len(one), one)
		}
	}
}
