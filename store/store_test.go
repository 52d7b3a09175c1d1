package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/audit"
	"secbox/fault"
	"secbox/store"
	"secbox/store/storetest/pgtest"
)

var cluster *pgtest.Cluster

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m, &cluster)) }

func TestOpenPicksTheDatabase(t *testing.T) {
	t.Parallel()
	url := cluster.Database(t)
	for kind, urls := range map[string][]string{"sqlite": {""}, "postgres": {url, "postgresql" + strings.TrimPrefix(url, "postgres")}} {
		for _, url := range urls {
			dir := t.TempDir()
			db, err := store.Open(t.Context(), url, dir)
			if err != nil {
				t.Fatal(err)
			}
			if db.Kind() != kind {
				t.Errorf("%.12s: %s, want %s", url, db.Kind(), kind)
			}
			if _, _, err := db.Audit().List(t.Context(), audit.Filter{}, nil, 1); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(dir, store.File)); (err == nil) != (kind == "sqlite") {
				t.Errorf("%s: the embedded file: %v", kind, err)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestOpenRefusesOtherURLs(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for _, url := range []string{
		"mysql://u:" + secret + "@h/db", "host=h password=" + secret, "Postgres://u:" + secret + "@h/db", " postgres://u:" + secret + "@h/db",
		"sqlite:///tmp/x.db", "/tmp/x.db", "postgres:u:" + secret, "%zz" + secret, "postgres://u:" + secret + "@h:x/db", "\x00",
	} {
		db, err := store.Open(t.Context(), url, t.TempDir())
		if !fault.Is(err, fault.InvalidSettings) || db != nil {
			t.Errorf("%q: %v, %v", url, db, err)
			continue
		}
		if fields := fault.From(err).Fields; len(fields) != 1 || fields[0].Field != "database_url" {
			t.Errorf("%q: fields %v", url, fields)
		}
		if strings.Contains(err.Error(), secret) || !strings.Contains(fault.From(err).Message, "database_url") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func TestOpenMissingStateDir(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), "", filepath.Join(t.TempDir(), "absent"))
	if !fault.Is(err, fault.DatabaseUnavailable) || db != nil {
		t.Errorf("%v, %v", db, err)
	}
}
