//go:build unix

// Package pgtest provides tests with temporary PostgreSQL clusters, see package pgcluster; errors
// fail the test.
package pgtest

import (
	"context"
	"fmt"
	"os"
	"testing"

	"secbox/store/postgres"
	"secbox/store/storetest/pgcluster"
)

// Cluster is one PostgreSQL server. Its methods are safe for concurrent use, except Stop and Start.
type Cluster struct{ core *pgcluster.Cluster }

// Main runs a package's tests with one cluster for all of them and returns the exit code for
// os.Exit. The cluster is stopped and removed afterwards. Without server binaries it prints the
// remedy and fails.
func Main(m *testing.M, cluster **Cluster) int {
	core, err := pgcluster.Start("")
	if err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		return 1
	}
	defer func() {
		if err := core.Remove(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest: remove:", err)
		}
	}()
	*cluster = &Cluster{core}
	return m.Run()
}

// New starts a cluster for one test, for those that stop it.
func New(t testing.TB) *Cluster {
	t.Helper()
	core, err := pgcluster.Start("")
	if err != nil {
		t.Fatal("pgtest: ", err)
	}
	t.Cleanup(func() {
		if err := core.Remove(); err != nil {
			t.Error("pgtest: remove: ", err)
		}
	})
	return &Cluster{core}
}

// Database creates an empty database and returns its URL, with the password. It lives as long as
// the cluster.
func (c *Cluster) Database(t testing.TB) string {
	t.Helper()
	url, err := c.core.Database()
	if err != nil {
		t.Fatal("pgtest: ", err)
	}
	return url
}

// Migrated creates a database with the present schema, by copying one, and returns its URL.
func (c *Cluster) Migrated(t testing.TB) string {
	t.Helper()
	url, err := c.core.Copy(func(url string) error {
		db, err := postgres.Open(context.Background(), url)
		if err != nil {
			return err
		}
		return db.Close()
	})
	if err != nil {
		t.Fatal("pgtest: ", err)
	}
	return url
}

// Pooler starts a PgBouncer with a pool_mode for one test. through changes the URL of a database,
// so that it leads through the pooler.
func (c *Cluster) Pooler(t testing.TB, mode string) (through func(url string) string) {
	t.Helper()
	pooler, err := c.core.Pooler(mode)
	if err != nil {
		t.Fatal("pgtest: ", err)
	}
	t.Cleanup(func() {
		if err := pooler.Stop(); err != nil {
			t.Error("pgtest: stop the pooler: ", err)
		}
	})
	return func(url string) string {
		url, err := pooler.Through(url)
		if err != nil {
			t.Fatal("pgtest: ", err)
		}
		return url
	}
}

// URL is how to reach a database of the cluster.
func (c *Cluster) URL(database string) string { return c.core.URL(database) }

// Password is the superuser's, for tests that search for leaks of it.
func (c *Cluster) Password() string { return c.core.Password() }

// SQL runs statements as the superuser and returns a line for each row, with | between the columns.
func (c *Cluster) SQL(t testing.TB, database, statements string) string {
	t.Helper()
	out, err := c.core.SQL(database, statements)
	if err != nil {
		t.Fatalf("%s: %s", database, out)
	}
	return out
}

// TrySQL is SQL for statements that may be refused: then the error is set and the output has the
// server's message.
func (c *Cluster) TrySQL(database, statements string) (string, error) {
	return c.core.SQL(database, statements)
}

// Stop ends the server at once, as a crash would, and waits for it. Connections break, data stays.
func (c *Cluster) Stop(t testing.TB) {
	t.Helper()
	if err := c.core.Stop(); err != nil {
		t.Fatal("pgtest: ", err)
	}
}

// Start starts a stopped server again and waits until it answers.
func (c *Cluster) Start(t testing.TB) {
	t.Helper()
	if err := c.core.Resume(); err != nil {
		t.Fatal("pgtest: ", err)
	}
}
