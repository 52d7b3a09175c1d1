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
	"testing"

	"github.com/oapi-codegen/oapi-codegen/v2/pkg/codegen"
	"github.com/oapi-codegen/oapi-codegen/v2/pkg/util"
	"go.yaml.in/yaml/v3"

	"secbox/audit"
	"secbox/fault"
	"secbox/policy"
)

func loaded(t *testing.T) *contract {
	t.Helper()
	c, err := loadContract(contractYAML)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestGeneratedCodeIsFresh makes gen.go again in memory.
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
	spec, err := util.LoadSwagger("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want, err := codegen.Generate(spec, cfg.UpdateDefaults())
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("gen.go")
	if err != nil {
		t.Fatal(err)
	}
	body := func(s string) string { _, rest, _ := strings.Cut(s, "package api"); return rest } // the header names a version
	if body(string(got)) != body(want) {
		t.Error("gen.go is older than openapi.yaml: run go generate ./api")
	}
}

// TestEveryOperationHasRolesAndOneRoute: New refuses a drift, so it is enough that it does.
func TestEveryOperationHasRolesAndOneRoute(t *testing.T) {
	t.Parallel()
	c := loaded(t)
	if len(c.operations) < 15 {
		t.Fatalf("%d operations; the test reads the wrong place", len(c.operations))
	}
	for _, op := range c.operations {
		if op.public == (len(op.roles) > 0) {
			t.Errorf("%s: public %v and roles %v", op.id, op.public, op.roles)
		}
		if op.get("security").exists() != op.public {
			t.Errorf("%s: security and x-roles disagree", op.id)
		}
		for _, status := range []string{"401", "403"} {
			if !op.public && !op.spec.get("responses", status).exists() {
				t.Errorf("%s: no %s", op.id, status)
			}
		}
	}
	for name, change := range map[string][2]string{
		"no roles":       {"x-roles: [public]\n      security: []\n      responses:\n        \"200\":\n          description: It is.", "security: []\n      responses:\n        \"200\":\n          description: It is."},
		"empty roles":    {"x-roles: [auditor, admin]", "x-roles: []"},
		"unknown role":   {"x-roles: [auditor, admin]", "x-roles: [auditor, root]"},
		"public and not": {"x-roles: [auditor, admin]", "x-roles: [public, admin]"},
	} {
		broken := strings.Replace(string(contractYAML), change[0], change[1], 1)
		if broken == string(contractYAML) {
			t.Fatalf("%s: nothing was changed", name)
		}
		if _, err := loadContract([]byte(broken)); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func (o operation) get(path ...string) node { return o.spec.get(path...) }

// TestSchemasAreClosedAndExplained walks every schema of the contract.
func TestSchemasAreClosedAndExplained(t *testing.T) {
	t.Parallel()
	var walk func(where string, s node, isProperty bool)
	walk = func(where string, s node, named bool) {
		if s.ref() != "" {
			return
		}
		if named && s.get("description").text() == "" {
			t.Errorf("%s has no description", where)
		}
		if s.get("type").text() == "object" && !s.get("allOf").exists() && s.get("additionalProperties").text() != "false" && len(s.get("additionalProperties").entries()) == 0 {
			t.Errorf("%s is open", where)
		}
		for _, p := range s.get("properties").entries() {
			walk(where+"."+p.key, s.get("properties").raw(p.key), true)
			if raw := s.get("properties").raw(p.key); raw.ref() == "" && !raw.get("example").exists() && raw.get("type").text() != "array" && !raw.get("allOf").exists() {
				t.Errorf("%s.%s has no example", where, p.key)
			}
		}
		if items := s.raw("items"); items.exists() {
			walk(where+"[]", items, true)
		}
		if more := s.raw("additionalProperties"); len(more.entries()) > 0 {
			walk(where+"{}", more, true)
		}
	}
	schemas := loaded(t).doc.get("components", "schemas").entries()
	for _, s := range schemas {
		walk(s.key, s.node, true)
	}
	if len(schemas) < 20 {
		t.Fatalf("%d schemas; the test reads the wrong place", len(schemas))
	}
}

// TestTheContractsMinimaArePolicys: the least number that openapi.yaml allows is the least that the policy takes.
func TestTheContractsMinimaArePolicys(t *testing.T) {
	t.Parallel()
	looked := 0
	for _, property := range loaded(t).doc.get("components", "schemas", "PolicyOverrides", "properties").entries() {
		text := property.get("minimum").text()
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
			if err := json.Unmarshal([]byte(`{"`+property.key+`":`+number+`}`), &layer); err != nil {
				continue // a fraction of a whole number
			}
			if bad := policy.Check(layer, ""); (len(bad) == 0) != (value == least) {
				t.Errorf("%s: %s: %+v", property.key, number, bad)
			}
		}
	}
	if looked != 8 {
		t.Errorf("%d numbers have a minimum", looked)
	}
}

// TestTheContractKnowsEveryConstant reads the constants from the sources, so that one added there is noticed here.
func TestTheContractKnowsEveryConstant(t *testing.T) {
	t.Parallel()
	doc := loaded(t).doc
	for _, tc := range []struct{ file, kind, schema string }{
		{"../fault/fault.go", "Code", "ErrorCode"},
		{"../audit/record.go", "Status", "ExecStatus"},
		{"../audit/record.go", "Reason", "ErrorReason"},
	} {
		want := constants(t, tc.file, tc.kind)
		if tc.kind == "Reason" {
			want = append(want, "")
		}
		got := doc.get("components", "schemas", tc.schema, "enum").strings()
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) || len(want) < 5 {
			t.Errorf("%s: openapi.yaml has %v, %s has %v", tc.schema, got, tc.file, want)
		}
	}
}

// constants are the values of a const block's names of one type; the type stands at the first or at every name.
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

// TestNamesAreThoseOfTheRecord: the API shows a record and takes a policy under the names that the packages below gave them.
func TestNamesAreThoseOfTheRecord(t *testing.T) {
	t.Parallel()
	names := func(v any) []string {
		var out []string
		for i := range reflect.TypeOf(v).NumField() {
			name, _, _ := strings.Cut(reflect.TypeOf(v).Field(i).Tag.Get("json"), ",")
			out = append(out, name)
		}
		slices.Sort(out)
		return out
	}
	record := append(names(audit.Record{}), "requested_by_name") // looked up when it is shown
	slices.Sort(record)
	if got, want := names(ExecRecord{}), record; !slices.Equal(got, want) {
		t.Errorf("record: %v, want %v", got, want)
	}
	nested := []string{"net", "fs"}
	got := slices.DeleteFunc(names(PolicyOverrides{}), func(s string) bool { return slices.Contains(nested, s) })
	if want := names(policy.Layer{}); !slices.Equal(got, want) {
		t.Errorf("policy: %v, want %v", got, want)
	}
	if got, want := names(FieldProblem{}), names(fault.Field{}); !slices.Equal(got, want) {
		t.Errorf("field: %v, want %v", got, want)
	}
	required := loaded(t).doc.get("components", "schemas", "ExecRecord", "required").strings()
	required = append(required, "large_lists") // few records have it
	slices.Sort(required)
	if !slices.Equal(required, record) {
		t.Error("a field of the record is not required")
	}
}
