package health

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/skills"
)

// TestBrokenSkillsAreWarnings: each of the first is named, the rest is counted, and none of them
// stops an exec.
func TestBrokenSkillsAreWarnings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	catalog, err := skills.Open(skills.Config{Dir: dir, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	cfg, _ := realConfig(t)
	cfg.Skills = catalog.Now
	checker := patient(cfg)
	built := len(catalog.Now().Skills())
	if r := checker.Report(t.Context()); r.Skills != (Skills{Loaded: built}) || built == 0 {
		t.Errorf("%+v", r.Skills)
	}
	const broken = maxSkillProblems + 3
	for i := range broken {
		folder := filepath.Join(dir, fmt.Sprintf("broken.n%d", i))
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, skills.ManifestFile), []byte("{"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	catalog.Reload()
	r := checker.Report(t.Context())
	if r.Skills != (Skills{Loaded: built, Broken: broken}) || r.Status == Unavailable {
		t.Errorf("%s %+v", r.Status, r.Skills)
	}
	var named []Problem
	for _, p := range r.Problems {
		if p.Check == "skills" {
			named = append(named, p)
		}
	}
	if len(named) != maxSkillProblems+1 || !strings.Contains(named[maxSkillProblems].Reason, "3 more") {
		t.Fatalf("%+v", named)
	}
	for _, p := range named {
		if p.Remedy == "" || p.code != "" {
			t.Errorf("%+v", p)
		}
	}
	if !strings.Contains(named[0].Reason, "broken.n0") || !strings.Contains(named[0].Reason, skills.ReadmeFile) {
		t.Errorf("%q names neither folder nor file", named[0].Reason)
	}
	if err := checker.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}
