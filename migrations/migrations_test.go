package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"secbox/migrations"
	_ "secbox/store/postgres" // its driver
	_ "secbox/store/sqlite"   // its driver
	"secbox/store/storetest/pgtest"
)

var cluster *pgtest.Cluster

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m, &cluster)) }

// count is how many versions there are, and latest is the newest. Both databases have the same
// ones.
var count, latest = func() (count, latest int) {
	ofSQLite, _ := filepath.Glob("sqlite/*.sql")
	ofPostgres, _ := filepath.Glob("postgres/*.sql")
	if len(ofSQLite) != len(ofPostgres) {
		panic("a migration exists for one database only")
	}
	newest := filepath.Base(ofSQLite[len(ofSQLite)-1])
	latest, err := strconv.Atoi(newest[:5])
	if err != nil {
		panic(err)
	}
	return len(ofSQLite), latest
}()

// node is one starting process: its connections, and how it migrates.
type node struct {
	db *sql.DB
	up func(ctx context.Context) (migrations.Result, error)
}

// nodes returns nodes with one new, empty database.
func nodes(t *testing.T, kind string, n int) []node {
	t.Helper()
	all := make([]node, n)
	driver, dsn, path := "pgx", "", ""
	switch kind {
	case "postgres":
		dsn = cluster.Database(t)
	case "pooler":
		dsn = cluster.Pooler(t, "transaction")(cluster.Database(t)) + "&default_query_exec_mode=cache_describe"
	default:
		path = filepath.Join(t.TempDir(), "x.db")
		driver, dsn = "sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: "_busy_timeout=5000&_journal_mode=WAL&_txlock=immediate"}).String()
	}
	for i := range all {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		all[i] = node{db, func(ctx context.Context) (migrations.Result, error) {
			if kind == "sqlite" {
				return migrations.UpSQLite(ctx, db, path)
			}
			return migrations.UpPostgres(ctx, db)
		}}
	}
	return all
}

func TestSeveralNodesMigrateAtOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"postgres", "pooler", "sqlite"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			all := nodes(t, kind, 6)
			var applied int
			var mu sync.Mutex
			var wait sync.WaitGroup
			for _, n := range all {
				wait.Go(func() {
					result, err := n.up(t.Context())
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					applied += result.Applied
					if result.Version != int64(latest) {
						t.Errorf("a node is at version %d", result.Version)
					}
				})
			}
			wait.Wait()
			if applied != count {
				t.Errorf("%d migrations were applied, want %d", applied, count)
			}
			var rows, ids int
			if err := all[0].db.QueryRowContext(t.Context(),
				"SELECT (SELECT count(*) FROM goose_db_version WHERE version_id > 0), (SELECT count(*) FROM installation)").Scan(&rows, &ids); err != nil {
				t.Fatal(err)
			}
			if rows != count || ids != 1 {
				t.Errorf("%d lines of history and %d installation ids", rows, ids)
			}
			again, err := all[0].up(t.Context())
			if err != nil || again.Applied != 0 || again.Version != int64(latest) {
				t.Errorf("once more: %+v, %v", again, err)
			}
			if kind == "sqlite" {
				return
			}
			var locks int
			err = all[0].db.QueryRowContext(t.Context(),
				"SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database WHERE locktype = 'advisory' AND datname = current_database()").Scan(&locks)
			if err != nil || locks != 0 {
				t.Errorf("%d advisory locks are left, %v", locks, err)
			}
		})
	}
}

// TestWaitingEnds: a node that waits for another's migration stops when its context ends.
func TestWaitingEnds(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"postgres", "sqlite"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			all := nodes(t, kind, 1)
			release := holdMigrationLock(t, kind, all[0])
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if _, err := all[0].up(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("while another migrates: %v", err)
			}
			release()
			if result, err := all[0].up(t.Context()); err != nil || result.Version != int64(latest) {
				t.Errorf("after the other: %+v, %v", result, err)
			}
		})
	}
}

