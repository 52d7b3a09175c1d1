package skills

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"secbox/policy"
	"secbox/skills/schema"
)

// problemsOf reads a manifest as the manifest of the folder text.demo.
func problemsOf(raw string) []Problem {
	_, _, _, problems := readManifest([]byte(raw), "text.demo")
	return firstProblems(problems)
}

func TestGoodManifest(t *testing.T) {
	t.Parallel()
	if bad := problemsOf(good); len(bad) > 0 {
		t.Fatalf("%+v", bad)
	}
	// Optional members.
	for _, path := range []string{"/limits", "/runtime/image", "/limits/cpu_cores"} {
		if bad := problemsOf(remove(t, path)); len(bad) > 0 {
			t.Errorf("without %s: %+v", path, bad)
		}
	}
	for path, value := range map[string]string{
		"/limits/cpu_cores":  "8192",
		"/$schema":           `"https://example.org/manifest.schema.json"`,
		"/runtime/image":     `"registry.example.org:5000/team/image@sha256:abc"`,
		"/name":              `"` + strings.Repeat("ä", 120) + `"`,
		"/interface/outputs": `{"type": "object"}`,
	} {
		if bad := problemsOf(set(t, path, value)); len(bad) > 0 {
			t.Errorf("%s = %.60s: %+v", path, value, bad)
		}
	}
}

