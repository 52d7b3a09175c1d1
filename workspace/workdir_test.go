//go:build unix

package workspace_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWorkDirIntact: a sandbox must not go on in a removed directory.
func TestWorkDirIntact(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	project, err := f.Project("agent~user")
	must(t, err)
	place, err := project.WorkDir()
	must(t, err)
	defer place.Close()
	must(t, os.WriteFile(filepath.Join(place.Path, "by-path"), []byte("x"), 0o644))
	must(t, place.Dir.WriteFile("by-handle", []byte("x"), 0o644))
	for _, name := range []string{"by-path", "by-handle"} {
		if _, err := place.Dir.Stat(name); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(place.Path, name)); err != nil {
			t.Error(err)
		}
	}
	if !place.Intact() {
		t.Fatal("it is not intact at once")
	}
	must(t, os.RemoveAll(place.Path))
	if place.Intact() {
		t.Error("it is intact although it was removed")
	}
	must(t, os.Mkdir(place.Path, 0o755))
	if place.Intact() {
		t.Error("it is intact although it was made again")
	}
	place.Close()
	place.Close() // is safe
	again, err := project.WorkDir()
	must(t, err)
	defer again.Close()
	if !again.Intact() {
		t.Error("the new one is not intact")
	}
	must(t, os.Rename(again.Path, again.Path+"-elsewhere"))
	must(t, os.Symlink("work-elsewhere", again.Path))
	if again.Intact() {
		t.Error("it is intact behind a link")
	}
	if behind, err := project.WorkDir(); err == nil {
		behind.Close()
		t.Error("a link was opened")
	}
}
