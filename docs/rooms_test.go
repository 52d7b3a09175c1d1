//go:build unix

package docs

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// withoutDoc are the rooms that hold programs, tests or no Go code, so that no doc.go describes
// them.
var withoutDoc = []string{"clients", "cmd", "docs", "e2e", "examples", "scripts"}

// TestArchitectureNamesEveryRoom compares the lines of the map with the directories.
func TestArchitectureNamesEveryRoom(t *testing.T) {
	t.Parallel()
	page := read(t, "../ARCHITECTURE.md")
	if want, got := rooms(t), matches(`(?m)^([a-z0-9]+)/ `, page); !slices.Equal(got, want) {
		t.Errorf("ARCHITECTURE.md has lines for %q, and the directories are %q", got, want)
	}
	programs, err := filepath.Glob("../cmd/*")
	if err != nil || len(programs) == 0 {
		t.Fatal(programs, err)
	}
	for _, dir := range programs {
		if !strings.Contains(page, "`"+filepath.Base(dir)+"`") {
			t.Errorf("ARCHITECTURE.md does not name the program %s", dir)
		}
	}
}

// TestDocNamesEveryPackage compares the list in each room's doc.go with the packages of the room.
func TestDocNamesEveryPackage(t *testing.T) {
	t.Parallel()
	for _, room := range rooms(t) {
		if slices.Contains(withoutDoc, room) {
			continue
		}
		doc, err := os.ReadFile(filepath.Join("..", room, "doc.go"))
		if err != nil {
			t.Error(err)
			continue
		}
		want, got := packagesIn(t, room), matches(`(?m)^//   - ([a-z0-9/]+): `, string(doc))
		if !slices.Equal(got, want) {
			t.Errorf("%s/doc.go lists %q, and the packages are %q", room, got, want)
		}
		if !regexp.MustCompile(`must not know|may know`).Match(doc) {
			t.Errorf("%s/doc.go does not say what the room must not know", room)
		}
	}
}

// TestEveryPageHasAReader looks for each page of docs/ in the list of pages by reader.
func TestEveryPageHasAReader(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	listed := read(t, "README.md")
	for _, page := range pages {
		if page != "README.md" && !strings.Contains(listed, "]("+page) {
			t.Errorf("README.md does not lead to %s", page)
		}
	}
}

// rooms are the top-level directories that hold something other than what Git ignores.
func rooms(t *testing.T) (out []string) {
	t.Helper()
	entries, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && e.Name()[0] != '.' && e.Name() != "bin" && e.Name() != "dist" {
			out = append(out, e.Name())
		}
	}
	return out
}

// packagesIn are the directories below a room that hold Go files, by their paths in it.
func packagesIn(t *testing.T, room string) []string {
	t.Helper()
	found, root := map[string]bool{}, filepath.Join("..", room)
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && e.Name() == "testdata" {
			return fs.SkipDir
		}
		if dir := filepath.Dir(path); strings.HasSuffix(path, ".go") && dir != root {
			rel, err := filepath.Rel(root, dir)
			found[filepath.ToSlash(rel)] = true
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(found))
}

// matches returns what the pattern's group matched, sorted.
func matches(pattern, text string) (out []string) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	slices.Sort(out)
	return out
}
