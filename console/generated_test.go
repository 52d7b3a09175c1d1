package console_test

import (
	"bytes"
	"go/format"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/a-h/templ"
	"github.com/a-h/templ/generator"
	"github.com/a-h/templ/parser/v2"
)

var callAsText = regexp.MustCompile(`WriteString\([^\n]*[^\n"]@[a-zA-Z.]+\([^\n]*`)

// TestGeneratedCodeIsFresh makes the code of each template again in memory, with the version of
// templ in go.mod.
func TestGeneratedCodeIsFresh(t *testing.T) {
	t.Parallel()
	directive, err := os.ReadFile("doc.go")
	if err != nil || !bytes.Contains(directive, []byte("templ/cmd/templ@"+templ.Version()+" generate")) {
		t.Fatalf("go:generate in doc.go uses another version of templ than go.mod (%s): %v", templ.Version(), err)
	}
	templates, err := filepath.Glob("*/*.templ")
	if err != nil || len(templates) == 0 {
		t.Fatal(templates, err)
	}
	for _, file := range templates {
		parsed, err := parser.Parse(file)
		if err != nil {
			t.Fatal(err)
		}
		var code bytes.Buffer
		if _, err := generator.Generate(parsed, &code, generator.WithVersion(templ.Version()), generator.WithFileName(file)); err != nil {
			t.Fatal(err)
		}
		want, err := format.Source(code.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(strings.TrimSuffix(file, ".templ") + "_templ.go")
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("the code of %s is older than it: run go generate ./console (%v)", file, err)
		}
		if at := callAsText.Find(got); at != nil {
			t.Errorf("%s has a call in the middle of a line, which templ takes for text: %s", file, at)
		}
	}
}