// TestEveryConstraintOfTheSchema violates one constraint at a time: the report must name only that
// field and give the remedy.
func TestEveryConstraintOfTheSchema(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return `"` + strings.Repeat("a", n) + `"` }
	cases := []struct{ path, value, where, says string }{
		{"/schema_version", `"2"`, "", `must be "1"`},
		{"/schema_version", `1`, "", `must be "1"`},
		{"/id", `"Text.demo"`, "", "words of lower-case letters and digits, at least two, joined by dots"},
		{"/id", `"text"`, "", "must match the pattern"},
		{"/id", `"text..demo"`, "", "must match the pattern"},
		{"/id", `"text.demo."`, "", "must match the pattern"},
		{"/id", `"text_x.demo"`, "", "must match the pattern"},
		{"/id", "\"text.demo\\n\"", "", "must match the pattern"},
		{"/id", `"a.` + strings.Repeat("b", 121) + `"`, "", "must have at most 122 characters"},
		{"/id", `7`, "", "must be a string, not a number"},
		{"/name", `""`, "", "must not be empty"},
		{"/name", `"  "`, "", "must match the pattern"},
		{"/name", long(121), "", "must have at most 120 characters"},
		{"/name", `null`, "", "must be a string, not null"},
		{"/description", `""`, "", "must not be empty"},
		{"/description", long(4001), "", "must have at most 4000 characters"},
		{"/description", `["x"]`, "", "must be a string, not a list"},
		{"/extra", `1`, "", "is not known; there is $schema, description, id,"},
		{"/$schema", `1`, "", "must be a string"},
		{"/interface", `[]`, "", "must be an object, not a list"},
		{"/interface/inputs", `true`, "", "must be an object, not a boolean"},
		{"/interface/inputs", `{}`, "/interface/inputs/type", "is missing"},
		{"/interface/inputs/type", `"array"`, "", `must be "object"`},
		{"/interface/inputs/type", `["object"]`, "", `must be "object"`},
		{"/interface/outputs", `"x"`, "", "must be an object, not a string"},
		{"/interface/outputs", `{"properties": {}}`, "/interface/outputs/type", "is missing"},
		{"/interface/outputs/type", `"string"`, "", `must be "object"`},
		{"/interface/both", `{}`, "", "is not known; there is inputs and outputs"},
		{"/runtime", `"docker"`, "", "must be an object"},
		{"/runtime/kind", `"none"`, "", `must be "docker"`},
		{"/runtime/image", `"--privileged"`, "", "An image that the operator allows"},
		{"/runtime/image", `""`, "", "must match the pattern"},
		{"/runtime/image", `5`, "", "must be a string"},
		{"/runtime/shell", `true`, "", "is not known; there is entrypoint, image, kind and session"},
		{"/runtime/session", `"required"`, "", `must be "optional"`},
		{"/runtime/entrypoint", `"bash run.sh"`, "", "must be a list, not a string"},
		{"/runtime/entrypoint", `[]`, "", "must not be empty"},
		{"/runtime/entrypoint", "[" + strings.Repeat(`"a",`, 64) + `"a"]`, "", "must have at most 64 items"},
		{"/runtime/entrypoint", `["bash", 1]`, "/runtime/entrypoint/1", "must be a string"},
		{"/runtime/entrypoint", `["bash", ""]`, "/runtime/entrypoint/1", "must not be empty"},
		{"/runtime/entrypoint", `["bash", "a\u0000b"]`, "/runtime/entrypoint/1", "cannot hold a NUL"},
		{"/runtime/entrypoint", `["bash", ` + long(4097) + `]`, "/runtime/entrypoint/1", "must have at most 4096 characters"},
		{"/permissions", `null`, "", "must be an object"},
		{"/permissions/exec", `true`, "", "is not known; there is fs and net"},
		{"/permissions/fs", `[]`, "", "must be an object"},
		{"/permissions/fs/delete", `[]`, "", "is not known; there is read and write"},
		{"/permissions/fs/read", `"inputs/**"`, "", "must be a list"},
		{"/permissions/fs/read", `["inputs/**", "work/*.py"]`, "/permissions/fs/read/1", `must be one of "inputs/**", "work/**", "artifacts/**"`},
		{"/permissions/fs/read", `["inputs/**", "inputs/**"]`, "", "must not hold the same item twice"},
		{"/permissions/fs/write", `{}`, "", "must be a list"},
		{"/permissions/fs/write", `["artifacts/**", "inputs/**"]`, "/permissions/fs/write/1", `must be one of "work/**", "artifacts/**"`},
		{"/permissions/fs/write", `["artifacts/**", "artifacts/**"]`, "", "must not hold the same item twice"},
		{"/permissions/net", `"none"`, "", "must be an object"},
		{"/permissions/net/mode", `"bridge"`, "", `must be one of "none", "allowlist"`},
		{"/permissions/net/hosts", `[]`, "", "is not known; there is allow, credentials and mode"},
		{"/permissions/net/allow", `"a.example.org"`, "", "must be a list"},
		{"/permissions/net/allow", `["*"]`, "", "is neither a host name nor an address"},
		{"/permissions/net/credentials", `[{"secret": "key", "host": "a.example.org"}]`, "", "must have one of header, basic and query"},
		{"/permissions/net/credentials", `[{"secret": "key", "host": "a.example.org", "cookie": "a"}]`, "/permissions/net/credentials/0/cookie", "is not known"},
		{"/permissions/net/credentials", `[{"secret": "key", "basic": "a"}]`, "/permissions/net/credentials/0/host", "is missing"},
		{"/permissions/net/allow", `["a.example.org", "a.example.org"]`, "", "must not hold the same item twice"},
		{"/limits", `[]`, "", "must be an object"},
		{"/limits/timeout", `1`, "", "is not known; there is cpu_cores, kill_grace_ms, max_artifacts_bytes_total,"},
	}
	for name, floor := range map[string]string{
		"timeout_ms": "1", "max_stdout_bytes": "1", "max_stderr_bytes": "1", "max_artifacts_bytes_total": "1",
		"memory_mb": "16", "pids": "16", "tmp_mb": "1", "shm_mb": "1", "cpu_cores": "0.01",
	} {
		path := "/limits/" + name
		for _, low := range []string{"0", "-1", "-1e300"} {
			cases = append(cases, struct{ path, value, where, says string }{path, low, "", "must be at least " + floor})
		}
		cases = append(cases,
			struct{ path, value, where, says string }{path, "1180591620717411303424", "", "must be at most "},
			struct{ path, value, where, says string }{path, "1e400", "", "is a number beyond the range of 64 bits"},
			struct{ path, value, where, says string }{path, "1e999999999999", "", "is a number beyond the range of 64 bits"},
			struct{ path, value, where, says string }{path, strings.Repeat("9", 1001), "", "is a number of more than 1000 characters"},
			struct{ path, value, where, says string }{path, `"1"`, "", "number, not a string"},
		)
		if name != "cpu_cores" {
			cases = append(cases,
				struct{ path, value, where, says string }{path, "16.5", "", "must be a whole number, not one with a fraction"},
				struct{ path, value, where, says string }{path, "16.0", "", "must be written in digits"},
				struct{ path, value, where, says string }{path, "2e1", "", "must be written in digits"})
		}
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%s=%.40s", c.path, c.value), func(t *testing.T) {
			t.Parallel()
			wants(t, problemsOf(set(t, c.path, c.value)), orElse(c.where, c.path), c.says)
		})
	}
	for _, path := range []string{
		"/schema_version", "/id", "/name", "/description", "/interface", "/interface/inputs", "/interface/outputs", "/runtime", "/runtime/kind",
		"/runtime/entrypoint", "/permissions", "/permissions/fs", "/permissions/fs/read", "/permissions/fs/write", "/permissions/net", "/permissions/net/mode",
	} {
		t.Run("without "+path, func(t *testing.T) {
			t.Parallel()
			wants(t, problemsOf(remove(t, path)), path, "is missing")
		})
	}
}

