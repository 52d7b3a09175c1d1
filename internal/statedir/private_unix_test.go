//go:build unix

package statedir_test

import (
	"os"
	"testing"

	"secbox/internal/statedir"
)

func TestIsPrivate(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := statedir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Fatalf("mode is %v; others could read its files", info.Mode())
	}
}
