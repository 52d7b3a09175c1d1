//go:build unix

package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/settings"
	"secbox/store/storetest/pgtest"
)

// TestOnPostgreSQL is the main path with PostgreSQL as the database: rows, lists, tokens, keys, and
// a second node on the same database.
func TestOnPostgreSQL(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	database := settings.Secret(cluster.Database(t))
	key := filepath.Join(t.TempDir(), "hmac.key") // the nodes compare requests
	on := func(c *settings.Settings) { c.DatabaseURL, c.Audit.HMACKeyFile = database, key }
	s := tidy(t, noPool, on)
	rowsByPages(t, s)

	request := shell("agent~user", `cat /workspace/inputs/in.txt; printf '\0\377'; exit 3`, "inputs", []object{{"path": "in.txt", "content": "a\x00b"}},
		"task_ref", object{"task_id": "täsk ✓"})
	first := s.exec(request, "Idempotency-Key", "k")
	first.wants(t, object{"status": "failed", "exit_code": 3, "stdout": "a\x00b\x00\uFFFD", "audit": "stored"})
	id := first.str("exec_id")
	s.get("/sandbox/execs/"+id).wants(t, object{"status": "failed", "task_id": "täsk ✓", "agent_id": "agent", "user_id": "user", "cmd": "bash"})
	s.again(request, "k", first)
	s.refused(http.StatusConflict, "idempotency_mismatch", shell("other", "true"), "Idempotency-Key", "k")

	// A second node with another workspace and state dir sees the same rows and replays the same
	// keys.
	other := tidy(t, noPool, on)
	other.get("/sandbox/execs/"+id).wants(t, object{"status": "failed", "node_id": s.node()})
	if a := other.send(http.MethodPost, "/sandbox/execs", request, "Idempotency-Key", "k"); a.Header.Get("Idempotency-Replayed") != "true" ||
		a.json(t).str("exec_id") != id {
		t.Errorf("%d %s", a.Code, a.Body)
	}

	// A node with a key of its own does not start.
	_, err := startApplication(t.Context(), settingsIn(t, t.TempDir(), noPool, func(c *settings.Settings) { c.DatabaseURL = database }), os.Environ(),
		testLog{t})
	if err == nil || !strings.Contains(err.Error(), "audit.hmac_key_file") || !strings.Contains(err.Error(), "the live node ") {
		t.Errorf("a node with another key: %v", err)
	}

	workerID, worker := s.newToken(tokens.Spec{Role: tokens.Worker, Agents: []string{"agent"}, Users: []string{"user"}})
	_, auditor := s.newToken(tokens.Spec{Role: tokens.Auditor})
	mine := s.as(worker).exec(shell("agent~user", "echo mine")).str("exec_id")
	if items := s.as(worker).records(""); len(items) != 1 || items[0].str("exec_id") != mine || items[0].str("requested_by") != workerID {
		t.Errorf("a worker sees %v", items)
	}
	if a := s.as(worker).send(http.MethodGet, "/sandbox/execs/"+id, nil); a.Code != http.StatusNotFound {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	s.as(worker).refused(403, "forbidden", shell("agent~other", "true"))
	s.as(auditor).refused(403, "forbidden", shell("agent~user", "true"))
	s.as(auditor).get("/sandbox/execs/" + mine)
	other.refused(401, "unauthenticated", shell("agent~user", "true")) // the token that one node made holds on all
	other.as(worker).exec(shell("agent~user", "echo there")).wants(t, object{"stdout": "there\n"})
	s.revoke(workerID)
	other.as(worker).refused(401, "token_revoked", shell("agent~user", "true"))
}