// TestOldChangesGetTheirKind: rows of changes from before kinds had their digests among the
// arguments. A command keeps its kind, whatever its name.
func TestOldChangesGetTheirKind(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"postgres", "sqlite"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			n := nodes(t, kind, 1)[0]
			if err := migrations.UpTo(t.Context(), n.db, kind, 7); err != nil {
				t.Fatal(err)
			}
			now := "0"
			if kind == "postgres" {
				now = "now()"
			}
			for id, values := range map[string]string{
				"write":  `'files.write', '["/workspace/a", "absent", "0f"]', '', '', 'none'`,
				"upload": `'feishu.upload', '["/workspace/a", "to", "", "x"]', '', '', 'docker'`,
				"run":    `'files.write', '["/workspace/a", "absent", "0f"]', 'digest', '', 'none'`,
				"cold":   `'files.write', '["/workspace/a", "absent", "0f"]', '', 'image', 'docker'`,
				"bash":   `'bash', '["-lc", "x", "y"]', '', '', 'none'`,
			} {
				_, err := n.db.ExecContext(t.Context(), `INSERT INTO sandbox_execs (exec_id, cmd, args, request_digest, image, backend, project_id, task_id, conversation_id, agent_id, user_id,
					skill_id, image_id, cwd, env_keys, inputs, policy_snapshot, status, error_reason, detail, created_at, duration_ms, artifacts_path, manifest_digest, stdout_truncated,
					stderr_truncated, stdout_bytes, stderr_bytes, artifacts_bytes, oom_events, node_id, warm, requested_by, idempotency_key, settings_digest)
					VALUES ('`+id+`', `+values+`, 'a~u', '', '', 'a', 'u', '', '', '/workspace', '[]', '[]', 'null', 'succeeded', '', '', `+now+`, 0, '', '', `+no(kind)+`, `+no(kind)+`,
					0, 0, 0, 0, 'n', `+no(kind)+`, 'tok', '', '')`)
				if err != nil {
					t.Fatal(err)
				}
			}
			if _, err := n.up(t.Context()); err != nil {
				t.Fatal(err)
			}
			for id, want := range map[string]string{"write": "change absent 0f", "upload": "change  ", "run": "exec  ", "cold": "exec  ", "bash": "exec  "} {
				var got string
				err := n.db.QueryRowContext(t.Context(), "SELECT kind || ' ' || sha256_before || ' ' || sha256_after FROM sandbox_execs WHERE exec_id = '"+id+
					"'").Scan(&got)
				if err != nil || got != want {
					t.Errorf("%s: %q, want %q; %v", id, got, want, err)
				}
			}
		})
	}
}

// no is false, as a database writes it.
func no(kind string) string {
	if kind == "postgres" {
		return "false"
	}
	return "0"
}

// TestOldEventsKeepTheirText: the transparency log hashes events as they are stored.
func TestOldEventsKeepTheirText(t *testing.T) {
	t.Parallel()
	for kind, now := range map[string]string{"postgres": "now()", "sqlite": "0"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			n := nodes(t, kind, 1)[0]
			if err := migrations.UpTo(t.Context(), n.db, kind, 10); err != nil {
				t.Fatal(err)
			}
			const data = `{"b": 1.50, "aa": "ü\\n<"}` // as jsonb writes it
			if _, err := n.db.ExecContext(t.Context(), "INSERT INTO sandbox_exec_events (exec_id, kind, at, node_id, data) VALUES ('e', 'created', "+now+
				", 'n', '"+data+"')"); err != nil {
				t.Fatal(err)
			}
			if _, err := n.up(t.Context()); err != nil {
				t.Fatal(err)
			}
			var got string
			if err := n.db.QueryRowContext(t.Context(), "SELECT data FROM sandbox_exec_events WHERE exec_id = 'e'").Scan(&got); err != nil || got != data {
				t.Errorf("%q, %v; want %q", got, err, data)
			}
			if _, err := n.db.ExecContext(t.Context(), "UPDATE sandbox_exec_events SET kind = 'x'"); err == nil {
				t.Error("events can be changed")
			}
			var size int
			if err := n.db.QueryRowContext(t.Context(), "SELECT size FROM audit_log").Scan(&size); err != nil || size != 0 {
				t.Errorf("%d, %v", size, err)
			}
		})
	}
}

// TestEndedWebhooksLoseTheirQueries: what is not delivered yet keeps its address.
func TestEndedWebhooksLoseTheirQueries(t *testing.T) {
	t.Parallel()
	for kind, now := range map[string]string{"postgres": "now()", "sqlite": "0"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			n := nodes(t, kind, 1)[0]
			if err := migrations.UpTo(t.Context(), n.db, kind, 25); err != nil {
				t.Fatal(err)
			}
			wants := map[string]string{"open": "https://a/h?key=1?", "due": "https://a/h?key=1?", "delivered": "https://a/h", "failed": "https://a/h"}
			for state := range wants {
				if _, err := n.db.ExecContext(t.Context(), "INSERT INTO webhook_deliveries (exec_id, requested_by, host, url, state, created_at, next_at)"+
					" VALUES ('"+state+"', 't', 'a', 'https://a/h?key=1?', '"+state+"', "+now+", "+now+"), ('"+state+" without', 't', 'a', 'https://a/h', '"+
					state+"', "+now+", "+now+")"); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := n.up(t.Context()); err != nil {
				t.Fatal(err)
			}
			for state, want := range wants {
				var got, without string
				err := n.db.QueryRowContext(t.Context(), "SELECT a.url, b.url FROM webhook_deliveries AS a, webhook_deliveries AS b WHERE a.exec_id = '"+state+
					"' AND b.exec_id = '"+state+" without'").Scan(&got, &without)
				if err != nil || got != want || without != "https://a/h" {
					t.Errorf("%s: %q and %q, %v", state, got, without, err)
				}
			}
		})
	}
}
