package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/packages/repair"
	"secbox/skills"
	"secbox/store"
)

// TestRepairAfterLostRows checks that repair refuses to run beside a server, lists its changes, and
// makes all skills readable again.
func TestRepairAfterLostRows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startIn(t, dir, noPool)
	for _, id := range []string{"one", "two"} {
		s.upload("1001/agent001", "baseline", "x.zip", archiveOf(t, id, "SKILL.md", "# "+id+"\n", "a.txt", "first")).done(t)
	}
	command := func(args ...string) (code int, stdout, stderr string) {
		all := append([]string{"skills", "repair", "--state-dir", filepath.Join(dir, "state"), "--workspace-root", filepath.Join(dir, "workspace")}, args...)
		return cli(t, os.Environ(), all...)
	}
	if code, _, stderr := command(); code == 0 || !strings.Contains(stderr, "a server is running") {
		t.Errorf("beside a server: %d, %s", code, stderr)
	}
	if code, stdout, stderr := command("--dry-run"); code != 0 || !strings.Contains(stdout, "0 repairs to do") {
		t.Errorf("a look beside a server: %d, %s%s", code, stdout, stderr)
	}
	if err := s.app.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), "", filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := db.Skills().Rows(t.Context(), "agent001", skills.PointerKey{}, 10)
	for _, row := range rows {
		if err == nil {
			err = db.Skills().Remove(t.Context(), row.PointerKey, row.PointerState)
		}
	}
	if err != nil || len(rows) != 2 {
		t.Fatalf("%+v, %v", rows, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if code, stdout, _ := command("--dry-run"); code != 1 || !strings.Contains(stdout, "2 repairs to do") || !strings.Contains(stdout, "Nothing was changed") {
		t.Errorf("before: %d, %s", code, stdout)
	}
	code, stdout, stderr := command()
	if code != 0 || strings.Count(stdout, "adopted") != 2 || !strings.Contains(stdout, "agent agent001, skill one: adopted: ") {
		t.Errorf("%d, %s%s", code, stdout, stderr)
	}
	var report repair.Report
	code, stdout, _ = command("--json")
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != 0 || report.Versions != 2 || report.Changes() != 0 {
		t.Errorf("again: %d, %s, %v", code, stdout, err)
	}
	s = startIn(t, dir, noPool)
	for _, user := range []string{"1001", "1002"} {
		for _, id := range []string{"one", "two"} {
			path := "/v1/skills/" + user + "/agent001/" + id
			if files := s.files(path); len(files) != 2 || s.content(path, "a.txt") != "first" {
				t.Errorf("%s has %v", path, files)
			}
		}
	}
}
