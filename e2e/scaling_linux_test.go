//go:build chaos

package e2e

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"
)

// `make scaling` runs TestScaling with these.
var (
	scalingCPUs   = flag.Float64("scaling-cpus", 0.4, "how many processors each node of TestScaling has, its engine and its containers included")
	scalingTurn   = flag.Duration("scaling-turn", 45*time.Second, "how long TestScaling measures one number of nodes, each time")
	scalingRounds = flag.Int("scaling-rounds", 3, "how often TestScaling measures each number of nodes")
)

// scalingClients is how many clients a node has: each sends its next exec when the last one has
// ended.
const scalingClients = 4

// measuredTurn is what one turn gave.
type measuredTurn struct {
	took         time.Duration
	execs        []time.Duration // of each that succeeded, how long it took
	nodes        time.Duration   // processor time of the nodes with their engines and containers
	database     time.Duration   // of all processes of PostgreSQL
	transactions int
	written      int // bytes of its log
}

func (s measuredTurn) rate() float64 { return float64(len(s.execs)) / s.took.Seconds() }

// TestScaling compares three nodes with one, in turns. Each node has the same share of the
// processors, so that one machine can carry all of them.
func TestScaling(t *testing.T) {
	c := newChaosCluster(t, *scalingCPUs)
	l := &chaosLoad{c: c, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: scalingClients}}}
	postmaster := c.postmaster()
	turns := map[int][]measuredTurn{}
	for round := range *scalingRounds + 1 {
		for _, nodes := range []int{1, chaosNodes} {
			s := l.closedLoop(c.nodes[:nodes], postmaster)
			if round > 0 { // the first one fills caches and pools
				turns[nodes] = append(turns[nodes], s)
			}
		}
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "nodes\texecs\texecs/s\tp50\tCPU of nodes per exec\tCPU of PostgreSQL per exec\ttransactions per exec\tWAL per exec")
	rates := map[int]float64{}
	for _, nodes := range []int{1, chaosNodes} {
		var all measuredTurn
		for _, s := range turns[nodes] {
			all.took += s.took
			all.execs = append(all.execs, s.execs...)
			all.nodes += s.nodes
			all.database += s.database
			all.transactions += s.transactions
			all.written += s.written
			t.Logf("%d nodes: %.2f execs/s", nodes, s.rate())
		}
		n := len(all.execs)
		if n == 0 {
			t.Fatalf("%d nodes ran nothing", nodes)
		}
		slices.Sort(all.execs)
		rates[nodes] = all.rate()
		fmt.Fprintf(w, "%d\t%d\t%.2f\t%v\t%.1f ms\t%.2f ms\t%.1f\t%.1f KiB\n", nodes, n, all.rate(), all.execs[n/2].Round(time.Millisecond),
			perExec(all.nodes, n), perExec(all.database, n), float64(all.transactions)/float64(n), float64(all.written)/1024/float64(n))
	}
	_ = w.Flush()
	t.Logf("%.2f processors each; %d nodes run %.2f times as many as one\n%s", *scalingCPUs, chaosNodes, rates[chaosNodes]/rates[1], &table)
}

func perExec(d time.Duration, n int) float64 { return float64(d.Microseconds()) / 1000 / float64(n) }

// closedLoop keeps the nodes busy for one turn.
func (l *chaosLoad) closedLoop(nodes []*chaosNode, postmaster int) measuredTurn {
	t := l.c.t
	t.Helper()
	var mu sync.Mutex
	var s measuredTurn
	cpu, database := used(t, nodes), treeTime(t, postmaster)
	before := l.c.statistics()
	begun := time.Now()
	var clients sync.WaitGroup
	for _, n := range nodes {
		for client := range scalingClients {
			clients.Go(func() {
				for i := 0; time.Since(begun) < *scalingTurn; i++ {
					asked := time.Now()
					a, err := l.send(time.Minute, http.MethodPost, n.url()+"/sandbox/execs", shell(fmt.Sprintf("p%dc%d", n.n, client), "true"))
					if err != nil || a.Code != http.StatusOK {
						t.Errorf("%s: %v %d %s", n, err, a.Code, a.Body)
						return
					}
					mu.Lock()
					s.execs = append(s.execs, time.Since(asked))
					mu.Unlock()
				}
			})
		}
	}
	clients.Wait()
	s.took = time.Since(begun)
	s.nodes, s.database = used(t, nodes)-cpu, treeTime(t, postmaster)-database
	after := l.c.statistics()
	s.transactions, s.written = after[0]-before[0], after[1]-before[1]
	return s
}

