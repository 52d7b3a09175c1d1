package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/engine/attach"
	"secbox/settings"
)

// TestReasonNotToShare: without a base there is a reason that tells the operator what to do.
func TestReasonNotToShare(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("run this test as root: only root may mount")
	}
	sharing := settings.Default()
	for name, c := range map[string]struct {
		prepare func(t *testing.T, parent string)
		share   bool
		want    string
	}{
		"by the settings": {share: false, want: "pool.share is false"},
		"open to others": {
			share: true, want: "0700",
			prepare: func(t *testing.T, parent string) { must(t, os.Chmod(parent, 0o755)) },
		},
		"in use": {
			share: true, want: "two core-apis have one node id",
			prepare: func(t *testing.T, parent string) {
				base, err := attach.Open(parent, "node")
				must(t, err)
				t.Cleanup(func() { must(t, base.Close()) })
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := filepath.Join(t.TempDir(), "mounts")
			must(t, os.Mkdir(parent, 0o700))
			if c.prepare != nil {
				c.prepare(t, parent)
			}
			d := &Deps{settings: sharing}
			d.settings.Pool.Share = c.share
			base, because := d.openBase(parent, "node")
			if base != nil {
				_ = base.Close()
			}
			if base != nil || !strings.Contains(because, c.want) {
				t.Errorf("base %v, because %q, want %q", base, because, c.want)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
