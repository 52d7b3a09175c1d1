package sqlite_test

import (
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"secbox/store/sqlite"
	"secbox/store/storetest"
	"secbox/store/storetest/sqlitetest"
)

func open(t *testing.T, path string) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// shell is a connection past our package, with the driver's defaults, as an administrator's shell
// would have.
func shell(t *testing.T, path string) *sql.DB {
	t.Helper()
	dsn := url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(filepath.ToSlash(path), "/"), RawQuery: "_busy_timeout=5000"}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Fixture {
		folder := "a folder with ? # % and ü"
		if runtime.GOOS == "windows" {
			folder = "a folder with # % and ü"
		}
		path := filepath.Join(t.TempDir(), folder, "secbox.db")
		mkdir(t, filepath.Dir(path))
		return storetest.Fixture{
			Database: open(t, sqlitetest.Migrated(t, path)),
			SQL: func(statement string) (string, error) {
				var value string
				err := shell(t, path).QueryRowContext(t.Context(), statement).Scan(&value)
				if errors.Is(err, sql.ErrNoRows) {
					err = nil
				}
				return value, err
			},
			Reopen: func(t *testing.T) storetest.Database { return open(t, path) },
		}
	})
}
