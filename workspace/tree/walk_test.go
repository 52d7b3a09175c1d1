//go:build unix

package tree_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"secbox/workspace/tree"
)

// TestWalkOfReplacedDirectory: a listing leaves out a directory that is something else when it is
// opened; other walks fail.
func TestWalkOfReplacedDirectory(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(path string) error{
		"by a file": func(path string) error { return os.WriteFile(path, nil, 0o644) },
		"by a link": func(path string) error { return os.Symlink("..", path) },
	} {
		for _, skip := range []bool{true, false} {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "a/replaced/inner"), "x")
			write(t, filepath.Join(dir, "b"), "x")
			var seen []string
			err := openTree(t, dir).Walk(t.Context(), tree.Bounds{Entries: 10, Depth: 10, SkipReplaced: skip}, func(e tree.Entry) error {
				seen = append(seen, e.Path)
				if e.Path != "a/replaced" {
					return nil
				}
				must(t, os.RemoveAll(filepath.Join(dir, e.Path)))
				return replace(filepath.Join(dir, e.Path))
			})
			if want := []string{"a", "a/replaced", "b"}; skip && (err != nil || !slices.Equal(seen, want)) {
				t.Errorf("%s: saw %q, %v, want %q", name, seen, err, want)
			}
			if !skip && !tree.IsRefused(err) {
				t.Errorf("%s, not skipped: %v", name, err)
			}
		}
	}
}
