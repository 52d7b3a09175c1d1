//go:build unix

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/api/sse/ssetest"
	"secbox/sandbox/remote/machine"
	"secbox/sandbox/remote/relay"
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
		"DATABASE_URL=" + database, "CORE_API_AUDIT_HMAC_KEY_FILE=" + filepath.Join(shared, "hmac.key"),
		"CORE_API_AUDIT_LOG_KEY_FILE=" + filepath.Join(shared, "log.key"),
		"CORE_API_POOL_MAX=0", "CORE_API_NODE_LEASE_SECONDS=2", "CORE_API_NODE_ADDRESS=http://127.0.0.1:0",
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

// freeze stops a process. Its threads stop one after the other, on a busy machine some time after
// the signal.
func (p *process) freeze() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	eventually(p.t, "all threads have stopped", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		return err == nil && !slices.ContainsFunc(threads, func(thread string) bool {
			stat, err := os.ReadFile(thread)
			return err == nil && !strings.Contains(string(stat), ") T ")
		})
	})
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

// events are the events of an exec.
type events struct {
	t testing.TB
	*ssetest.Reader
}

// follow asks this node for the events of an exec.
func (p *process) follow(execID, lastID string) events {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.url+"/sandbox/execs/"+execID+"/events", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Last-Event-ID", lastID)
	if p.token != "" {
		req.Header.Set("Authorization", "Bearer "+p.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		p.t.Fatalf("events: %d", resp.StatusCode)
	}
	return events{p.t, ssetest.NewReader(resp.Body)}
}

// until reads up to an event with a text.
func (e events) until(name, text string) {
	e.t.Helper()
	for {
		next, err := e.Next()
		if err != nil {
			e.t.Fatalf("before the event %s with %s: %v", name, text, err)
		}
		if next.Name == name && strings.Contains(next.Data, text) {
			return
		}
	}
}

// ends reads the end of the stream, which is not the end of the exec.
func (e events) ends() {
	e.t.Helper()
	for {
		next, err := e.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil || next.Name == "end" {
			e.t.Fatalf("%+v, %v", next, err)
		}
	}
}

// TestOtherNode: requests about an exec that one node runs reach it through another one, with the
// rights of their own caller.
func TestOtherNode(t *testing.T) {
	t.Parallel()
	c := startNodes(t, 2)
	home, other := c.nodes[0], c.nodes[1]
	service := tokens.NewService(c.db.Tokens(), time.Now)
	ids := map[string]string{}
	token := func(name string, role tokens.Role) string {
		created, secret, err := service.Create(t.Context(), tokens.Spec{Name: name, Role: role})
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = created.ID
		return secret
	}
	mine, theirs := token("mine", tokens.Worker), token("theirs", tokens.Worker)
	home.token, other.token = mine, mine
	running := home.post(shell("held", "echo before; touch started; until [ -e go ]; do sleep 0.05; done; echo after; sleep 1000"))
	id := home.awaitOutput("held", "before\n")
	path := "/sandbox/execs/" + id
	seen := other.follow(id, "")
	seen.until("stdout", "before\\n")
	if out := other.send(http.MethodGet, path+"/stdout", nil, "Range", "bytes=2-"); out.Code != http.StatusPartialContent || string(out.Body) != "fore\n" {
		t.Errorf("its output so far: %d %q", out.Code, out.Body)
	}
	if out := other.send(http.MethodGet, path+"/stderr", nil); out.Code != http.StatusOK || len(out.Body) > 0 {
		t.Errorf("standard error: %d %q", out.Code, out.Body)
	}
	typed := home.send(http.MethodPost, "/sandbox/execs", object{"project_id": "typed", "exec": object{
		"script": "echo ready; read -r x; echo got $x", "tty": object{"cols": 80, "rows": 24},
	}}, "Prefer", "respond-async").json(t).str("exec_id")
	screen := openTerminal(t, other.url, typed, 0, mine)
	screen.awaits("ready")
	screen.enter("hello\r")
	screen.awaits("got hello")
	if exec := screen.ends(); exec.str("status") != "succeeded" {
		t.Errorf("a terminal through the other node: %v", exec)
	}
	for _, of := range []string{"", "/stdout", "/events", "/cancel", "/tty"} {
		method := http.MethodGet
		if of == "/cancel" {
			method = http.MethodPost
		}
		if a := other.as(theirs).send(method, path+of, nil); a.Code != http.StatusNotFound {
			t.Errorf("another token: %s: %d %s", of, a.Code, a.Body)
		}
	}

	// The console, behind the Host that the browser knows.
	admin := token("admin", tokens.Admin)
	v := signIn(t, other, admin)
	page := v.get("/console/execs/" + id)
	if strings.Contains(page, "can be read here when it has ended") || !strings.Contains(page, "data-live") {
		t.Errorf("the page of an exec on another node: %s", page)
	}
	if out := v.get("/console/execs/" + id + "/output/stdout/file"); out != "before\n" {
		t.Errorf("the download: %q", out)
	}
	if out := v.get("/console/execs/" + id + "/output/stdout"); !strings.Contains(out, "before") {
		t.Errorf("the page of the output: %q", out)
	}
	if live := v.event("/console/execs/"+id+"/live", "stdout"); !strings.Contains(live, "before") {
		t.Errorf("the live page: %q", live)
	}

	there := session{other.testServer, home.startSession("session").id}
	there.says("echo $HOSTNAME > /tmp/kept; echo $SECBOX_ARTIFACTS | wc -l", "1\n")
	there.cell("x = 41")
	there.cell("print(x + 1)").wants(t, object{"stdout": "42\n"})
	there.state().wants(t, object{"node_id": home.node(), "execs": 3.0})
	there.cell("s = '"+strings.Repeat("x", 120<<10)+"'; print(len(s))").wants(t, object{"stdout": "122880\n"})
	var once []string // one key is one exec, whichever node gets it
	for _, node := range []*testServer{other.testServer, home.testServer} {
		a, err := node.try(http.MethodPost, "/sandbox/execs", object{"session_id": there.id, "exec": object{"script": "echo once >>/tmp/once"}},
			"Idempotency-Key", "once "+there.id)
		if err != nil || a.Code != http.StatusOK {
			t.Fatalf("%v %d %s", err, a.Code, a.Body)
		}
		once = append(once, a.json(t).str("exec_id"))
	}
	if once[0] != once[1] {
		t.Errorf("one key, two execs: %v", once)
	}
	there.says("cat /tmp/once", "once\n")
	large := bytes.Repeat([]byte("0123456789abcdef"), 256<<10)
	if a := there.files("PUT", "/content", "/tmp/large", large, "Authorization", "Bearer "+there.token); a.Code != http.StatusOK {
		t.Errorf("a large file: %d %s", a.Code, a.Body)
	}
	if a := there.files("GET", "/content", "/tmp/large", nil, "Authorization", "Bearer "+there.token); !bytes.Equal(a.Body, large) {
		t.Errorf("a large file: %d, %d bytes", a.Code, len(a.Body))
	}
	stream := there.try(object{"script": "echo streamed"}, "stream", true)
	if !strings.Contains(string(stream.Body), "streamed") || !strings.Contains(string(stream.Body), "event: end") {
		t.Errorf("a stream: %s", stream.Body)
	}
	if a := other.as(theirs).send(http.MethodGet, "/sandbox/sessions/"+there.id, nil); a.Code != http.StatusNotFound {
		t.Errorf("another token: %d %s", a.Code, a.Body)
	}
	if a := other.send(http.MethodDelete, "/sandbox/sessions/"+there.id+"/contexts/main", nil); a.Code != http.StatusNoContent {
		t.Errorf("end of a context: %d %s", a.Code, a.Body)
	}
	there.end().wants(t, object{"end_reason": "deleted"})

	other.letGo("held")
	seen.until("stdout", "after\\n")
	if a := other.cancel(id); a.Code != http.StatusAccepted {
		t.Errorf("cancel: %d %s", a.Code, a.Body)
	}
	seen.until("end", `"status":"canceled"`)
	running.result().wants(t, object{"status": "canceled", "stdout": "before\nafter\n"})
	if again := other.cancel(id); again.Code != http.StatusConflict {
		t.Errorf("cancel after the end: %d %s", again.Code, again.Body)
	}

	const tool = "text.version"
	// What changes on one node takes effect on the other with the next request.
	home.as(admin).upload("ann/agent", "baseline", "x.zip", archiveOf(t, tool, toolFiles(tool, "one")...)).done(t)
	if version, _ := other.as(mine).ran("agent~ann", tool); version != "one" {
		t.Errorf("a skill that was uploaded to the first node ran as %q", version)
	}
	home.as(admin).editTool("ann/agent", tool, "two")
	if version, _ := other.as(mine).ran("agent~ann", tool); version != "two" {
		t.Errorf("a skill that was edited on the first node ran as %q", version)
	}

	second := home.post(shell("second", "touch started; sleep 1000"))
	page = "/console/execs/" + home.awaitStart("second")
	v.post(page, page+"/cancel", url.Values{})
	ended := second.result()
	ended.wants(t, object{"status": "canceled"})
	if !strings.HasPrefix(ended.str("detail"), "canceled by request of token admin (") {
		t.Errorf("detail: %s", ended.str("detail"))
	}

	if _, err := service.Revoke(t.Context(), ids["theirs"]); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.nodes {
		if a := n.as(theirs).send(http.MethodGet, "/sandbox/execs", nil); a.Code != http.StatusUnauthorized || a.json(t).str("code") != "token_revoked" {
			t.Errorf("a revoked token: %d %s", a.Code, a.Body)
		}
	}
}

// TestFrozenNode: the execs of a node that is frozen are lost, and its jobs run elsewhere. When it
// wakes, it ends what it still runs, changes no row that has ended, and runs nothing twice.
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
	seen := other.follow(heldID, "")
	seen.until("stdout", "before\\n")
	frozen.freeze()
	if a := other.cancel(heldID); a.Code != http.StatusServiceUnavailable || a.json(t).str("code") != "node_unreachable" || a.Header.Get("Retry-After") == "" {
		t.Errorf("canceling an exec of a frozen node: %d %s", a.Code, a.Body)
	}
	seen.ends()
	other.follow(heldID, seen.LastID).until("end", `"status":"lost"`)
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
	lostSession := session{other.testServer, dead.startSession("session").id}
	running := dead.post(shell("held", "touch started; echo before; sleep 1000"))
	id := dead.awaitStart("held")
	seen := other.follow(id, "")
	seen.until("stdout", "before\\n")
	dead.kill()
	running.noAnswer()
	seen.ends()
	other.follow(id, seen.LastID).until("end", `"status":"lost"`)
	eventually(t, "the exec of the dead node is lost", func() bool { return other.get("/sandbox/execs/"+id).str("status") == "lost" })
	other.get("/sandbox/execs/"+id).wants(t, object{
		"error_reason": "node_lost",
		"detail":       "the node that ran this exec ended before the exec did; whether its command finished is not known",
	})
	if got := c.kinds(id); got != "created started ended" {
		t.Errorf("events: %s", got)
	}
	lostSession.awaitEnd().wants(t, object{"end_reason": "node_lost"})
	if a := lostSession.try(object{"script": "true"}); a.Code != http.StatusConflict || a.json(t).str("code") != "session_ended" {
		t.Errorf("an exec in a lost session: %d %s", a.Code, a.Body)
	}
	lost := other.get("/audit/events?kind=node_lost").list("items")
	if len(lost) != 1 {
		t.Fatalf("administrative events: %v", lost)
	}
	lost[0].wants(t, object{"subject": node, "data": object{"lost": 2.0, "returned": 0.0}})
	if err := c.db.Nodes().Forget(t.Context(), node); err != nil {
		t.Error(err)
	}
}

