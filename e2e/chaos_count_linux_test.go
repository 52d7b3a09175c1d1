//go:build chaos

package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// ran counts what the jobs of all projects wrote: how often each began, and how often it reached
// its end.
func (c *chaosCluster) ran() (starts, ends map[string]int) {
	c.t.Helper()
	starts, ends = map[string]int{}, map[string]int{}
	files, err := filepath.Glob(filepath.Join(c.shared, "workspace/projects/*/work/runs"))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			c.t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			switch word, mark, _ := strings.Cut(strings.TrimSpace(line), " "); word {
			case "start":
				starts[mark]++
			case "done":
				ends[mark]++
			default:
				c.t.Errorf("%s has the line %q", file, line)
			}
		}
	}
	return starts, ends
}

// get reads JSON from a node, which must answer.
func (l *chaosLoad) get(n *chaosNode, path string) object {
	t := l.c.t
	t.Helper()
	a, err := l.send(time.Minute, http.MethodGet, n.url()+path, nil)
	if err != nil || a.Code != http.StatusOK {
		t.Fatalf("%s: GET %s: %v %d %s", n, path, err, a.Code, a.Body)
	}
	return a.json(t)
}

// rows are the execs on record by their task, which is the mark of the job. It waits until all have
// ended.
func (l *chaosLoad) rows() map[string][]object {
	t := l.c.t
	t.Helper()
	n := l.c.nodes[0]
	eventually(t, "all execs have ended", func() bool {
		for _, status := range []string{"queued", "running"} {
			if len(l.get(n, "/sandbox/execs?limit=1&status="+status).list("items")) > 0 {
				return false
			}
		}
		return true
	})
	rows := map[string][]object{}
	for cursor := ""; ; {
		page := l.get(n, "/sandbox/execs?limit=500"+cursor)
		for _, row := range page.list("items") {
			rows[row.str("task_id")] = append(rows[row.str("task_id")], row)
		}
		if page.str("next_cursor") == "" {
			return rows
		}
		cursor = "&cursor=" + page.str("next_cursor")
	}
}

// count compares what the clients saw, what is on record and what ran.
func (l *chaosLoad) count() {
	t := l.c.t
	t.Helper()
	rows := l.rows()
	l.c.hooks.count(l, rows)
	starts, ends := l.c.ran()
	started := map[string]bool{}
	for id := range strings.Lines(l.c.postgres.SQL(t, l.c.database, "SELECT exec_id FROM sandbox_exec_events WHERE kind = 'started'")) {
		started[strings.TrimSpace(id)] = true
	}
	outcomes := map[string]map[string]int{}
	byMark := map[string]*chaosJob{}
	cuts, resumed, refusals, reasons := 0, 0, map[string]int{}, map[string]int{}
	for _, j := range l.jobs {
		byMark[j.mark] = j
		mine := rows[j.mark]
		l.judge(j, mine, started, starts[j.mark], ends[j.mark])
		outcome := "no row"
		if len(mine) > 0 {
			outcome = mine[0].str("status")
			if reason := mine[0].str("error_reason"); reason != "" {
				reasons[reason+": "+mine[0].str("detail")]++
			}
		}
		if outcomes[j.kind] == nil {
			outcomes[j.kind] = map[string]int{}
		}
		outcomes[j.kind][outcome]++
		if j.refuse != "" {
			refusals[fmt.Sprint(j.code, " ", j.refuse)]++
		}
		cuts += j.cuts
		if j.cuts > 0 && j.whole {
			resumed++
		}
	}
	for mark, times := range starts {
		if byMark[mark] == nil {
			t.Errorf("%q ran %d times, and no client sent it", mark, times)
		}
	}
	statuses := map[string]bool{}
	for _, o := range outcomes {
		for status := range o {
			statuses[status] = true
		}
	}
	columns := slices.Sorted(maps.Keys(statuses))
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "request\t"+strings.Join(columns, "\t"))
	for _, kind := range chaosKinds {
		fmt.Fprint(w, kind)
		for _, status := range columns {
			fmt.Fprintf(w, "\t%d", outcomes[kind][status])
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		t.Logf("%d × %s", reasons[reason], reason)
	}
	t.Logf("%d requests, %d without an answer; %d jobs began, %d reached their end; streams broke %d times, %d went on to their end; last refusals: %v\n%s",
		len(l.jobs), l.unknown.Load(), len(starts), len(ends), cuts, resumed, refusals, &table)
}

