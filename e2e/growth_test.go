//go:build unix

package e2e

import (
	"strings"
	"testing"

	"secbox/settings"
)

// TestGrowthThatHides checks that the watchdog kills jobs that hide what they write, and leaves
// jobs alone that do not grow.
func TestGrowthThatHides(t *testing.T) {
	t.Parallel()
	coldAndWarm(t, growthThatHides)
}

func growthThatHides(t *testing.T, how serving) {
	s := tidy(t, how.settings, func(c *settings.Settings) {
		c.Sandbox.DiskGrowthMaxBytes, c.Sandbox.DiskGrowthMaxEntries = 16<<20, 1000
	}).serving(how)
	for _, c := range []struct{ name, script, says string }{
		{
			"beside a file without a name",
			"exec 3> big; rm big; head -c 10M /dev/zero >&3; for i in $(seq 20); do head -c 1M /dev/zero > part$i; done; sleep 1000", "disk_growth_max_bytes",
		},
		{"many files far below", "mkdir -p a/b/c; cd a/b/c; seq 2000 | xargs touch; sleep 1000", "disk_growth_max_entries"},
		{"many links", python("for i in range(2000): os.symlink('x', str(i))\nos.execlp('sleep', 'sleep', '1000')"), "disk_growth_max_entries"},
		{"very deep", "mkdir -p $(printf 'd/%.0s' $(seq 300)); sleep 1000", "nested deeper"},
		{"by a child that was left", "(setsid bash -c 'head -c 64M /dev/zero > big' &); trap '' TERM; sleep 1000", "disk_growth_max_bytes"},
	} {
		if how == warm && c.name != "by a child that was left" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := s.with(t)
			result := s.exec(shell(projectFor(c.name), "echo begun; "+c.script, "policy_overrides", object{"timeout_ms": 600000}))
			if result.str("status") != "failed" || result.str("error_reason") != "disk_limit" || result.at("exit_code") != 137.0 ||
				!strings.Contains(result.str("detail"), c.says) || result.str("stdout") != "begun\n" {
				t.Errorf("%.2000v", result)
			}
			s.checkPublished(result)
			if c.name != "beside a file without a name" {
				return
			}
			// The limit is on growth, not on size.
			if again := s.exec(shell(projectFor(c.name), "sleep 0.6; echo alive")); again.str("status") != "succeeded" {
				t.Errorf("the next exec of the project: %v", again)
			}
		})
	}
	if how == warm {
		return
	}
	t.Run("no growth", func(t *testing.T) {
		t.Parallel()
		s := s.with(t)
		for name, script := range map[string]string{
			"sparse":    "truncate -s 10G big; sleep 0.6",
			"rewritten": "for i in $(seq 8); do head -c 8M /dev/zero > same; sleep 0.1; done",
			"exchanged": python(`
import time
os.chdir("/workspace/work"); end = time.monotonic() + 1
while time.monotonic() < end:
    os.makedirs("d/e"); os.removedirs("d/e"); os.symlink("/etc", "d"); os.unlink("d"); os.mkfifo("d"); os.unlink("d")
os.chmod(".", 0); time.sleep(0.5)`),
			"in tmp": "head -c 64M /dev/zero > /tmp/big; sleep 0.6",
		} {
			if result := s.exec(shell(projectFor(name), script)); result.str("status") != "succeeded" {
				t.Errorf("%s: %v", name, result)
			}
		}
	})
}
