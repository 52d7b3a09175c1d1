package postgres_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"secbox/store/postgres"
	"secbox/store/storetest"
	"secbox/store/storetest/pgtest"
)

// cluster serves every test of this package that does not stop it.
var cluster *pgtest.Cluster

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m, &cluster)) }

func open(t *testing.T, url string) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func TestStore(t *testing.T) {
	t.Parallel()
	runSuite(t, func(url string) string { return url })
	if os.Getenv("SECBOX_SOAK") == "1" {
		t.Run("through a pooler", func(t *testing.T) { runSuite(t, cluster.Pooler(t, "transaction")) })
	}
}

// runSuite runs the suite with databases that are reached at the address that through makes of
// theirs.
func runSuite(t *testing.T, through func(url string) string) {
	storetest.Run(t, func(t *testing.T) storetest.Fixture {
		url := cluster.Migrated(t)
		name := strings.TrimPrefix(url[strings.LastIndex(url, "/test_"):strings.Index(url, "?")], "/")
		return storetest.Fixture{
			Database: open(t, through(url)),
			SQL: func(statement string) (string, error) {
				out, err := cluster.TrySQL(name, statement)
				if err != nil {
					err = errors.New(out)
				}
				return out, err
			},
			Reopen: func(t *testing.T) storetest.Database { return open(t, through(url)) },
		}
	})
}
