package api

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/oapi-codegen/oapi-codegen/v2/pkg/codegen"
	"github.com/oapi-codegen/oapi-codegen/v2/pkg/util"
	"go.yaml.in/yaml/v3"

	"secbox/api/contract"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/audit/export"
	"secbox/fault"
	"secbox/policy"
)

func loaded(t *testing.T) *contract.Contract {
	t.Helper()
	c, err := loadContract()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Generator is held while the code generator runs, which keeps its options in global variables.
var Generator sync.Mutex

// TestGeneratedCodeIsFresh makes wire/gen.go again in memory.
func TestGeneratedCodeIsFresh(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("oapi-codegen.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cfg struct {
		codegen.Configuration `yaml:",inline"`
		Output                string `yaml:"output"`
	}
	if err := yaml.Unmarshal(text, &cfg); err != nil {
		t.Fatal(err)
	}
	spec, err := util.LoadSwaggerWithOverlay("openapi.yaml", util.LoadSwaggerWithOverlayOpts{Path: cfg.OutputOptions.Overlay.Path, Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	Generator.Lock()
	want, err := codegen.Generate(spec, cfg.UpdateDefaults())
	Generator.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(cfg.Output)
	if err != nil {
		t.Fatal(err)
	}
	body := func(s string) string { _, rest, _ := strings.Cut(s, "package "+cfg.PackageName); return rest } // the header names a version
	if body(string(got)) != body(want) {
		t.Errorf("%s is older than openapi.yaml: run go generate ./api", cfg.Output)
	}
}

func TestEveryOperationHasRolesAndOneRoute(t *testing.T) {
	t.Parallel()
	c := loaded(t)
	if len(c.Operations) < 15 {
		t.Fatalf("%d operations; the test reads the wrong place", len(c.Operations))
	}
	for _, op := range c.Operations {
		if op.Public == (len(op.Roles) > 0) {
			t.Errorf("%s: public %v and roles %v", op.ID, op.Public, op.Roles)
		}
		if op.Spec.Get("security").Exists() != op.Public {
			t.Errorf("%s: security and x-roles disagree", op.ID)
		}
		for _, status := range []string{"401", "403"} {
			if !op.Public && !op.Spec.Get("responses", status).Exists() {
				t.Errorf("%s: no %s", op.ID, status)
			}
		}
	}
	for name, change := range map[string][2]string{
		"no roles": {
			"x-roles: [public]\n      security: []\n      responses:\n        \"200\":\n          description: The process answers.",
			"security: []\n      responses:\n        \"200\":\n          description: The process answers.",
		},
		"empty roles":    {"x-roles: [auditor, admin]", "x-roles: []"},
		"unknown role":   {"x-roles: [auditor, admin]", "x-roles: [auditor, root]"},
		"public and not": {"x-roles: [auditor, admin]", "x-roles: [public, admin]"},
	} {
		broken := strings.Replace(string(contractYAML), change[0], change[1], 1)
		if broken == string(contractYAML) {
			t.Fatalf("%s: nothing was changed", name)
		}
		if _, err := contract.Load([]byte(broken)); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// TestSchemasAreClosedAndExplained walks every schema of the contract.
func TestSchemasAreClosedAndExplained(t *testing.T) {
	t.Parallel()
	var walk func(where string, s contract.Node, isProperty bool)
	walk = func(where string, s contract.Node, named bool) {
		if s.Ref() != "" {
			return
		}
		if named && s.Get("description").Text() == "" {
			t.Errorf("%s has no description", where)
		}
		if s.Get("type").Text() == "object" && !s.Get("allOf").Exists() && s.Get("additionalProperties").Text() != "false" &&
			len(s.Get("additionalProperties").Entries()) == 0 {
			t.Errorf("%s is open", where)
		}
		for _, p := range s.Get("properties").Entries() {
			walk(where+"."+p.Key, s.Get("properties").Raw(p.Key), true)
			if raw := s.Get("properties").Raw(p.Key); raw.Ref() == "" && !raw.Get("example").Exists() && raw.Get("type").Text() != "array" &&
				!raw.Get("allOf").Exists() {
				t.Errorf("%s.%s has no example", where, p.Key)
			}
		}
		if items := s.Raw("items"); items.Exists() {
			walk(where+"[]", items, true)
		}
		if more := s.Raw("additionalProperties"); len(more.Entries()) > 0 {
			walk(where+"{}", more, true)
		}
	}
	schemas := loaded(t).Doc.Get("components", "schemas").Entries()
	for _, s := range schemas {
		walk(s.Key, s.Node, true)
	}
	if len(schemas) < 20 {
		t.Fatalf("%d schemas; the test reads the wrong place", len(schemas))
	}
}

// TestMinimaMatchPolicy: openapi.yaml and package policy have the same minima.
func TestMinimaMatchPolicy(t *testing.T) {
	t.Parallel()
	looked := 0
	for _, property := range loaded(t).Doc.Get("components", "schemas", "PolicyOverrides", "properties").Entries() {
		text := property.Get("minimum").Text()
		if text == "" {
			continue
		}
		looked++
		least, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range []float64{least, least - least/16} {
			var layer policy.Layer
			number := strconv.FormatFloat(value, 'f', -1, 64)
			if err := json.Unmarshal([]byte(`{"`+property.Key+`":`+number+`}`), &layer); err != nil {
				continue // a fraction of a whole number
			}
			if bad := policy.Check(layer, ""); (len(bad) == 0) != (value == least) {
				t.Errorf("%s: %s: %+v", property.Key, number, bad)
			}
		}
	}
	numbers := slices.DeleteFunc(policy.Describe(), func(d policy.Description) bool { return d.Ceiling == nil })
	if looked != len(numbers) {
		t.Errorf("%d numbers have a minimum, want %d", looked, len(numbers))
	}
}

// TestEnumsMatchConstants compares enums with the constants in the sources.
func TestEnumsMatchConstants(t *testing.T) {
	t.Parallel()
	doc := loaded(t).Doc
	for _, tc := range []struct{ file, kind, schema string }{
		{"../audit/record.go", "Status", "ExecStatus"},
		{"../audit/record.go", "Reason", "ErrorReason"},
	} {
		want := constants(t, tc.file, tc.kind)
		if tc.kind == "Reason" {
			want = append(want, "")
		}
		got := doc.Get("components", "schemas", tc.schema, "enum").Strings()
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) || len(want) < 5 {
			t.Errorf("%s: openapi.yaml has %v, %s has %v", tc.schema, got, tc.file, want)
		}
	}
}

// constants returns the values of the constants of one type.
func constants(t *testing.T, file, kind string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		lit, ok := spec.Values[0].(*ast.BasicLit)
		if name, isIdent := spec.Type.(*ast.Ident); ok && isIdent && name.Name == kind {
			value, _ := strconv.Unquote(lit.Value)
			out = append(out, value)
		}
		return true
	})
	return out
}

// TestExportFormatsMatch: openapi.yaml has the formats of package export.
func TestExportFormatsMatch(t *testing.T) {
	t.Parallel()
	ops := loaded(t).Operations
	op := ops[slices.IndexFunc(ops, func(op contract.Operation) bool { return op.ID == "exportAudit" })]
	want := map[string][]string{"ocsf_version": export.OCSFVersions()}
	for _, f := range export.Formats() {
		media, _, _ := strings.Cut(export.Format{Name: f.Name}.ContentType(), ";")
		want["format"] = append(want["format"], f.Name)
		if !slices.Contains(want["200"], media) {
			want["200"] = append(want["200"], media)
		}
	}
	got := map[string][]string{}
	for _, p := range op.Parameters() {
		if name := p.Get("name").Text(); want[name] != nil {
			got[name] = p.Get("schema", "enum").Strings()
		}
	}
	for _, c := range op.Spec.Get("responses", "200", "content").Entries() {
		got["200"] = append(got["200"], c.Key)
	}
	for name := range want {
		slices.Sort(got[name])
		slices.Sort(want[name])
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("openapi.yaml has %v, package export %v", got, want)
	}
}

// TestFieldNamesMatch: the API uses the field names of packages audit, policy and fault.
func TestFieldNamesMatch(t *testing.T) {
	t.Parallel()
	names := func(v any) []string {
		var out []string
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !f.Anonymous && name != "-" {
				out = append(out, name)
			}
		}
		slices.Sort(out)
		return out
	}
	record := append(names(audit.Record{}), "requested_by_name", "artifacts_removed_at", "request") // looked up when it is shown
	record = slices.DeleteFunc(record, func(name string) bool {
		return name == "connections" // only on the way into the database
	})
	slices.Sort(record)
	if got, want := names(wire.ExecRecord{}), record; !slices.Equal(got, want) {
		t.Errorf("record: %v, want %v", got, want)
	}
	for schema, typ := range map[string]any{"PolicyOverrides": wire.PolicyOverrides{}, "SkillLimits": policy.Limits{}, "FieldProblem": fault.Field{}} {
		var got []string
		for _, property := range loaded(t).Doc.Get("components", "schemas", schema, "properties").Entries() {
			got = append(got, property.Key)
		}
		slices.Sort(got)
		if want := names(typ); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", schema, got, want)
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[policy.ContainerLimits]()) {
		i := slices.IndexFunc(reflect.VisibleFields(reflect.TypeFor[wire.PoolKey]()), func(k reflect.StructField) bool {
			return k.Tag.Get("json") == f.Tag.Get("json") && k.Type == f.Type
		})
		if i < 0 {
			t.Errorf("PoolKey lacks %s, which tells containers apart", f.Tag.Get("json"))
		}
	}
	required := loaded(t).Doc.Get("components", "schemas", "ExecRecord", "required").Strings()
	required = append(required, "large_lists", "artifacts_removed_at", "unreadable", "request") // few records have them
	slices.Sort(required)
	if !slices.Equal(required, record) {
		t.Error("a field of the record is not required")
	}
}
