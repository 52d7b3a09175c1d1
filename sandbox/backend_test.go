package sandbox

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"secbox/audit"
)

// TestBackendsAreNamedOnce: each backend has traits, and no other package spells its name.
func TestBackendsAreNamedOnce(t *testing.T) {
	t.Parallel()
	for _, name := range audit.Backends() {
		if _, ok := traits[name]; !ok {
			t.Errorf("%s has no traits", name)
		}
	}
	if len(traits) != len(audit.Backends()) {
		t.Errorf("traits of %d backends, want those of %v", len(traits), audit.Backends())
	}
	literal := regexp.MustCompile(`(?i)backend.*["'](` + strings.Join(audit.Backends(), "|") + `)["']`)
	read := 0
	err := fs.WalkDir(os.DirFS(".."), ".", func(path string, d fs.DirEntry, err error) error {
		name := filepath.Base(path)
		if err != nil || d.IsDir() && (strings.HasPrefix(name, ".") && name != "." ||
			slices.Contains([]string{"node_modules", "testdata", "storetest"}, name)) {
			if err == nil {
				err = fs.SkipDir
			}
			return err
		}
		if d.IsDir() || filepath.Ext(name) != ".go" && filepath.Ext(name) != ".templ" || strings.HasSuffix(name, "_test.go") || path == "audit/record.go" {
			return nil
		}
		read++
		text, err := os.ReadFile(filepath.Join("..", path))
		for line := range strings.Lines(string(text)) {
			if found := literal.FindString(line); found != "" {
				t.Errorf("%s: %s; write audit.Backend…", path, found)
			}
		}
		return err
	})
	if err != nil || read < 500 {
		t.Errorf("%d files read, %v", read, err)
	}
}
