package scripts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReachNamesTests checks that each test which test-reach runs exists: a name that is gone would
// fail only there, hours later.
func TestReachNamesTests(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("reach/tests")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../e2e/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(content)
	}
	for line := range strings.Lines(string(list)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.Contains(source.String(), "func "+name+"(t *testing.T)") {
			t.Errorf("scripts/reach/tests names %s, which is no test of e2e", name)
		}
	}
}