func orElse(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// wants checks that all problems are at one place and that one of them contains the text.
func wants(t *testing.T, problems []Problem, where, says string) {
	t.Helper()
	said := false
	for _, p := range problems {
		if p.File != ManifestFile || p.Pointer != where {
			t.Errorf("%s#%s: %s; it should be at %s", p.File, p.Pointer, p.Reason, where)
		}
		said = said || strings.Contains(p.Reason, says)
		if strings.Contains(p.Reason, "jsonschema") {
			t.Errorf("the library speaks: %s", p.Reason)
		}
	}
	if !said {
		t.Errorf("nothing says %q at %s: %+v", says, where, problems)
	}
}

func TestRulesBeyondTheSchema(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ path, value, where, says string }{
		{"/id", `"text.other"`, "", `is "text.other", but the folder is called "text.demo"`},
		{"/permissions/fs/read", `["work/**"]`, "", `must hold "inputs/**": it holds the skill's folder and its input`},
		{"/permissions/fs/write", `["work/**"]`, "", `must hold "artifacts/**": it takes the skill's output`},
		{"/permissions/fs/write", `[]`, "", `must hold "artifacts/**"`},
		{"/interface/inputs/properties/project_id", `{"type": "string"}`, "", "is reserved"},
		{"/interface/inputs/required", `["project_id"]`, "", "the name is reserved"},
	} {
		t.Run(c.path+"="+c.value, func(t *testing.T) {
			t.Parallel()
			wants(t, problemsOf(set(t, c.path, c.value)), orElse(c.where, c.path), c.says)
		})
	}
	// Only the top level is reserved.
	if bad := problemsOf(set(t, "/interface/inputs/properties/nested", `{"properties": {"project_id": {"type": "string"}}}`)); len(bad) > 0 {
		t.Errorf("%+v", bad)
	}
}

func TestManifestsWithInvalidJSON(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ raw, where, says string }{
		"empty":           {"", "", "is empty"},
		"white space":     {" \n", "", "is empty"},
		"cut":             {good[:100], "", "is no JSON"},
		"a comment":       {"// hello\n" + good, "", "is no JSON at byte"},
		"two values":      {good + good, "", "something after it"},
		"a list":          {"[]", "", "must be an object, not a list"},
		"null":            {"null", "", "must be an object, not null"},
		"a name twice":    {strings.Replace(good, `"name"`, `"id": "x.y", "name"`, 1), "/id", "is given more than once"},
		"twice by escape": {strings.Replace(good, `"name"`, `"\u0069d": "x.y", "name"`, 1), "/id", "is given more than once"},
		"twice far below": {
			strings.Replace(good, `"type": "string", "desc`, `"type": "string", "type": "integer", "desc`, 1),
			"/interface/inputs/properties/text/type", "is given more than once",
		},
		"not UTF-8":      {strings.Replace(good, "Demo", "D\xffmo", 1), "/name", "is not valid UTF-8"},
		"half an escape": {strings.Replace(good, "Demo", `\ud800`, 1), "", ""},
		"a BOM":          {"\ufeff" + good, "", "is no JSON at byte"},
		"nested": {
			strings.Replace(good, `"Demo"`, strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000), 1), "/name" + strings.Repeat("/0", 63),
			"is nested deeper than 64 levels",
		},
		"nested, open": {strings.Repeat(`{"a":`, 1_000_00), strings.Repeat("/a", 64), "is nested deeper than 64 levels"},
		"many values":  {"[" + strings.Repeat("1,", 200_000) + "1]", "/199999", "values"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := problemsOf(c.raw)
			if len(bad) != 1 || !strings.Contains(bad[0].Reason, c.says) || c.says != "" && bad[0].Pointer != c.where {
				t.Errorf("%+v; want %s %q", bad, c.where, c.says)
			}
		})
	}
}

