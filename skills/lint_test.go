package skills

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/fault"
)

func TestLint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	demo().write(t, filepath.Join(dir, "text.demo"))
	named(t, "shell.run").write(t, filepath.Join(dir, "shell.run"))
	demo().without(ReadmeFile).write(t, filepath.Join(dir, "a.b"))
	files{"x": ""}.write(t, filepath.Join(dir, "assets"))
	demo().write(t, filepath.Join(dir, "_draft"))
	report, err := Lint(dir, nil)
	must(t, err)
	if len(report.Folders) != 3 || report.Broken() != 1 {
		t.Fatalf("%+v", report)
	}
	wantProblem(t, report.Folders[0].Problems, ReadmeFile, "does not exist")
	wantProblem(t, report.Folders[0].Problems, ManifestFile, `is "text.demo", but the folder is called "a.b"`)
	wantProblem(t, report.Folders[1].Warnings, ManifestFile, "is the id of a built-in skill")
	ok := report.Folders[2]
	if ok.ID != "text.demo" || len(ok.Digest) != 64 || len(ok.Problems) != 0 || len(ok.Warnings) != 1 || report.Warnings() != 3 {
		t.Errorf("%+v", report)
	}
	wantProblem(t, ok.Warnings, ManifestFile, "has no description")
	// One skill, by several spellings of its folder.
	for _, path := range []string{filepath.Join(dir, "text.demo"), filepath.Join(dir, "text.demo") + "/", filepath.Join(dir, "text.demo", "..", "text.demo")} {
		single, err := Lint(path, nil)
		must(t, err)
		if len(single.Folders) != 1 || single.Folders[0].Digest != ok.Digest {
			t.Errorf("%s: %+v", path, single)
		}
	}
}

func TestLintWarnings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	raw := set(t, "/interface/inputs", `{"type":"object","properties":{"a":{"type":"string"},"b":{"$ref":"#/properties/a"}}}`)
	demo().with(ManifestFile, raw).write(t, filepath.Join(dir, "text.demo"))
	report, err := Lint(dir, nil)
	must(t, err)
	var got []string
	for _, w := range report.Folders[0].Warnings {
		got = append(got, w.Pointer+" "+strings.Fields(w.Reason)[0])
	}
	want := "/interface/inputs allows, /interface/inputs has, /interface/inputs/properties/a has, /interface/outputs/properties/said has"
	if strings.Join(got, ", ") != want || report.Broken() != 0 {
		t.Errorf("got %s", strings.Join(got, ", "))
	}
}

func TestLintWithoutSkill(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for path, says := range map[string]string{
		"":                                 "is empty",
		filepath.Join(t.TempDir(), "none"): "does not exist",
		file:                               "is no folder",
		t.TempDir():                        "holds neither manifest.json nor SKILL.md",
	} {
		if _, err := Lint(path, nil); !fault.Is(err, fault.InvalidRequest) || !strings.Contains(fault.From(err).Message, says) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
