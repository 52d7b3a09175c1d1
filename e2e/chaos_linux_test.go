//go:build chaos

package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// `make chaos` runs TestChaos with these.
var (
	chaosFor   = flag.Duration("chaos", 8*time.Minute, "how long TestChaos breaks things")
	chaosExecs = flag.Int("chaos-execs", 2000, "how many requests TestChaos sends at least; it goes on until then")
	chaosOnly  = flag.String("chaos-only", "", "the faults that TestChaos makes, separated by commas; empty: all")
	chaosSeed  = flag.Uint64("chaos-seed", 0, "of the order of faults; 0: another one each time")
)

// chaosWorkers is how many clients send one request after another.
const chaosWorkers = 12

// TestChaos breaks three nodes, their engines, disks and network, and the database, while clients
// send requests of all kinds. Afterwards it counts, by what the jobs themselves wrote: nothing ran
// twice, nothing ran or was lost without a row that says so, and nothing is left over.
func TestChaos(t *testing.T) {
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	c := newChaosCluster(t, 0)
	l := &chaosLoad{c: c, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: chaosWorkers}}}
	c.hooks.begin(t, l)
	begun := time.Now()
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for n := range chaosWorkers {
		clients.Go(func() { l.work(ctx, n) })
	}
	done := c.breakThings(rand.New(rand.NewPCG(seed, 1)), func(rounds int) bool {
		return time.Since(begun) < *chaosFor || rounds == 0 || int(l.posted.Load()) < *chaosExecs
	})
	stop()
	clients.Wait()
	for _, n := range c.nodes {
		if !n.running() {
			t.Errorf("node %d ended by itself:\n%s", n.n, n.lastWords())
			n.start()
		}
	}
	took := time.Since(begun).Round(time.Second)
	l.count()
	t.Logf("faults in %v: %v", took, done)
	c.leavesNothing()
}

// chaosFault breaks something for a while, on one node, and mends it.
type chaosFault struct {
	name string
	do   func(n *chaosNode, r *rand.Rand)
}

// forAWhile waits between a half and one and a half of the duration.
func forAWhile(r *rand.Rand, d time.Duration) {
	time.Sleep(d/2 + time.Duration(r.Int64N(int64(d))))
}

var chaosFaults = []chaosFault{
	{"kill -9", func(n *chaosNode, r *rand.Rand) {
		n.kill()
		forAWhile(r, 2*chaosLease)
		n.start()
	}},
	{"terminate", func(n *chaosNode, _ *rand.Rand) {
		n.signal(syscall.SIGTERM)
		select {
		case <-n.ended:
		case <-time.After(2 * time.Minute):
			n.c.t.Errorf("node %d did not end:\n%s", n.n, n.lastWords())
			n.kill()
		}
		n.start()
	}},
	{"drain", func(n *chaosNode, r *rand.Rand) {
		n.command("node", "drain", n.id())
		forAWhile(r, 5*time.Second)
		n.command("node", "drain", n.id(), "--undo")
	}},
	{"freeze", func(n *chaosNode, r *rand.Rand) {
		n.signal(syscall.SIGSTOP)
		forAWhile(r, 3*chaosLease)
		n.signal(syscall.SIGCONT)
	}},
	{"stop PostgreSQL", func(n *chaosNode, r *rand.Rand) {
		n.c.postgres.Stop(n.c.t)
		forAWhile(r, 2*time.Second)
		n.c.postgres.Start(n.c.t)
	}},
	{"partition from PostgreSQL", func(n *chaosNode, r *rand.Rand) {
		n.c.away.cut(n.wire)
		forAWhile(r, 3*chaosLease)
		n.c.away.mend(n.wire)
	}},
	{"restart the engine", func(n *chaosNode, r *rand.Rand) {
		n.engine.stop()
		forAWhile(r, time.Second)
		n.engine.start()
	}},
	{"kill the engine", func(n *chaosNode, r *rand.Rand) {
		n.engine.kill()
		forAWhile(r, time.Second)
		n.engine.start()
	}},
	{"fill the disk of the state directory", func(n *chaosNode, r *rand.Rand) {
		n.disk.fill(0)
		forAWhile(r, 3*time.Second)
		n.disk.makeRoom()
	}},
	{"fill the disk of the engine", func(n *chaosNode, r *rand.Rand) {
		n.engine.disk.fill(0)
		forAWhile(r, 3*time.Second)
		n.engine.disk.makeRoom()
	}},
}

// breakThings makes one fault after another, each kind as often, while more says so; it is asked
// after each fault with how often all kinds were made.
func (c *chaosCluster) breakThings(r *rand.Rand, more func(rounds int) bool) map[string]int {
	done := map[string]int{}
	faults := chaosFaults
	if *chaosOnly != "" {
		faults = slices.DeleteFunc(slices.Clone(faults), func(f chaosFault) bool { return !slices.Contains(strings.Split(*chaosOnly, ","), f.name) })
	}
	for rounds := 0; ; rounds++ {
		for _, i := range r.Perm(len(faults)) {
			if !more(rounds) {
				return done
			}
			f, n := faults[i], c.nodes[r.IntN(len(c.nodes))]
			c.t.Logf("%s: node %d", f.name, n.n)
			f.do(n, r)
			done[f.name]++
			if !n.running() {
				c.t.Errorf("node %d ended by itself during %q:\n%s", n.n, f.name, n.lastWords())
				n.start()
			}
			forAWhile(r, 3*time.Second)
		}
	}
}

func (n *chaosNode) String() string { return fmt.Sprintf("node %d", n.n) }
