//go:build unix

package versions_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"secbox/packages/versions"
)

// putVersion makes a version with one file at its place.
func putVersion(t *testing.T, root, digest string) {
	t.Helper()
	dir := filepath.Join(root, "agents", "a", "skills", "s", digest)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "SKILL.md"), []byte("# s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDecisionHoldsForOneRetirement checks that a version that was retired, restored, and retired
// again by another node is only removed by a decision about its second retirement.
func TestDecisionHoldsForOneRetirement(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	root := f.root
	agent, err := f.Agent("a")
	if err != nil {
		t.Fatal(err)
	}
	digest := strings.Repeat("ab", 32)
	putVersion(t, root, digest)
	away := func(at time.Time) versions.Stored {
		t.Helper()
		all, _, err := agent.Versions("s")
		if err != nil || len(all) != 1 {
			t.Fatalf("in their place are %+v, %v", all, err)
		}
		if err := agent.Retire(all[0], at); err != nil {
			t.Fatal(err)
		}
		unused, err := agent.RetiredVersions("s")
		if err != nil || len(unused) != 1 || !unused[0].Retired.Equal(at) || unused[0].Digest != digest {
			t.Fatalf("out of reach are %+v, %v", unused, err)
		}
		return unused[0]
	}
	first := away(time.Unix(1, 5))
	open, err := agent.OpenRetired(first)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if there, err := agent.Restore("s", digest); !there || err != nil {
		t.Fatalf("restored: %v, %v", there, err)
	}
	away(time.Unix(2, 5))
	if dropped, err := agent.Drop(t.Context(), first); dropped || err != nil {
		t.Fatalf("the first decision: %v, %v", dropped, err)
	}
	if there, err := agent.Restore("s", digest); !there || err != nil {
		t.Fatalf("restored again: %v, %v", there, err)
	}
	if _, _, err := open.Open("SKILL.md"); err != nil {
		t.Errorf("who had it open: %v", err)
	}
	last := away(time.Unix(3, 5))
	if dropped, err := agent.Drop(t.Context(), last); !dropped || err != nil {
		t.Fatalf("the last decision: %v, %v", dropped, err)
	}
	if there, err := agent.Restore("s", digest); there || err != nil {
		t.Errorf("it is gone: %v, %v", there, err)
	}
	if err := agent.Tidy([]string{"s"}); err != nil {
		t.Fatal(err)
	}
	if names, err := agent.SkillNames(); err != nil || len(names) != 0 {
		t.Errorf("left are %v, %v", names, err)
	}
	// A version whose skill's directory was removed meanwhile is stored all the same: directories
	// are made again.
	putVersion(t, root, digest)
	again := away(time.Unix(4, 5))
	if err := os.RemoveAll(filepath.Join(root, "agents", "a", "skills")); err != nil {
		t.Fatal(err)
	}
	if there, err := agent.Restore("s", again.Digest); !there || err != nil {
		t.Errorf("into nothing: %v, %v", there, err)
	}
}
