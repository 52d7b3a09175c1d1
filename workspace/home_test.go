//go:build unix

package workspace_test

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHomeLinkIsRefused(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]string{"the home": ".home/home", "its parent": ".home"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open(t, t.TempDir())
			p, err := w.Project("agent~user")
			if err != nil {
				t.Fatal(err)
			}
			outside := t.TempDir()
			link := filepath.Join(w.Root(), "projects", "agent~user", filepath.FromSlash(at))
			if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(outside, link); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Home(); err == nil {
				t.Error("a link is taken for a home")
			}
			if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
				t.Errorf("%v %v", left, err)
			}
		})
	}
}