// TestLimitsMatchThePolicy compares the schema with package policy: the same names, minimums and
// maximums.
func TestLimitsMatchThePolicy(t *testing.T) {
	t.Parallel()
	doc, _ := schema.Parse(manifestSchema)
	node, _ := schema.At(doc, []string{"properties", "limits", "properties"})
	limits := node.(map[string]any)
	elsewhere := map[string]bool{
		policy.FieldNetMode: true, policy.FieldNetAllow: true, policy.FieldImage: true, policy.FieldFSRead: true, policy.FieldFSWrite: true,
		policy.FieldRuntime: true, policy.FieldNetCredentials: true,
	}
	fields := policy.Describe()
	for _, field := range fields {
		name := field.Name
		if _, ok := limits[name]; ok == elsewhere[name] {
			t.Errorf("%s: in the schema's limits: %v", name, ok)
		}
	}
	if len(limits)+len(elsewhere) != len(fields) {
		t.Errorf("the schema has %d limits, the policy %d fields", len(limits), len(fields))
	}
	asLayer := func(name string, value any) policy.Layer {
		text, err := json.Marshal(map[string]any{name: value})
		must(t, err)
		var l policy.Layer
		must(t, json.Unmarshal(text, &l))
		return l
	}
	for name, schema := range limits {
		s := schema.(map[string]any)
		low, high := s["minimum"].(json.Number), s["maximum"].(json.Number)
		if bad := policy.Check(asLayer(name, low), ""); len(bad) > 0 {
			t.Errorf("%s: the schema takes %s, the policy does not: %v", name, low, bad)
		}
		var above json.Number
		below := json.Number("0")
		switch {
		case name == policy.FieldCPUCores:
			below, above = "0.009", "8192.1"
		case low == "0", low == "16":
			below = map[json.Number]json.Number{"0": "-1", "16": "15"}[low]
			fallthrough
		default:
			n, err := high.Int64()
			must(t, err)
			above = json.Number(fmt.Sprint(n + 1))
		}
		if len(policy.Check(asLayer(name, below), "")) == 0 {
			t.Errorf("%s: the policy takes %s, the schema does not", name, below)
		}
		if _, err := policy.New(policy.Config{Ceiling: asLayer(name, high).Limits}); err != nil {
			t.Errorf("%s: no settings can allow the schema's maximum %s: %v", name, high, err)
		}
		if _, err := policy.New(policy.Config{Ceiling: asLayer(name, above).Limits}); err == nil {
			t.Errorf("%s: settings can allow %s, which the schema refuses", name, above)
		}
	}
}

func TestImagePatternMatchesThePolicy(t *testing.T) {
	t.Parallel()
	for _, image := range []string{
		"", "a", "-a", "/a", "a b", "a\n", "a:b@c/d.e_f-g", strings.Repeat("a", 512), strings.Repeat("a", 513), "ä", "a,b", "a$b",
	} {
		text, err := json.Marshal(image)
		must(t, err)
		ours := len(problemsOf(set(t, "/runtime/image", string(text)))) == 0
		theirs := len(policy.Check(policy.Layer{Image: &image}, "")) == 0
		if ours != theirs {
			t.Errorf("%.20q: the schema says %v, the policy %v", image, ours, theirs)
		}
	}
}

func TestManifestLayer(t *testing.T) {
	t.Parallel()
	m, _, _, problems := readManifest([]byte(good), "text.demo")
	if problems != nil {
		t.Fatalf("%+v", problems)
	}
	got, err := json.Marshal(m.Layer())
	must(t, err)
	want := `{"net.mode":"none","timeout_ms":1000,"max_stdout_bytes":1,"max_stderr_bytes":1,"max_artifacts_bytes_total":1,"memory_mb":64,` +
		`"cpu_cores":0.5,"pids":16,"tmp_mb":1,"image":"secbox-sandbox:latest","fs.read":["inputs/**","work/**"],"fs.write":["artifacts/**"]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if !m.ReadOnly() {
		t.Error("it writes nothing but artifacts")
	}
	m.Permissions.FS.Write = append(m.Permissions.FS.Write, policy.PatternWork)
	if m.ReadOnly() {
		t.Error("it writes work/")
	}
}
