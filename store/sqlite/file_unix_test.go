//go:build unix

package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"

	"secbox/fault"
	"secbox/store/sqlite"
)

func TestOpenRefusesADevice(t *testing.T) {
	t.Parallel()
	if _, err := sqlite.Open(t.Context(), "/dev/full"); !fault.Is(err, fault.DatabaseUnavailable) {
		t.Error(err)
	}
}

func TestFileIsPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, filepath.Join(dir, "secbox.db"))
	if _, err := db.Audit().Open(t.Context(), record("r")); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < 3 {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", e.Name(), info.Mode(), err)
		}
	}
}
