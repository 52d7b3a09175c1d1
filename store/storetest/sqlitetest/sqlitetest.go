// Package sqlitetest provides tests with migrated SQLite databases: it migrates one and copies it,
// which takes a fraction of the time.
package sqlitetest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"secbox/store/sqlite"
)

// Migrated makes the file a migrated database unless it exists, and returns its path.
func Migrated(t testing.TB, path string) string {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return path
	}
	content, err := original()
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		t.Fatal("sqlitetest: ", err)
	}
	return path
}

var original = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "secbox-sqlite-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "original.db")
	db, err := sqlite.Open(context.Background(), path)
	if err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil { // moves the write-ahead log into the file
		return nil, err
	}
	return os.ReadFile(path)
})
