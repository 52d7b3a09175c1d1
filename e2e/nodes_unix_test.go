//go:build unix

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"secbox/store"
	"secbox/store/storetest/pgtest"
)

// nodeCluster is several core-apis on one database and one workspace, with leases of two seconds.
type nodeCluster struct {
	t     *testing.T
	db    store.Database
	nodes []*process
}

func startNodes(t *testing.T, n int, environ ...string) *nodeCluster {
	t.Helper()
	database, shared := pgtest.New(t).Database(t), t.TempDir()
	db, err := store.Open(t.Context(), database, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	c := &nodeCluster{t: t, db: db}
	workspace := filepath.Join(shared, "workspace")
	if err := os.Mkdir(workspace, 0o755); err != nil {
		t.Fatal(err)
	}
	environ = append([]string{
		"DATABASE_URL=" + database, "CORE_API_AUDIT_HMAC_KEY_FILE=" + filepath.Join(shared, "hmac.key"), "CORE_API_AUDIT_LOG_KEY_FILE=" + filepath.Join(shared, "log.key"),
		"CORE_API_POOL_MAX=0", "CORE_API_NODE_LEASE_SECONDS=2",
	}, environ...)
	for range n {
		dir := t.TempDir()
		if err := os.Symlink(workspace, filepath.Join(dir, "workspace")); err != nil {
			t.Fatal(err)
		}
		c.nodes = append(c.nodes, serve(t, dir, environ...))
	}
	return c
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// kinds are the kinds of an exec's events.
func (c *nodeCluster) kinds(execID string) string {
	c.t.Helper()
	events, err := c.db.Audit().Events(c.t.Context(), execID)
	if err != nil {
		c.t.Fatal(err)
	}
	var kinds []string
	for _, e := range events {
		kinds = append(kinds, string(e.Kind))
	}
	return strings.Join(kinds, " ")
}

// TestFrozenNode: the execs of a node that is frozen are lost, and its jobs run elsewhere. When it wakes, it ends what it still runs, changes no row that
// has ended, and runs nothing twice.
func TestFrozenNode(t *testing.T) {
	t.Parallel()
	c := startNodes(t, 2, "CORE_API_SANDBOX_MAX_CONCURRENT_EXECS=2", "CORE_API_SANDBOX_RESERVED_EXECS=1")
	frozen, other := c.nodes[0], c.nodes[1]
	held := frozen.post(shell("held", "echo before; touch started; while sleep 0.1; do echo >> alive; done"))
	heldID := frozen.awaitOutput("held", "before\n")
	var jobs []string
	for i := range 6 {
		a := frozen.send(http.MethodPost, "/sandbox/execs", shell("jobs", fmt.Sprintf("echo %d >> runs; sleep 0.2", i)), "Prefer", "respond-async")
		jobs = append(jobs, a.json(t).str("exec_id"))
	}
	eventually(t, "the node runs a job", func() bool {
		return len(frozen.get("/sandbox/execs?status=running&project_id=jobs").list("items")) > 0
	})
	frozen.signal(syscall.SIGSTOP)
	eventually(t, "the exec of the frozen node is lost", func() bool {
		return other.get("/sandbox/execs/"+heldID).str("status") == "lost"
	})
	for _, id := range jobs {
		eventually(t, "all jobs have ended", func() bool {
			status := other.get("/sandbox/execs/" + id).str("status")
			return status != "queued" && status != "running"
		})
	}
	frozen.signal(syscall.SIGCONT)
	eventually(t, "the node has a new lease", func() bool { return strings.Contains(frozen.log.String(), "this node has a new lease") })
	held.result().wants(t, object{"status": "lost", "error_reason": "node_lost"})
	frozen.quiet("held")
	if got := c.kinds(heldID); got != "created started ended" {
		t.Errorf("events: %s", got)
	}
	runs, err := os.ReadFile(other.work("jobs", "runs"))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, line := range strings.Fields(string(runs)) {
		counts[line]++
	}
	for i, id := range jobs {
		status := other.get("/sandbox/execs/" + id).str("status")
		started := strings.Count(c.kinds(id), "started")
		if counts[fmt.Sprint(i)] > 1 || started > 1 || status == "succeeded" && counts[fmt.Sprint(i)] != 1 {
			t.Errorf("job %d is %s, ran %d times, and has %q", i, status, counts[fmt.Sprint(i)], c.kinds(id))
		}
	}
	frozen.works("again")
}

// TestDeadNode: another node ends the execs of a node that was killed, without its restart.
func TestDeadNode(t *testing.T) {
	t.Parallel()
	c := startNodes(t, 2)
	dead, other := c.nodes[0], c.nodes[1]
	node := dead.node()
	running := dead.post(shell("held", "touch started; sleep 1000"))
	id := dead.awaitStart("held")
	dead.kill()
	running.noAnswer()
	eventually(t, "the exec of the dead node is lost", func() bool { return other.get("/sandbox/execs/"+id).str("status") == "lost" })
	other.get("/sandbox/execs/"+id).wants(t, object{"error_reason": "node_lost", "detail": "the node that ran this exec ended before the exec did; whether its command finished is not known"})
	if got := c.kinds(id); got != "created started ended" {
		t.Errorf("events: %s", got)
	}
	lost := other.get("/audit/events?kind=node_lost").list("items")
	if len(lost) != 1 {
		t.Fatalf("administrative events: %v", lost)
	}
	lost[0].wants(t, object{"subject": node, "data": object{"lost": 1.0, "returned": 0.0}})
	if err := c.db.Nodes().Forget(t.Context(), node); err != nil {
		t.Error(err)
	}
}

// TestDrainedNode: a drained node finishes what runs and takes no new commands, also none that wait, until that is undone.
func TestDrainedNode(t *testing.T) {
	t.Parallel()
	c := startNodes(t, 2)
	drained, other := c.nodes[0], c.nodes[1]
	id := drained.node()
	running := drained.post(shell("held", "touch started; until [ -e end ]; do sleep 0.05; done"))
	drained.awaitStart("held")
	ready := func(want int) func() bool {
		return func() bool { return drained.send(http.MethodGet, "/readyz", nil).Code == want }
	}
	if err := c.db.Nodes().Drain(t.Context(), id, true); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node is drained", ready(http.StatusServiceUnavailable))
	refused := drained.send(http.MethodPost, "/sandbox/execs", shell("new", "true"))
	if refused.Code != http.StatusServiceUnavailable || refused.json(t).str("code") != "draining" || refused.Header.Get("Retry-After") != "5" {
		t.Errorf("a new exec: %d %s", refused.Code, refused.Body)
	}
	for range 4 {
		job := other.send(http.MethodPost, "/sandbox/execs", shell("jobs", "true"), "Prefer", "respond-async").json(t).str("exec_id")
		ended := other.get("/sandbox/execs/" + job + "/wait?timeout_ms=60000")
		if ended.str("status") != "succeeded" || ended.str("node_id") == id {
			t.Errorf("a job: %v", ended)
		}
	}
	if err := os.WriteFile(drained.work("held", "end"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	running.result().wants(t, object{"status": "succeeded"})
	if err := c.db.Nodes().Drain(t.Context(), id, false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node takes commands again", ready(http.StatusOK))
	drained.works("again")
}
