package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/skills"
)

const lintedManifest = `{
  "schema_version": "1", "id": "text.demo", "name": "Demo", "description": "Says hi.",
  "interface": {
    "inputs": {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"], "additionalProperties": false},
    "outputs": {"type": "object"}
  },
  "runtime": {"kind": "docker", "entrypoint": ["bash", "./run.sh"]},
  "permissions": {"fs": {"read": ["inputs/**"], "write": ["artifacts/**"]}, "net": {"mode": "none"}}
}`

// skillFolder writes a skill and returns its folder.
func skillFolder(t *testing.T, dir, name, manifest string) string {
	t.Helper()
	folder := filepath.Join(dir, name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{"manifest.json": manifest, "SKILL.md": "# Demo\n", "run.sh": "echo hi\n"} {
		if err := os.WriteFile(filepath.Join(folder, path), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// noHome is an environment without a home, but for the folders that every user has on Windows.
var noHome = []string{`LOCALAPPDATA=C:\l`, `USERPROFILE=C:\u`}

// TestSkillsLint runs the command as an author would, in an environment that has no engine and no
// database.
func TestSkillsLint(t *testing.T) {
	t.Parallel()
	good := t.TempDir()
	skillFolder(t, good, "text.demo", lintedManifest)
	mixed := t.TempDir()
	skillFolder(t, mixed, "text.demo", lintedManifest)
	skillFolder(t, mixed, "text.bad", strings.Replace(lintedManifest, `"none"`, `"host"`, 1))
	greedy := t.TempDir()
	skillFolder(t, greedy, "text.demo", strings.TrimSuffix(lintedManifest, "}")+`, "limits": {"memory_mb": 700, "pids": 9000}}`)
	foreign := t.TempDir()
	skillFolder(t, foreign, "text.demo", strings.Replace(lintedManifest, `"kind": "docker"`, `"kind": "docker", "image": "foreign:1"`, 1))
	strict := filepath.Join(t.TempDir(), "strict.yaml")
	if err := os.WriteFile(strict, []byte("sandbox: {policy: {memory_mb: 512}, policy_ceiling: {memory_mb: 600}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cut := skillFolder(t, t.TempDir(), "text.demo", lintedManifest[:100])

	const warning = `text.demo/manifest.json#/interface/inputs/properties/who: warning: has no description; agents know what to give only by it` + "\n"
	for name, c := range map[string]struct {
		args     []string
		code     int
		out, err string
	}{
		"a good one":    {[]string{filepath.Join(good, "text.demo")}, 0, warning + "1 skill: 0 broken, 1 warning.\n", ""},
		"a good folder": {[]string{good}, 0, warning + "1 skill: 0 broken, 1 warning.\n", ""},
		"a broken one": {
			[]string{mixed},
			1,
			"text.bad/manifest.json#/id: is \"text.demo\", but the folder is called \"text.bad\"; they must be equal\n" +
				"text.bad/manifest.json#/permissions/net/mode: must be one of \"none\", \"allowlist\"\n" + warning + "2 skills: 1 broken, 1 warning.\n", "",
		},
		"above a default ceiling": {
			[]string{greedy},
			1,
			"text.demo/manifest.json#/limits/pids: 9000 is above the ceiling of 4096; the request or the skill's manifest must ask for at most that, " +
				"or have the operator raise sandbox.policy_ceiling.pids\n" + warning + "1 skill: 1 broken, 1 warning.\n", "",
		},
		"above the settings' ceiling": {
			[]string{"--config", strict, greedy},
			1,
			"text.demo/manifest.json#/limits/memory_mb: 700 is above the ceiling of 600; the request or the skill's manifest must ask for at most that, " +
				"or have the operator raise sandbox.policy_ceiling.memory_mb\n" +
				"text.demo/manifest.json#/limits/pids: 9000 is above the ceiling of 4096; the request or the skill's manifest must ask for at most that, " +
				"or have the operator raise sandbox.policy_ceiling.pids\n" + warning + "1 skill: 1 broken, 1 warning.\n", "",
		},
		"a foreign image": {
			[]string{foreign},
			1,
			"text.demo/manifest.json#/runtime/image: foreign:1 is not on the list of allowed images; the request or the skill's manifest must ask for one of " +
				"secbox-sandbox:latest, or have the operator add it (`core-api image build`, or sandbox.images)\n" + warning + "1 skill: 1 broken, 1 warning.\n", "",
		},
		"half a manifest": {[]string{cut}, 1, "text.demo/manifest.json: is no JSON: it ends too early\n1 skill: 1 broken, 0 warnings.\n", ""},
		"no skill":        {[]string{t.TempDir()}, 2, "", "holds neither manifest.json nor SKILL.md"},
		"no folder":       {[]string{filepath.Join(good, "none")}, 2, "", "does not exist"},
		"no argument":     {nil, 2, "", "accepts 1 arg(s), received 0"},
		"two arguments":   {[]string{good, mixed}, 2, "", "accepts 1 arg(s), received 2"},
		"an unknown flag": {[]string{good, "--fix"}, 2, "", "unknown flag: --fix"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), append([]string{"skills", "lint"}, c.args...), noHome, &stdout, &stderr)
			if code != c.code || stdout.String() != c.out || !strings.Contains(stderr.String(), c.err) || c.err == "" && stderr.Len() > 0 {
				t.Errorf("exit code %d, not %d\n%s%s", code, c.code, &stdout, &stderr)
			}
		})
	}

	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"skills", "lint", "--json", mixed}, noHome, &stdout, &stderr); code != 1 {
		t.Errorf("exit code %d: %s", code, &stderr)
	}
	var report skills.LintReport
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		t.Fatalf("%v: %s", err, &stdout)
	}
	if len(report.Folders) != 2 || report.Broken() != 1 || report.Folders[0].Problems[0].Pointer != "/id" || report.Folders[1].ID != "text.demo" {
		t.Errorf("%s", &stdout)
	}
}

func TestBuiltInSkillsPassLint(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"skills", "lint", "../../skills/builtin"}, noHome, &stdout, &stderr)
	if code != 0 || !strings.Contains(stdout.String(), "0 broken, 0 warnings.") {
		t.Errorf("exit code %d\n%s%s", code, &stdout, &stderr)
	}
}