// TestDrainedNode: a drained node finishes what runs and takes no new commands, also none that
// wait, until that is undone.
func TestDrainedNode(t *testing.T) {
	t.Parallel()
	c := startNodes(t, 2)
	drained, other := c.nodes[0], c.nodes[1]
	id := drained.node()
	running := drained.post(shell("held", "touch started; until [ -e end ]; do sleep 0.05; done"))
	drained.awaitStart("held")
	kept := drained.startSession("session")
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
	kept.awaitEnd().wants(t, object{"end_reason": "server_stopped", "detail": "ended because the node was drained"})
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
	drained.startSession("session").says("echo works", "works\n")
}

// TestRunnerOnOtherNode: commands and files of a user's machine reach it through every node, a
// runner that a load balancer sends to another node keeps its commands, and one whose node was
// killed or is frozen goes on with another.
func TestRunnerOnOtherNode(t *testing.T) {
	t.Parallel()
	c := startNodes(t, 3, "CORE_API_SANDBOXES_HEARTBEAT_SECONDS=1")
	service := tokens.NewService(c.db.Tokens(), time.Now)
	token := func(spec tokens.Spec) (id, secret string) {
		spec.Name = "test"
		created, secret, err := service.Create(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		return created.ID, secret
	}
	_, admin := token(tokens.Spec{Role: tokens.Admin})
	runner, secret := token(tokens.Spec{Role: tokens.Runner, UserID: "u"})
	for _, n := range c.nodes {
		n.token = admin
	}
	home, asked, next := c.nodes[0], c.nodes[1], c.nodes[2]
	const u = "/v1/sandbox/u/ag"
	asked.worksIn("u", object{"backend": "remote"})
	asked.send(http.MethodPost, u+"/execute?command=ls", []string{}).refuses(t, 503, "runner_offline")

	balancer, dir := newCable(t, home.url), t.TempDir()
	m, err := machine.New(machine.Config{
		Server: balancer.url, Token: secret, Workspace: dir, Name: "laptop", Allow: []string{machine.AllowExec, machine.AllowWrite}, Version: "test",
		Log: slog.New(slog.NewTextHandler(testLog{t}, nil)), Backoff: func(int) time.Duration { return 50 * time.Millisecond },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(stop)
	on := func(nodes ...*process) func() bool {
		return func() bool {
			for _, n := range nodes {
				all := n.get("/runners").list("items")
				if len(all) != 1 || all[0].str("node_id") != home.node() {
					return false
				}
			}
			return true
		}
	}
	eventually(t, "all nodes know the machine", on(c.nodes...))
	if got := asked.send(http.MethodGet, "/v1/sandbox/u/backend", nil).json(t); got.at("data.connected") != true {
		t.Errorf("%v", got)
	}

	large := strings.Repeat("0123456789abcde\n", 400_000) // more than goes in a message
	asked.send(http.MethodPut, u+"/edit?path=large.txt", large, "Content-Type", "text/plain").done(t)
	if got := next.content(u, "large.txt"); got != large {
		t.Errorf("%d bytes came back of %d", len(got), len(large))
	}
	ran := asked.runs(u+"/execute?command=bash", "-c", "wc -c < large.txt; echo err >&2; exit 3")
	ran.wants(t, object{"stdout": "6400000\n", "stderror": "err\n", "exit_code": 3})
	home.get("/sandbox/execs/"+ran.str("exec_id")).wants(t,
		object{"backend": "remote", "runner": "laptop", "status": "failed", "exit_code": 3, "node_id": asked.node()})
	begin := func(from *process, name string) (string, <-chan answer) {
		answered := make(chan answer, 1)
		go func() {
			answered <- from.send(http.MethodPost, u+"/execute?command=bash",
				[]string{"-c", "echo begun; : > " + name + "; until [ -e go ]; do sleep 0.05; done; echo ended"})
		}()
		eventually(t, "the command runs", func() bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil })
		for _, row := range from.get("/sandbox/execs?status=running&user_id=u").list("items") {
			if strings.Contains(fmt.Sprint(row.at("args")), name) {
				return row.str("exec_id"), answered
			}
		}
		t.Fatal("it has no row")
		return "", nil
	}

	// A cancel, through the third node: the asked node has the row, and home the machine.
	id, canceled := begin(asked, "first")
	if a := next.cancel(id); a.Code != http.StatusAccepted {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	if got := (<-canceled).json(t); got.str("data.stdout") != "begun\n" || !strings.Contains(got.str("data.stderror"), "canceled by request") {
		t.Errorf("canceled: %v", got)
	}

	// The load balancer sends the runner to another node, with commands under way from two nodes.
	id, moved := begin(asked, "second")
	_, movedToo := begin(home, "third")
	balancer.lead(next.url)
	balancer.snap()
	eventually(t, "its link is relayed", func() bool { return strings.Contains(next.log.String(), "relayed to the node that has its machine") })
	eventually(t, "the machine stays on its node", on(c.nodes...))
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, answered := range []<-chan answer{moved, movedToo} {
		if got := (<-answered).json(t); got.str("data.stdout") != "begun\nended\n" || got.num("data.exit_code") != 0 {
			t.Errorf("after the move: %v", got)
		}
	}
	next.get("/sandbox/execs/"+id).wants(t, object{"status": "succeeded", "node_id": asked.node()})
	if got := asked.content(u, "large.txt"); got != large { // a transfer that next passes on
		t.Errorf("%d bytes came back of %d", len(got), len(large))
	}

	// The node that has the machine is killed.
	if err := os.Remove(filepath.Join(dir, "go")); err != nil {
		t.Fatal(err)
	}
	id, lost := begin(asked, "fourth")
	home.kill()
	(<-lost).refuses(t, 502, "outcome_unknown")
	home = next
	eventually(t, "the machine is on the node that the runner dials", on(asked, next))
	eventually(t, "the row has what the runner said at last", func() bool { return asked.get("/sandbox/execs/"+id).str("status") == "canceled" })
	asked.runs(u+"/execute?command=echo", "again").wants(t, object{"stdout": "again\n", "exit_code": 0})

	// It is frozen.
	_, unknown := begin(asked, "fifth")
	next.freeze()
	(<-unknown).refuses(t, 502, "outcome_unknown")
	home = asked
	balancer.lead(asked.url)
	balancer.snap()
	eventually(t, "the machine is on the node that lives", on(asked))
	asked.runs(u+"/execute?command=echo", "alive").wants(t, object{"stdout": "alive\n", "exit_code": 0})
	next.signal(syscall.SIGCONT)
	eventually(t, "the frozen node knows it", on(next))
	next.runs(u+"/execute?command=echo", "awake").wants(t, object{"stdout": "awake\n", "exit_code": 0})

	// Requests of nodes are answered to nodes only.
	for _, path := range []string{"", "/call", "/link?user=u&token=" + runner, "/transfers/0?user=u&token=" + runner} {
		resp, err := http.Get(next.url + relay.Prefix + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s of a stranger: %d", path, resp.StatusCode)
		}
	}
	if _, err := service.Revoke(t.Context(), runner); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the runner ended as if all were well")
	}
	asked.send(http.MethodPost, u+"/execute?command=ls", []string{}).refuses(t, 503, "runner_offline")
	next.send(http.MethodPost, u+"/execute?command=ls", []string{}).refuses(t, 503, "runner_offline")
}
