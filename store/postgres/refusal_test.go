package postgres_test

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/store/postgres"
	"secbox/store/storetest/pgtest"
)

// bound is far above the longest refusal.
const bound = 30 * time.Second

// silent is an address whose server takes connections and never says a word.
func silent(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open = append(open, conn)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
		for _, conn := range open {
			conn.Close()
		}
	})
	return l.Addr().String()
}

// with is a database's URL with something else in it.
func with(t *testing.T, database string, change func(u *url.URL, query url.Values)) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	change(u, query)
	u.RawQuery = query.Encode()
	return u.String()
}

func TestOpenRefusesInBoundedTime(t *testing.T) {
	t.Parallel()
	const secret = "hunter2hunter2"
	good := cluster.Database(t)
	for name, c := range map[string]struct {
		url  string
		code fault.Code
		says string
	}{
		"no listener":    {"postgres://u:" + secret + "@127.0.0.1:1/db", fault.DatabaseUnavailable, "cannot be reached"},
		"no such host":   {"postgres://u:" + secret + "@no-such-host.invalid/db", fault.DatabaseUnavailable, "cannot be reached"},
		"no such socket": {"postgres://u:" + secret + "@/db?host=/nonexistent", fault.DatabaseUnavailable, "cannot be reached"},
		"a silent server": {
			"postgres://u:" + secret + "@" + silent(t) + "/db?sslmode=disable", fault.DatabaseUnavailable, "",
		},
		"a silent server, patient client": {
			"postgres://u:" + secret + "@" + silent(t) + "/db?connect_timeout=3600", fault.DatabaseUnavailable, "",
		},
		"a wrong password": {
			with(t, good, func(u *url.URL, _ url.Values) { u.User = url.UserPassword("postgres", secret) }), fault.DatabaseUnavailable, "refused the login",
		},
		"an unknown user": {
			with(t, good, func(u *url.URL, _ url.Values) { u.User = url.UserPassword("none-"+secret[:3], secret) }), fault.DatabaseUnavailable,
			"refused the login",
		},
		"no such database": {
			with(t, good, func(u *url.URL, _ url.Values) { u.Path = "/absent" }), fault.DatabaseUnavailable, "does not exist",
		},
		"a bad port":      {"postgres://u:" + secret + "@h:port/db", fault.InvalidSettings, "postgres://"},
		"a bad escape":    {"postgres://u:" + secret + "%zz@h/db", fault.InvalidSettings, "postgres://"},
		"a bad sslmode":   {"postgres://u:" + secret + "@h/db?sslmode=" + "sometimes", fault.InvalidSettings, "postgres://"},
		"a space":         {"postgres://u:" + secret + " x@h/db", fault.InvalidSettings, "postgres://"},
		"a bad pool size": {"postgres://u:" + secret + "@h/db?pool_max_conns=many", fault.InvalidSettings, "postgres://"},
		"a missing root": {
			"postgres://u:" + secret + "@h/db?sslmode=verify-full&sslrootcert=/nonexistent/ca.pem", fault.InvalidSettings,
			"/nonexistent/ca.pem",
		},
		"the password as user": {"postgres://" + secret + "%zz:" + secret + "@h/db", fault.InvalidSettings, "postgres://"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			db, err := postgres.Open(t.Context(), c.url)
			if err == nil {
				db.Close()
				t.Fatal("it was opened")
			}
			if !fault.Is(err, c.code) || !strings.Contains(fault.From(err).Message, c.says) {
				t.Errorf("%v, want %s saying %q", err, c.code, c.says)
			}
			if took := time.Since(begun); took > bound {
				t.Errorf("it took %v", took)
			}
			for _, text := range []string{err.Error(), fault.From(err).Message, fmt.Sprintf("%v %+v", err, err)} {
				if strings.Contains(text, secret) || strings.Contains(text, cluster.Password()) {
					t.Errorf("the password is in the error: %s", text)
				}
			}
		})
	}
}

func record(id string) audit.Record {
	now := time.Now()
	return audit.Record{ExecID: id, ProjectID: "p", Status: audit.Running, CreatedAt: now, StartedAt: now, NodeID: "n1", RequestedBy: "t"}
}

func ended(r audit.Record) audit.Record {
	r.Status, r.EndedAt = audit.Succeeded, r.CreatedAt.Add(time.Second)
	return r
}

