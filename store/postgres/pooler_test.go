package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"secbox/audit"
	"secbox/fault"
	"secbox/store/postgres"
	"secbox/store/storetest/pgtest"
)

// names are the settings that must hold for every statement.
const names = "'statement_timeout', 'idle_in_transaction_session_timeout', 'enable_bitmapscan', 'enable_material', 'jit', 'TimeZone', 'synchronous_commit'"

// settingsOf is a query for the settings.
const settingsOf = "SELECT string_agg(current_setting(n), ' ') FROM unnest(ARRAY[" + names + "]) n"

// careless sets a database up as its administrator might, and returns its name.
func careless(t *testing.T, url string) string {
	t.Helper()
	name := url[strings.LastIndex(url, "/test_")+1 : strings.Index(url, "?")]
	cluster.SQL(t, "postgres", "ALTER DATABASE "+name+" SET TimeZone = 'Asia/Shanghai'; ALTER DATABASE "+name+" SET synchronous_commit = off")
	return name
}

// TestManyExecsThroughPooler: nodes that start at once migrate, and the rows of 100 execs at once
// are written and closed.
func TestManyExecsThroughPooler(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"session", "transaction"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			address := cluster.Database(t)
			name, through := careless(t, address), cluster.Pooler(t, mode)
			nodes := make([]*postgres.DB, 3)
			var all sync.WaitGroup
			for i := range nodes {
				all.Go(func() {
					var err error
					if nodes[i], err = postgres.Open(t.Context(), through(address)); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if t.Failed() {
				t.FailNow()
			}
			for i := range 100 {
				all.Go(func() {
					db, r := nodes[i%len(nodes)], record(fmt.Sprint("e", i))
					if _, err := db.Audit().Open(t.Context(), r); err != nil {
						t.Error(err)
					}
					if status, err := db.Audit().Close(t.Context(), ended(r)); err != nil || status != audit.Succeeded {
						t.Error(status, err)
					}
					if err := db.Audit().Ping(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			for _, db := range nodes {
				if !db.Pooled() {
					t.Error("a node has not noticed the pooler")
				}
				db.Close()
			}
			for query, want := range map[string]string{
				"SELECT count(*) FROM sandbox_execs WHERE status = 'succeeded'":                                                                             "100",
				"SELECT count(*) FROM sandbox_exec_events WHERE data::jsonb ->> 'created_at' LIKE '%+00:00'":                                                "300",
				"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())": "0",
			} {
				if got := cluster.SQL(t, name, query); got != want {
					t.Errorf("%s: %s, want %s", query, got, want)
				}
			}
		})
	}
}

// TestSettingsHold: the settings hold for statements of each kind, directly and through poolers,
// and do not reach other clients of a pooler.
func TestSettingsHold(t *testing.T) {
	t.Parallel()
	for mode, through := range map[string]func(string) string{
		"direct": func(url string) string { return url }, "session": cluster.Pooler(t, "session"), "transaction": cluster.Pooler(t, "transaction"),
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			address := cluster.Migrated(t)
			name := careless(t, address)
			db := open(t, through(address))
			if db.Pooled() != (mode != "direct") {
				t.Errorf("behind a pooler: %v", db.Pooled())
			}
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					answers, err := db.Everywhere(t.Context(), settingsOf)
					if err != nil {
						t.Error(err)
					}
					for how, got := range answers {
						if want := "4500ms 10s off off off UTC on"; got != want {
							t.Errorf("%s: %s, want %s", how, got, want)
						}
					}
				})
			}
			all.Wait()
			// Another client gets the sessions that we have used.
			other, err := pgx.Connect(t.Context(), through(address))
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close(context.WithoutCancel(t.Context()))
			own := cluster.SQL(t, name, settingsOf)
			for range 20 {
				var got string
				if err := other.QueryRow(t.Context(), settingsOf, pgx.QueryExecModeSimpleProtocol).Scan(&got); err != nil || got != own {
					t.Errorf("another client has %s, %v; want %s", got, err, own)
				}
			}
		})
	}
}

