package api_test

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"os"
	osexec "os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/oapi-codegen/oapi-codegen/v2/pkg/codegen"
	"go.yaml.in/yaml/v3"

	"secbox/api"
)

// TestPublishedContract validates the served document as other tools do.
func TestPublishedContract(t *testing.T) {
	t.Parallel()
	f := start(t)
	asYAML, asJSON := f.get("/openapi.yaml"), f.get("/openapi.json")
	var fromYAML, fromJSON map[string]any
	if err := yaml.Unmarshal(asYAML.body, &fromYAML); err != nil || asYAML.StatusCode != 200 {
		t.Fatalf("/openapi.yaml: %d %v", asYAML.StatusCode, err)
	}
	if err := json.Unmarshal(asJSON.body, &fromJSON); err != nil || asJSON.StatusCode != 200 {
		t.Fatalf("/openapi.json: %d %v", asJSON.StatusCode, err)
	}
	for _, r := range []reply{asYAML, asJSON} {
		path := r.Request.URL.Path
		if again := f.do(request{path: path, header: map[string]string{"If-None-Match": r.Header.Get("ETag")}}); again.StatusCode != 304 {
			t.Errorf("%s: If-None-Match: %d", path, again.StatusCode)
		}
	}

	// One round through JSON makes numbers and times comparable.
	text, err := json.Marshal(fromYAML)
	if err != nil {
		t.Fatal(err)
	}
	var normal map[string]any
	if err := json.Unmarshal(text, &normal); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(normal, fromJSON) {
		t.Error("/openapi.yaml and /openapi.json differ")
	}

	nullables := 0
	var walk func(where string, v any)
	walk = func(where string, v any) {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				walk(where+"[]", item)
			}
		case map[string]any:
			for key, value := range v {
				if strings.HasPrefix(key, "x-go-") || key == "x-order" {
					t.Errorf("%s has %s, which names our own Go code", where, key)
				}
				walk(where+"/"+key, value)
			}
			if v["nullable"] == true {
				nullables++
				if v["type"] == nil { // OpenAPI 3.0.3 gives it no meaning then; Redocly and Spectral refuse it
					t.Errorf("%s is nullable and has no type", where)
				}
			}
		}
	}
	walk("", fromJSON)
	if nullables < 5 || fromJSON["paths"].(map[string]any)["/sandbox/execs"] == nil {
		t.Fatalf("%d nullable schemas; the test reads the wrong place", nullables)
	}
}

// TestGoClientOfThePublishedContractCompiles generates a client with default options.
func TestGoClientOfThePublishedContractCompiles(t *testing.T) {
	t.Parallel()
	doc, err := openapi3.NewLoader().LoadFromData(start(t).get("/openapi.yaml").body)
	if err != nil {
		t.Fatal(err)
	}
	api.Generator.Lock()
	client, err := codegen.Generate(doc, codegen.Configuration{
		PackageName: "client", Generate: codegen.GenerateOptions{Models: true, Client: true},
	}.UpdateDefaults())
	api.Generator.Unlock()
	if err != nil {
		t.Fatal(err)
	}

	// The overlay shows the compiler a package of this module, so that imports are found, and the
	// checkout stays as it is.
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	written, overlay := filepath.Join(dir, "client.go"), filepath.Join(dir, "overlay.json")
	shown := filepath.Join(here, "generatedclient", "client.go")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{shown: written}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{written: []byte(client), overlay: replace} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := osexec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "./generatedclient").CombinedOutput(); err != nil {
		t.Errorf("the generated client does not compile: %v\n%.2000s", err, out)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "client.go", client, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, imported := range file.Imports {
		if strings.HasPrefix(imported.Path.Value, `"secbox/`) {
			t.Errorf("the generated client imports %s", imported.Path.Value)
		}
	}
	if !strings.Contains(client, "RunExecWithResponse(") {
		t.Error("the generated client has no method for POST /sandbox/execs")
	}
}