// judge checks one job.
func (l *chaosLoad) judge(j *chaosJob, rows []object, started map[string]bool, starts, ends int) {
	wrong := func(format string, args ...any) {
		l.c.t.Helper()
		l.c.t.Errorf("%s (%s, %d posts, answer %d %s, exec %s; began %d times, reached its end %d times; rows %v): %s",
			j.mark, j.kind, j.posts, j.code, j.refuse, j.execID, starts, ends, brief(rows), fmt.Sprintf(format, args...))
	}
	var accepted []object // execs; a refusal, and an error before the start, let a key be used again
	for _, row := range rows {
		if s := row.str("status"); s != "rejected" && (s != "error" || row.str("started_at") != "") {
			accepted = append(accepted, row)
		}
	}
	if len(accepted) > 1 {
		wrong("one request has several execs")
	}
	if starts > 1 {
		wrong("it ran more than once")
	}
	if starts > 0 && len(accepted) == 0 {
		wrong("it ran without a row")
	}
	if (j.code == http.StatusOK || j.code == http.StatusAccepted || j.whole) && len(rows) == 0 {
		wrong("it was accepted and has no row")
	}
	for _, row := range accepted {
		status := row.str("status")
		if status == "succeeded" && (starts != 1 || ends != 1) {
			wrong("it succeeded without having run once")
		}
		if starts > 0 && !started[row.str("exec_id")] {
			wrong("it ran and is not on record as started")
		}
		if j.execID != "" && row.str("exec_id") != j.execID {
			wrong("the client was told another exec")
		}
		if j.code == http.StatusOK && j.kind != "stream" && !j.is("key") && j.result.str("status") != status && status != "lost" &&
			j.result.str("status") != "lost" {
			wrong("the client was told %q", j.result.str("status"))
		}
		if j.kind == "stream" || j.kind == "followed" {
			l.judgeStream(j, status, wrong)
		}
		if got := j.result.str("stdout"); status == "succeeded" && j.code == http.StatusOK && j.kind != "stream" && got != j.printed() {
			wrong("the client got the output %q", got)
		}
	}
}

func (l *chaosLoad) judgeStream(j *chaosJob, status string, wrong func(string, ...any)) {
	if j.execID == "" || j.kind == "stream" && j.code != http.StatusOK {
		return
	}
	if !j.whole {
		wrong("its stream has no end")
	}
	if j.gaps != "" {
		wrong("its stream: %s", j.gaps)
	}
	if status == "succeeded" && j.told != "lost" && j.stream != j.printed() || !strings.HasPrefix(j.printed(), j.stream) {
		wrong("its stream has %q", j.stream)
	}
}

func brief(rows []object) (out []string) {
	for _, r := range rows {
		out = append(out, fmt.Sprint(r.str("exec_id"), " ", r.str("status"), " ", r.str("error_reason"), " ", r.str("detail"), " started ", r.str("started_at"),
			" node ", r.str("node_id")))
	}
	return out
}

// leavesNothing ends the nodes in order, and looks for what they left: on the engines, among the
// processes, and in the database. The record is as its log says.
func (c *chaosCluster) leavesNothing() {
	t := c.t
	t.Helper()
	eventually(t, "River has no jobs", func() bool { // it gives the jobs of a killed node to another after a minute
		return c.postgres.SQL(t, c.database, "SELECT count(*) FROM river_job WHERE state NOT IN ('completed', 'cancelled', 'discarded')") == "0"
	})
	ids := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		ids[i] = n.id()
		n.signal(syscall.SIGTERM)
	}
	for i, n := range c.nodes {
		<-n.ended
		if code := n.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("%s ended with code %d:\n%s", n, code, n.lastWords())
		}
		eventually(t, fmt.Sprintf("%s has no container", n), func() bool { return n.engine.docker("ps", "-aq") == "" })
		if left := n.engine.docker("volume", "ls", "-q"); left != "" {
			t.Errorf("%s has volumes: %s", n, left)
		}
		if pids := processesWith("secbox.node=" + ids[i]); len(pids) > 0 {
			t.Errorf("%s has processes: %v", n, pids)
		}
		spool, err := os.ReadDir(filepath.Join(n.dir, "state/spool"))
		if err != nil || len(spool) > 0 {
			t.Errorf("%s has in its spool: %v %v", n, spool, err)
		}
	}
	for what, statement := range map[string]string{
		"open execs":     "SELECT count(*) FROM sandbox_execs WHERE status IN ('queued', 'running')",
		"jobs":           "SELECT count(*) FROM sandbox_exec_jobs",
		"leases":         "SELECT count(*) FROM nodes WHERE lease_until IS NOT NULL",
		"double starts":  "SELECT count(*) FROM (SELECT exec_id FROM sandbox_exec_events WHERE kind = 'started' GROUP BY exec_id HAVING count(*) > 1) x",
		"double endings": "SELECT count(*) FROM (SELECT exec_id FROM sandbox_exec_events WHERE kind = 'ended' GROUP BY exec_id HAVING count(*) > 1) x",
	} {
		if got := c.postgres.SQL(t, c.database, statement); got != "0" {
			t.Errorf("%s are left: %s", what, got)
		}
	}
	verified := c.nodes[0].command("audit", "verify", "--artifacts")
	if !strings.Contains(verified, "0 differences") {
		t.Error("the record is not as its log says")
	}
	t.Logf("audit verify: %s", verified)
}
