//go:build unix

package e2e

import (
	"context"
	"database/sql"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"secbox/settings"
	"secbox/store"
	"secbox/store/storetest/pgtest"
)

// breakable is a database that can be made to refuse and to answer again.
type breakable struct {
	configure      func(*settings.Settings)
	refuse, answer func()
	readable       bool // it only refuses to write
}

// breakables are the two ways in which a real database refuses: PostgreSQL is gone, as after a
// crash; SQLite's file is locked by another process.
var breakables = map[string]func(t *testing.T, dir string) breakable{
	"postgres": func(t *testing.T, _ string) breakable {
		cluster := pgtest.New(t)
		databaseURL := cluster.Database(t)
		return breakable{
			configure: func(s *settings.Settings) { s.DatabaseURL = settings.Secret(databaseURL) },
			refuse:    func() { cluster.Stop(t) }, answer: func() { cluster.Start(t) },
		}
	},
	"sqlite": func(t *testing.T, dir string) breakable {
		file := url.URL{Scheme: "file", Path: filepath.Join(dir, "state", store.File), RawQuery: "_txlock=exclusive"}
		other, err := sql.Open("sqlite", file.String()) // store brings the driver
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { other.Close() })
		var lock *sql.Tx
		return breakable{
			readable:  true,
			configure: func(*settings.Settings) {},
			refuse: func() {
				if lock, err = other.BeginTx(context.WithoutCancel(t.Context()), nil); err != nil {
					t.Fatal(err)
				}
			},
			answer: func() {
				if err := lock.Rollback(); err != nil {
					t.Fatal(err)
				}
			},
		}
	},
}

// TestDatabaseRefuses takes the database away at the opening and at the closing of an exec.
func TestDatabaseRefuses(t *testing.T) {
	t.Parallel()
	for name, make := range breakables {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			db := make(t, dir)
			s := startIn(t, dir, noPool, db.configure)
			databaseRefusesOpening(t, s, db)
			databaseRefusesClosing(t, s, db)
		})
	}
}

func databaseRefusesOpening(t *testing.T, s *testServer, db breakable) {
	s.works("demo")
	s.noContainers()
	before, created := describe(t, s.dir+"/workspace"), s.watchCreations()
	db.refuse()
	eventually(t, "not ready", func() bool { return s.send(http.MethodGet, "/readyz", nil).Code == http.StatusServiceUnavailable })
	s.refused(http.StatusServiceUnavailable, "database_unavailable", shell("demo", "touch ran",
		"inputs", []object{{"path": "new.txt", "content": "x", "encoding": "utf-8"}}))
	// A refusal by policy cannot be put on record either.
	s.refused(http.StatusServiceUnavailable, "database_unavailable", shell("demo", "true", "policy_overrides", object{"memory_mb": 1 << 30}))
	for _, change := range differences(before, describe(t, s.dir+"/workspace")) {
		t.Errorf("the workspace changed: %s", change)
	}
	db.answer()
	eventually(t, "ready", func() bool { return s.send(http.MethodGet, "/readyz", nil).Code == http.StatusOK })
	if made := created.upTo(s.works("demo").str("exec_id")); len(made) > 0 {
		t.Errorf("containers were made: %v", made)
	}
	for _, row := range s.records("") {
		row.wants(t, object{"status": "succeeded"})
	}
}

func databaseRefusesClosing(t *testing.T, s *testServer, db breakable) {
	running := s.post(shell("closing", waiting("echo done; echo x > /workspace/artifacts/x")))
	execID := s.awaitStart("closing")
	db.refuse()
	s.letGo("closing")
	result := running.result()
	result.wants(t, object{"status": "succeeded", "stdout": "done\n", "audit": "spooled"})
	if len(result.list("artifacts")) != 1 {
		t.Errorf("artifacts: %v", result.list("artifacts"))
	}
	if db.readable {
		s.get("/sandbox/execs/"+execID).wants(t, object{"status": "succeeded", "ended_at": result.at("ended_at")})
		if a := s.artifact(execID, "x"); string(a.Body) != "x\n" {
			t.Errorf("the artifact meanwhile: %d %s", a.Code, a.Body)
		}
	} else if a := s.send(http.MethodGet, "/sandbox/execs/"+execID, nil); a.Code != http.StatusServiceUnavailable {
		t.Errorf("the database is away, so access cannot be checked: got %d %s, want 503", a.Code, a.Body)
	}
	if spooled, err := os.ReadDir(filepath.Join(s.dir, "state/spool")); err != nil || len(spooled) != 1 {
		t.Errorf("the spool: %v %v", spooled, err)
	}
	db.answer()
	eventually(t, "the spool is empty", func() bool {
		files, err := os.ReadDir(filepath.Join(s.dir, "state/spool"))
		return err == nil && len(files) == 0
	})
	s.get("/sandbox/execs/"+execID).wants(t, object{"status": "succeeded", "ended_at": result.at("ended_at")})
	events, err := s.database().Audit().Events(t.Context(), execID)
	if err != nil || len(events) != 3 || events[2].Kind != "ended" {
		t.Errorf("events: %v %v", events, err)
	}
}

// TestSpoolOutlivesTheNode ends a node whose database stays away, politely and by kill -9, and
// starts it when the database is back.
func TestSpoolOutlivesTheNode(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	dir, database := t.TempDir(), "DATABASE_URL="+cluster.Database(t)
	p := serve(t, dir, database)
	ids := map[string]string{}
	for _, end := range []string{"terminated", "killed"} {
		running := p.post(shell(end, waiting("exit 3")))
		ids[end] = p.awaitStart(end)
		cluster.Stop(t)
		p.letGo(end)
		running.result().wants(t, object{"status": "failed", "audit": "spooled"})
		if end == "killed" {
			p.kill()
		} else if p.terminate(); p.exitCode() != 0 {
			t.Errorf("exit code %d", p.exitCode())
		}
		cluster.Start(t)
		p = serve(t, dir, database)
	}
	for _, id := range ids {
		p.get("/sandbox/execs/"+id).wants(t, object{"status": "failed", "exit_code": 3})
	}
	if rows := cluster.SQL(t, "test_1", "SELECT status, count(*) FROM sandbox_execs GROUP BY status"); rows != "failed|2" {
		t.Errorf("rows: %s", rows)
	}
}
