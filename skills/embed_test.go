package skills

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEverySkillIsEmbeddedAndValid reads the folder itself, so that a new skill cannot be
// forgotten, and compares the digest of each skill with the digest of the embedded one.
func TestEverySkillIsEmbeddedAndValid(t *testing.T) {
	t.Parallel()
	now := open(t, "").Now()
	for _, b := range now.Broken() {
		t.Errorf("%s is broken: %+v", b.Folder, b.Problems)
	}
	manifests, err := filepath.Glob("builtin/*/" + ManifestFile)
	must(t, err)
	if len(manifests) == 0 {
		t.Fatal("no skill found; the test looks in the wrong place")
	}
	for _, path := range manifests {
		folder := filepath.Dir(path)
		id := filepath.Base(folder)
		s, err := now.Get(id)
		if err != nil {
			t.Errorf("%s is here and is not embedded", id)
			continue
		}
		report, err := Lint(folder, nil)
		must(t, err)
		if got := report.Folders[0]; got.Digest != digestOnDisk(s) || len(got.Problems) > 0 {
			t.Errorf("%s: on the disk %+v, embedded %s", id, got, digestOnDisk(s))
		}
		for _, f := range s.Files {
			if _, err := fs.Stat(s.FS(), f.Path); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
		if s.Source != BuiltIn || s.Readme == "" || len(s.Raw) == 0 {
			t.Errorf("%s: source %q, %d bytes of SKILL.md, %d of manifest", id, s.Source, len(s.Readme), len(s.Raw))
		}
	}
	for place, from := range sharedFiles {
		id, name, _ := strings.Cut(place, "/")
		s, err := now.Get(id)
		must(t, err)
		got, err := fs.ReadFile(s.FS(), name)
		must(t, err)
		want, err := os.ReadFile(filepath.Join("builtin", from))
		if err != nil || !bytes.Equal(got, want) || !slices.ContainsFunc(s.Files, func(f File) bool { return f.Path == name }) {
			t.Errorf("%s is not %s: %v", place, from, err)
		}
	}
	if len(manifests) != len(now.Skills()) {
		t.Errorf("%d folders, %d skills", len(manifests), len(now.Skills()))
	}
}

func TestManifestSchema(t *testing.T) {
	t.Parallel()
	onDisk, err := os.ReadFile("builtin/_schema/manifest.schema.json")
	must(t, err)
	if string(manifestSchema) != string(onDisk) {
		t.Fatal("the embedded schema differs")
	}
	if found, err := compiledManifestSchema().Validate(t.Context(), map[string]any{}); len(found) == 0 || err != nil {
		t.Fatal("the schema accepts anything")
	}
}
