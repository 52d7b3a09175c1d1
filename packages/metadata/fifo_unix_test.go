//go:build unix

package metadata_test

import (
	"os"
	"syscall"
	"testing"

	"secbox/packages/metadata"
)

// TestFIFOIsNotOpened: opening one would block.
func TestFIFOIsNotOpened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mkfifo(dir+"/SKILL.md", 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if name := metadata.Describe(root.FS(), "folder").Name; name != "folder" {
		t.Errorf("read %q", name)
	}
}
