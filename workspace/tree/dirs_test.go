package tree

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func openTemp(t *testing.T) (string, *os.Root) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return dir, root
}

// TestDirectorySwappedWhileOpened gives OpenDir's second step what a command can put in the place
// of a directory after the first.
func TestDirectorySwappedWhileOpened(t *testing.T) {
	t.Parallel()
	dir, root := openTemp(t)
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, refused := range map[string]bool{"file": runtime.GOOS != "windows", "missing": false} {
		_, err := root.OpenRoot(name + "/.")
		if got := ifSwapped(name, err); IsRefused(got) != refused {
			t.Errorf("%s: %v becomes %v", name, err, got)
		}
	}
	if _, err := root.OpenRoot("missing/."); !errors.Is(ifSwapped("missing", err), os.ErrNotExist) {
		t.Errorf("a missing directory is no longer missing: %v", err)
	}
}

func TestDirectorySwappedForLinkWhileOpened(t *testing.T) {
	t.Parallel()
	dir, root := openTemp(t)
	for name, target := range map[string]string{"out": t.TempDir(), "up": "..", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		_, err := root.OpenRoot(name + "/.")
		if got := ifSwapped(name, err); !IsRefused(got) {
			t.Errorf("%s: %v becomes %v", name, err, got)
		}
	}
}
