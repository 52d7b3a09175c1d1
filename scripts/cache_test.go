package scripts

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestResultsFollowTheSource checks that go test repeats the tests of a package which builds
// programs or runs scripts of the module when any file changes: it does not see what those programs
// read. Such tests ask for SECBOX_SOURCE, which make sets to the tree's id.
func TestResultsFollowTheSource(t *testing.T) {
	t.Parallel()
	excused := map[string]string{
		"../api":              "builds what it has generated from the contract, a file that it reads",
		"../cmd/sandbox-init": "builds its own package",
		"../skills":           "builds its own package",
	}
	runs := regexp.MustCompile(`exec\.Command(Context)?\([^\n]*"(go|[^"\n]*\.sh)"|"\.\.?/(scripts/)?[a-z-]+\.sh", "`)
	tests := map[string]string{}
	for _, pattern := range []string{"../*/*_test.go", "../*/*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tests[filepath.Dir(file)] += string(content)
		}
	}
	found := 0
	for dir, text := range tests {
		if !runs.MatchString(text) {
			continue
		}
		found++
		if excused[dir] == "" && !strings.Contains(text, `os.Getenv("SECBOX_SOURCE")`) {
			t.Errorf("%s builds programs or runs scripts, and does not ask for SECBOX_SOURCE", dir)
		}
	}
	if found < 6 {
		t.Fatalf("only %d such packages found in %d", found, len(tests))
	}
}