// TestAnyEncoding: a server that was made with the locale C, as Debian's image makes it, has
// databases without an encoding.
func TestAnyEncoding(t *testing.T) {
	t.Parallel()
	address := cluster.Database(t)
	name := address[strings.LastIndex(address, "/test_")+1 : strings.Index(address, "?")]
	cluster.SQL(t, "postgres", "DROP DATABASE "+name)
	cluster.SQL(t, "postgres", "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'")
	for _, url := range []string{address, cluster.Pooler(t, "transaction")(address)} {
		db, err := postgres.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		r := record(fmt.Sprint("ümlaut-", len(url)))
		if _, err := db.Audit().Open(t.Context(), r); err != nil {
			t.Error(err)
		}
		if got, err := db.Audit().Get(t.Context(), r.ExecID); err != nil || got.ExecID != r.ExecID {
			t.Errorf("%q, %v", got.ExecID, err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestModesOfURL: a mode that the URL chooses is kept, and works where the pooler allows it.
func TestModesOfURL(t *testing.T) {
	t.Parallel()
	sessions, transactions := cluster.Pooler(t, "session"), cluster.Pooler(t, "transaction")
	for mode, through := range map[string]func(string) string{
		"exec": transactions, "simple_protocol": transactions, "cache_describe": transactions, "describe_exec": sessions, "cache_statement": sessions,
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			db := open(t, through(cluster.Migrated(t))+"&default_query_exec_mode="+mode)
			for name, call := range calls(t, db) {
				if name == "Open" || name == "Start" || name == "Close" {
					continue // in this order below
				}
				if err := call(); err != nil && !fault.Is(err, fault.UnknownExec) {
					t.Errorf("%s: %v", name, err)
				}
			}
			r := record("x")
			if _, err := db.Audit().Open(t.Context(), r); err != nil {
				t.Error(err)
			}
			if _, err := db.Audit().Close(t.Context(), ended(r)); err != nil {
				t.Error(err)
			}
			prepared, err := db.Everywhere(t.Context(), "SELECT (count(*) > 0)::text FROM pg_prepared_statements")
			if want := fmt.Sprint(mode == "cache_statement"); err != nil || prepared["run"] != want {
				t.Errorf("prepared: %v, %v; want %s", prepared, err, want)
			}
		})
	}
}

// TestFailedCommitThroughPooler: an error of the commit itself is not taken for success.
func TestFailedCommitThroughPooler(t *testing.T) {
	t.Parallel()
	address := cluster.Migrated(t)
	db := open(t, cluster.Pooler(t, "transaction")(address))
	name := address[strings.LastIndex(address, "/test_")+1 : strings.Index(address, "?")]
	cluster.SQL(t, name, "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no'; END$$;"+
		" CREATE CONSTRAINT TRIGGER no AFTER INSERT ON sandbox_execs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION no()")
	if _, err := db.Audit().Open(t.Context(), record("e")); err == nil {
		t.Error("the commit failed, and Open did not")
	}
	if _, err := db.Audit().Get(t.Context(), "e"); !fault.Is(err, fault.UnknownExec) {
		t.Error(err)
	}
}

// TestStatementPooler: a pooler without transactions is refused at once, with what to change.
func TestStatementPooler(t *testing.T) {
	t.Parallel()
	db, err := postgres.Open(t.Context(), cluster.Pooler(t, "statement")(cluster.Database(t)))
	if err == nil {
		db.Close()
	}
	if !fault.Is(err, fault.InvalidSettings) || !strings.Contains(fault.From(err).Message, "pool_mode") {
		t.Error(err)
	}
}

// TestPoolerRefuses: the error of a parameter that PgBouncer does not know names the pooler.
func TestPoolerRefuses(t *testing.T) {
	t.Parallel()
	db, err := postgres.Open(t.Context(), cluster.Pooler(t, "transaction")(cluster.Database(t))+"&search_path=x")
	if err == nil {
		db.Close()
	}
	if !fault.Is(err, fault.DatabaseUnavailable) || !strings.Contains(fault.From(err).Message, "pooler") {
		t.Error(err)
	}
}

// TestPoolerAppears: a pooler that takes the server's address while the program runs is not used as
// if it were the server.
func TestPoolerAppears(t *testing.T) {
	t.Parallel()
	own := pgtest.New(t)
	address := own.Database(t)
	u, err := url.Parse(own.Pooler(t, "transaction")(address))
	if err != nil {
		t.Fatal(err)
	}
	pooler := u.Query().Get("host")
	dir, err := os.MkdirTemp("", "at-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	at := filepath.Join(dir, "at")
	point := func(to string) {
		t.Helper()
		if err := errors.Join(os.Symlink(to, at+".new"), os.Rename(at+".new", at)); err != nil {
			t.Fatal(err)
		}
	}
	address = with(t, address, func(_ *url.URL, query url.Values) {
		point(query.Get("host"))
		query.Set("host", at)
	})
	db := open(t, address)
	if _, err := db.Audit().Open(t.Context(), record("r")); err != nil {
		t.Fatal(err)
	}
	point(pooler)
	own.Stop(t) // ends the connections
	own.Start(t)
	if err := db.Audit().Ping(t.Context()); !fault.Is(err, fault.DatabaseUnavailable) || !strings.Contains(fault.From(err).Message, "restart") {
		t.Errorf("with a pooler at the address: %v", err)
	}
	db.Close()
	if _, err := open(t, address).Audit().Close(t.Context(), ended(record("r"))); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}
