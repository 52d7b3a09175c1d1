package skills

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"secbox/fault"
)

// listed returns a package's tree and its list of files.
func (f files) listed() ([]File, fstest.MapFS) {
	tree := fstest.MapFS{}
	var list []File
	for _, path := range slices.Sorted(maps.Keys(f)) {
		content := []byte(f[path])
		tree[path] = &fstest.MapFile{Data: content}
		sum, program := sha256.Sum256(content), strings.HasPrefix(f[path], "#!")
		list = append(list, File{Path: path, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:]), Executable: program, Program: program})
	}
	return list, tree
}

func TestLoadPackage(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("d/", 16) + "x"
	for name, c := range map[string]struct {
		files                 files
		file, pointer, reason string // of the first problem; empty: there is none
	}{
		"a good one":                  {demo(), "", "", ""},
		"a hidden file belongs to it": {demo().with(".data/x", "x").with(ManifestFile, strings.Replace(good, "./run.sh", "./.data/x", 1)), "", "", ""},
		"an entrypoint that is gone":  {demo().without("run.sh"), ManifestFile, "/runtime/entrypoint/1", "no regular file"},
		"another id than the folder's": {
			demo().with(ManifestFile, strings.Replace(good, "text.demo", "text.other", 1)), ManifestFile, "/id",
			"must be equal",
		},
		"a manifest that is no JSON":  {demo().with(ManifestFile, "{"), ManifestFile, "", ""},
		"a manifest of 10 MiB":        {demo().with(ManifestFile, strings.Repeat(" ", 10<<20)), ManifestFile, "", "larger than"},
		"a manifest that is no file":  {demo().without(ManifestFile), ManifestFile, "", "no regular file"},
		"no SKILL.md":                 {demo().without(ReadmeFile), ReadmeFile, "", "does not exist"},
		"an empty SKILL.md":           {demo().with(ReadmeFile, ""), ReadmeFile, "", "is empty"},
		"a SKILL.md that is no UTF-8": {demo().with(ReadmeFile, "\xff"), ReadmeFile, "", "UTF-8"},
		"another kind of runtime": {
			demo().with(ManifestFile, strings.Replace(good, `"docker"`, `"podman"`, 1)), ManifestFile, "/runtime/kind",
			"docker",
		},
		"two names that differ by case":   {demo().with("A/x", "").with("a/y", ""), "a", "", "only by case"},
		"a path of more than 16 levels":   {demo().with(deep, ""), deep, "", "deeper"},
		"a path of more than 1,024 bytes": {demo().with(strings.Repeat("x", 1025), ""), strings.Repeat("x", 120) + "…", "", "bytes"},
		"a schema that leads out of itself": {
			demo().with(ManifestFile,
				strings.Replace(good, `"type": "string", "description": "What to say."`, `"$ref": "http://x/y"`, 1)), ManifestFile,
			"/interface/inputs/properties/text/$ref", "leads out",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list, tree := c.files.listed()
			skill, problems, err := LoadPackage("text.demo", list, tree)
			if err != nil || (skill == nil) == (problems == nil) {
				t.Fatalf("%v, %v, %v", skill, problems, err)
			}
			if skill != nil && (c.file != "" || c.pointer != "" || c.reason != "" || skill.ID() != "text.demo" || skill.Digest != Digest(list) ||
				skill.Source != Package) {
				t.Fatalf("it was taken: %+v", skill)
			}
			if skill == nil && (problems[0].File != c.file || problems[0].Pointer != c.pointer || !strings.Contains(problems[0].Reason, c.reason)) {
				t.Errorf("%+v", problems)
			}
		})
	}
}

func TestPackageBounds(t *testing.T) {
	t.Parallel()
	list, tree := demo().listed()
	for n := range maxFiles {
		list = append(list, File{Path: fmt.Sprintf("x%d", n)})
	}
	if _, problems, err := LoadPackage("text.demo", list, tree); err != nil || len(problems) == 0 || !strings.Contains(problems[0].Reason, "2000 files") {
		t.Errorf("%v, %v", problems, err)
	}
	list, tree = demo().listed()
	if _, problems, err := LoadPackage("text.demo", append(list, File{Path: "x", Size: MaxPackageBytes}), tree); err != nil || len(problems) == 0 ||
		!strings.Contains(problems[0].Reason, "64 MiB") {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestPackageChangesWhileItIsRead(t *testing.T) {
	t.Parallel()
	for _, file := range []string{ManifestFile, ReadmeFile} {
		list, tree := demo().listed()
		tree[file] = &fstest.MapFile{Data: append([]byte{}, tree[file].Data...)}
		tree[file].Data[3] ^= 1
		if _, _, err := LoadPackage("text.demo", list, tree); !errors.Is(err, ErrChanged) {
			t.Errorf("%s with another byte: %v", file, err)
		}
		delete(tree, file)
		if _, _, err := LoadPackage("text.demo", list, tree); !errors.Is(err, ErrChanged) {
			t.Errorf("%s gone: %v", file, err)
		}
	}
}

func TestSnapshotWithPackages(t *testing.T) {
	t.Parallel()
	catalog, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	list, tree := demo().listed()
	mine, _, err := LoadPackage("text.demo", list, tree)
	if err != nil {
		t.Fatal(err)
	}
	taken := mine.WithFS(nil)
	taken.Manifest.ID = "shell.run"
	now := catalog.Now()
	with := now.WithPackages([]*Skill{mine, taken}, []Broken{{Folder: "text.bad", Source: Package, Problems: []Problem{{Reason: "is bad"}}}})
	if got, err := with.Get("text.demo"); err != nil || got != mine {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := with.Get("shell.run"); err != nil || got.Source != BuiltIn {
		t.Errorf("the built-in skill does not stay: %v, %v", got, err)
	}
	if b := with.Broken(); len(b) != 2 || b[0].Folder != "shell.run" || b[0].Problems[0].Pointer != "/id" ||
		!strings.Contains(b[0].Problems[0].Reason, BuiltIn) || b[1].Folder != "text.bad" {
		t.Errorf("%+v", b)
	}
	if _, err := with.Get("text.bad"); !fault.Is(err, fault.UnknownSkill) || !strings.Contains(err.Error(), "user_id") {
		t.Error(err)
	}
	if len(with.Skills()) != len(now.Skills())+1 || with.Version() == now.Version() {
		t.Errorf("%d skills, version %s", len(with.Skills()), with.Version())
	}
	if _, err := now.Get("text.demo"); err == nil || len(now.Broken()) != 0 {
		t.Error("the catalog itself has the package")
	}
}

// FuzzPackageManifest reads any bytes as a package's manifest: the result is either a skill or
// problems.
func FuzzPackageManifest(f *testing.F) {
	f.Add([]byte(good), "text.demo")
	f.Add([]byte("{}"), "..")
	f.Add([]byte("\xff\x00"), "")
	f.Fuzz(func(t *testing.T, raw []byte, id string) {
		list, tree := demo().with(ManifestFile, string(raw)).listed()
		skill, problems, err := LoadPackage(id, list, tree)
		if err != nil || (skill == nil) == (len(problems) == 0) {
			t.Fatalf("%+v, %+v, %v", skill, problems, err)
		}
		if skill != nil && skill.ID() != id {
			t.Errorf("the skill %q in the package %q", skill.ID(), id)
		}
	})
}