// calls is every method, by name.
func calls(t *testing.T, db *postgres.DB) map[string]func() error {
	ctx, s := t.Context(), db.Audit()
	return map[string]func() error{
		"Open":           func() error { _, err := s.Open(ctx, record("new")); return err },
		"Start":          func() error { _, err := s.Start(ctx, record("new")); return err },
		"Close":          func() error { _, err := s.Close(ctx, ended(record("r"))); return err },
		"Get":            func() error { _, err := s.Get(ctx, "r"); return err },
		"List":           func() error { _, _, err := s.List(ctx, audit.Filter{}, nil, 10); return err },
		"Events":         func() error { _, err := s.Events(ctx, "r"); return err },
		"LoseOpen":       func() error { _, err := s.LoseOpen(ctx, "n1", nil); return err },
		"Renew":          func() error { _, _, err := db.Nodes().Renew(ctx, "n", 1, time.Minute); return err },
		"InstallationID": func() error { _, err := s.InstallationID(ctx); return err },
		"Ping":           func() error { return s.Ping(ctx) },
		"Tokens":         func() error { _, err := db.Tokens().Any(ctx); return err },
	}
}

func TestServerRestart(t *testing.T) {
	t.Parallel()
	own := pgtest.New(t)
	db := open(t, own.Database(t))
	if _, err := db.Audit().Open(t.Context(), record("r")); err != nil {
		t.Fatal(err)
	}
	own.Stop(t)
	for name, call := range calls(t, db) {
		begun := time.Now()
		if err := call(); !fault.Is(err, fault.DatabaseUnavailable) {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), own.Password()) {
			t.Errorf("%s: the password is in the error: %v", name, err)
		}
		if took := time.Since(begun); took > bound {
			t.Errorf("%s took %v", name, took)
		}
	}
	own.Start(t)
	if got, err := db.Audit().Get(t.Context(), "r"); err != nil || got.Status != audit.Running {
		t.Errorf("after a crash of the server: %+v, %v", got, err)
	}
	if _, err := db.Audit().Close(t.Context(), ended(record("r"))); err != nil {
		t.Error(err)
	}
}

func TestLockedTable(t *testing.T) {
	t.Parallel()
	url := cluster.Database(t)
	db := open(t, url)
	if _, err := db.Audit().Open(t.Context(), record("r")); err != nil {
		t.Fatal(err)
	}
	release := holdLock(t, url)
	var all sync.WaitGroup
	for name, call := range calls(t, db) {
		if name == "Renew" || name == "InstallationID" || name == "Ping" || name == "Tokens" || name == "Events" {
			continue // other tables
		}
		all.Go(func() {
			begun := time.Now()
			if err := call(); !fault.Is(err, fault.DatabaseUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(begun); took > bound {
				t.Errorf("%s took %v", name, took)
			}
		})
	}
	all.Wait()
	release()
	if _, err := db.Audit().Close(t.Context(), ended(record("r"))); err != nil {
		t.Error(err)
	}
}

func TestReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	url := cluster.Database(t)
	db := open(t, url)
	db.Close()
	name := url[strings.LastIndex(url, "/test_")+1 : strings.Index(url, "?")]
	cluster.SQL(t, "postgres", "ALTER DATABASE "+name+" SET default_transaction_read_only = on")
	db = open(t, url) // migrated already, so there is nothing to write
	for _, write := range []string{"Open", "Close", "Renew", "Ping"} {
		err := calls(t, db)[write]()
		if !fault.Is(err, fault.DatabaseUnavailable) || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("%s: %v", write, err)
		}
	}
	if _, _, err := db.Audit().List(t.Context(), audit.Filter{}, nil, 1); err != nil {
		t.Errorf("reading: %v", err)
	}
}

func TestCommitsAreDurable(t *testing.T) {
	t.Parallel()
	for server, want := range map[string]string{"off": "on", "on": "on", "remote_apply": "remote_apply", "local": "local"} {
		url := cluster.Database(t)
		name := url[strings.LastIndex(url, "/test_")+1 : strings.Index(url, "?")]
		cluster.SQL(t, "postgres", "ALTER DATABASE "+name+" SET synchronous_commit = "+server)
		db := open(t, url)
		if got, err := db.Setting(t.Context(), "synchronous_commit"); err != nil || got != want {
			t.Errorf("a server set to %s: ours is %q, %v; want %q", server, got, err, want)
		}
		if got, err := db.Setting(t.Context(), "statement_timeout"); err != nil || got != "4500ms" {
			t.Errorf("statement_timeout is %q, %v", got, err)
		}
		if got, err := db.Setting(t.Context(), "jit"); err != nil || got != "off" {
			t.Errorf("jit is %q, %v", got, err)
		}
	}
}
