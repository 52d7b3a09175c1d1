package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDoctorOnSharing: the doctor says whether waiting containers serve any project, tests it where
// they do, and leaves nothing.
func TestDoctorOnSharing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		share  string
		shared bool
	}{"by default": {"true", canShare()}, "off": {"false", false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			code, stdout, stderr := cli(t, append(os.Environ(), "CORE_API_POOL_SHARE="+c.share),
				"doctor", "--json", "--state-dir", filepath.Join(dir, "state"), "--workspace-root", filepath.Join(dir, "workspace"))
			if stdout == "" {
				t.Fatalf("exit code %d\n%s", code, stderr)
			}
			said := answer{Body: []byte(stdout)}.json(t)
			tested := slices.ContainsFunc(said.list("probes"), func(p object) bool { return p.str("name") == "neighbours" && p.at("ok") == true })
			if said.at("health.pool_shared") != any(c.shared) || (said.str("health.pool_not_shared_because") == "") != c.shared || tested != c.shared {
				t.Errorf("want shared %v:\n%s", c.shared, stdout)
			}
			if left, err := os.ReadDir(filepath.Join(dir, "workspace/projects")); err != nil || len(left) > 0 {
				t.Errorf("left %v %v", left, err)
			}
			mounts, err := os.ReadFile("/proc/self/mountinfo")
			if node := said.str("health.node_id"); err == nil && strings.Contains(string(mounts), node) {
				t.Errorf("mounts of %s are left", node)
			}
		})
	}
}