// statistics are the transactions of the database and the bytes of its log until now.
func (c *chaosCluster) statistics() [2]int {
	c.t.Helper()
	answer := c.postgres.SQL(c.t, c.database,
		"SELECT xact_commit || ' ' || (pg_current_wal_lsn() - '0/0') FROM pg_stat_database WHERE datname = current_database()")
	var out [2]int
	if _, err := fmt.Sscan(answer, &out[0], &out[1]); err != nil {
		c.t.Fatalf("%q: %v", answer, err)
	}
	return out
}

// postmaster is the process id of the PostgreSQL server, the parent of the one that writes
// checkpoints.
func (c *chaosCluster) postmaster() int {
	c.t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(c.postgres.SQL(c.t, c.database, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")))
	if err != nil {
		c.t.Fatal(err)
	}
	return processStat(c.t, pid).parent
}

// procStat is what /proc says of a process, times in ticks.
type procStat struct{ parent, own, children int }

func processStat(t testing.TB, pid int) (s procStat) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return s // it has ended, and its parent has its time
	}
	words := strings.Fields(string(content[strings.LastIndexByte(string(content), ')')+1:]))
	n := func(i int) int {
		v, err := strconv.Atoi(words[i])
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	return procStat{n(1), n(11) + n(12), n(13) + n(14)}
}

// treeTime is the processor time of a process and its children, also those that have ended.
func treeTime(t testing.TB, pid int) time.Duration {
	s := processStat(t, pid)
	ticks := s.own + s.children
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		child, _ := strconv.Atoi(filepath.Base(entry))
		if s := processStat(t, child); s.parent == pid {
			ticks += s.own + s.children
		}
	}
	return time.Duration(ticks) * time.Second / 100 // USER_HZ
}

// cpuShare is a control group that holds a node, its engine and its containers to a part of the
// processors.
type cpuShare struct {
	t    testing.TB
	name string
	cpus float64
}

const cgroups = "/sys/fs/cgroup"

var shareControllers = []string{"cpu", "cpuacct"}

func newCPUShare(t testing.TB, name string, cpus float64) *cpuShare {
	t.Helper()
	s := &cpuShare{t, name, cpus}
	t.Cleanup(s.remove)
	for _, controller := range shareControllers {
		if err := os.Mkdir(s.file(controller, ""), 0o755); err != nil {
			t.Fatalf("%v; this test needs the controllers of cgroup v1", err)
		}
	}
	for file, value := range map[string]string{
		"cpu.cfs_quota_us": fmt.Sprintf("%.0f", cpus*100_000),
		"cpu.shares":       "16384", // other programs of the machine get what the nodes leave
	} {
		if err := os.WriteFile(s.file("cpu", file), []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *cpuShare) file(controller, name string) string {
	return filepath.Join(cgroups, controller, s.name, name)
}

// hold moves a process into the group; its later children are born there.
func (s *cpuShare) hold(pid int) {
	s.t.Helper()
	for _, controller := range shareControllers {
		if err := os.WriteFile(s.file(controller, "cgroup.procs"), fmt.Append(nil, pid), 0); err != nil {
			s.t.Fatal(err)
		}
	}
}

// remove removes the group, and the groups of the same name that an engine made for its containers.
func (s *cpuShare) remove() {
	groups, err := filepath.Glob(filepath.Join(cgroups, "*", s.name))
	if err != nil {
		s.t.Error(err)
	}
	for _, dir := range groups {
		eventually(s.t, dir+" is gone", func() bool {
			err := syscall.Rmdir(dir)
			return err == nil || err == syscall.ENOENT
		})
	}
}

// used is the processor time of the nodes' shares.
func used(t testing.TB, nodes []*chaosNode) (sum time.Duration) {
	t.Helper()
	for _, n := range nodes {
		content, err := os.ReadFile(n.share.file("cpuacct", "cpuacct.usage"))
		if err != nil {
			t.Fatal(err)
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(ns)
	}
	return sum
}
