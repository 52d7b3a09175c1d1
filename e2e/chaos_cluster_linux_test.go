//go:build chaos

package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"secbox/store/storetest/pgtest"
)

const (
	chaosNodes = 3
	chaosLease = 3 * time.Second
)

// chaosCluster is several nodes that can be broken: each has an engine, a small disk for its state,
// and a network to the database of its own.
type chaosCluster struct {
	t        *testing.T
	postgres *pgtest.Cluster
	database string // its name
	shared   string // has the keys, and the workspace
	away     *netns
	hooks    *chaosHooks
	nodes    []*chaosNode
}

// chaosNode is a node of the cluster, in a process.
type chaosNode struct {
	c      *chaosCluster
	n      int
	dir    string
	engine *ownEngine
	disk   *smallDisk // of its state directory
	wire   string     // the end of its network to the database that is in away
	addr   string     // where it listens, also after a restart
	share  *cpuShare  // of the processors; nil: all

	cmd   *exec.Cmd
	ended chan struct{}
	log   *words
}

// newChaosCluster starts all nodes. Each has this many processors; 0: all.
func newChaosCluster(t *testing.T, cpus float64) *chaosCluster {
	t.Helper()
	needRoot(t)
	c := &chaosCluster{t: t, postgres: pgtest.New(t), shared: t.TempDir(), away: newNetns(t), hooks: newChaosHooks(t)}
	direct := c.postgres.Database(t)
	socket := socketOf(t, direct)
	pooler := socketOf(t, c.postgres.Pooler(t, "transaction")(direct))
	database, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	c.database = strings.TrimPrefix(database.Path, "/")
	if err := os.Mkdir(filepath.Join(c.shared, "workspace"), 0o755); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= chaosNodes; n++ {
		node := &chaosNode{c: c, n: n, dir: t.TempDir(), addr: fmt.Sprintf("127.77.0.%d:8003", n), wire: fmt.Sprintf("secbox%d", n), log: &words{}}
		node.disk = newSmallDisk(t, filepath.Join(node.dir, "state"), 1024)
		if err := os.Symlink(filepath.Join(c.shared, "workspace"), filepath.Join(node.dir, "workspace")); err != nil {
			t.Fatal(err)
		}
		if cpus > 0 { // before the engine, which is then gone when the share is removed
			node.share = newCPUShare(t, fmt.Sprintf("secbox-node-%d", n), cpus)
		}
		node.engine = newOwnEngine(t)
		if node.share != nil {
			node.engine.args = []string{"--cgroup-parent", "/" + node.share.name}
		}
		node.engine.start()
		if node.share != nil {
			node.share.hold(node.engine.containerd.Process.Pid)
			node.share.hold(node.engine.dockerd.Process.Pid)
		}
		node.engine.loadImage("python3")
		c.away.connect(node.wire, n)
		if n == chaosNodes { // the last one reaches the database through PgBouncer
			socket = pooler
		}
		c.away.relay(node.databaseAddr(), socket)
		c.nodes = append(c.nodes, node)
		t.Cleanup(node.kill)
		node.start()
	}
	return c
}

// socketOf returns the socket of a server or a pooler.
func socketOf(t *testing.T, database string) string {
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(u.Query().Get("host"), ".s.PGSQL."+u.Query().Get("port"))
}

// databaseAddr is where this node reaches the database.
func (n *chaosNode) databaseAddr() string { return fmt.Sprintf("10.77.%d.2:5432", n.n) }

func (n *chaosNode) url() string { return "http://" + n.addr }

// start starts the node's process and waits until it is ready.
func (n *chaosNode) start() {
	t := n.c.t
	t.Helper()
	database := url.URL{Scheme: "postgres", User: url.UserPassword("postgres", n.c.postgres.Password()), Host: n.databaseAddr(), Path: "/" + n.c.database}
	n.cmd = exec.Command(binary(t), "serve", "--addr", n.addr, "--state-dir", filepath.Join(n.dir, "state"), "--workspace-root",
		filepath.Join(n.dir, "workspace"))
	n.cmd.Env = append(n.engine.environ(),
		"DATABASE_URL="+database.String(),
		"CORE_API_AUDIT_HMAC_KEY_FILE="+filepath.Join(n.c.shared, "hmac.key"), "CORE_API_AUDIT_LOG_KEY_FILE="+filepath.Join(n.c.shared, "log.key"),
		fmt.Sprintf("CORE_API_NODE_LEASE_SECONDS=%d", int(chaosLease.Seconds())), "CORE_API_NODE_ADDRESS="+n.url(),
		"CORE_API_SANDBOX_MAX_CONCURRENT_EXECS=4", "CORE_API_POOL_MAX=2", "CORE_API_POOL_READY=1",
	)
	n.cmd.Env = append(n.cmd.Env, n.c.hooks.environ()...)
	if n.share != nil { // no control group may have more than the one above it
		cores := strconv.FormatFloat(n.share.cpus, 'f', -1, 64)
		n.cmd.Env = append(n.cmd.Env, "CORE_API_SANDBOX_POLICY_CPU_CORES="+cores, "CORE_API_SANDBOX_POLICY_CEILING_CPU_CORES="+cores)
	}
	n.cmd.Stderr, n.ended = n.log, make(chan struct{})
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // Pdeathsig is about the thread
		started <- n.cmd.Start()
		_ = n.cmd.Wait()
		close(n.ended)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	if n.share != nil {
		n.share.hold(n.cmd.Process.Pid)
	}
	eventually(t, fmt.Sprintf("node %d is ready", n.n), func() bool {
		select {
		case <-n.ended:
			t.Fatalf("node %d ended with code %d:\n%s", n.n, n.cmd.ProcessState.ExitCode(), n.lastWords())
		default:
		}
		resp, err := http.Get(n.url() + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// lastWords are the end of the node's log.
func (n *chaosNode) lastWords() string {
	said := n.log.String()
	return said[max(0, len(said)-6000):]
}

// running says whether the process has not ended.
func (n *chaosNode) running() bool {
	select {
	case <-n.ended:
		return false
	default:
		return true
	}
}

// id is what the node is called in the database.
func (n *chaosNode) id() string {
	id, err := os.ReadFile(filepath.Join(n.dir, "state/node_id"))
	if err != nil {
		n.c.t.Error(err)
	}
	return strings.TrimSpace(string(id))
}

// command runs a command of core-api beside the node, with its settings, and again if the database,
// which may just have been mended, does not answer yet.
func (n *chaosNode) command(args ...string) string {
	var out []byte
	var err error
	eventually(n.c.t, "the database answers a command", func() bool {
		c := exec.Command(binary(n.c.t), append(args, "--state-dir", filepath.Join(n.dir, "state"), "--workspace-root", filepath.Join(n.dir, "workspace"))...)
		c.Env = n.cmd.Env
		out, err = c.CombinedOutput()
		return c.ProcessState.ExitCode() != 7
	})
	if err != nil {
		n.c.t.Errorf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

func (n *chaosNode) kill() {
	if n.cmd != nil {
		_ = n.cmd.Process.Kill()
		<-n.ended
	}
}

func (n *chaosNode) signal(s os.Signal) {
	if err := n.cmd.Process.Signal(s); err != nil && n.running() {
		n.c.t.Errorf("node %d: %v", n.n, err)
	}
}

// netns is a network namespace that ends with this process.
type netns struct {
	t    *testing.T
	tid  int // of the thread that is in it
	work chan func()
}

func newNetns(t *testing.T) *netns {
	t.Helper()
	ns := &netns{t: t, work: make(chan func())}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this function
		err := unix.Unshare(unix.CLONE_NEWNET)
		ns.tid = unix.Gettid()
		made <- err
		if err != nil {
			return
		}
		for do := range ns.work {
			do()
		}
	}()
	if err := <-made; err != nil {
		t.Fatalf("a network namespace: %v", err)
	}
	t.Cleanup(func() { close(ns.work) })
	return ns
}

// in runs a function inside the namespace, and waits for it. Processes that it starts and sockets
// that it opens are inside.
func (ns *netns) in(do func() error) {
	ns.t.Helper()
	done := make(chan error, 1)
	ns.work <- func() { done <- do() }
	if err := <-done; err != nil {
		ns.t.Fatal(err)
	}
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// connect lays a wire into the namespace: 10.77.N.1 is this side, 10.77.N.2 the other.
func (ns *netns) connect(name string, n int) {
	ns.t.Helper()
	for _, args := range [][]string{
		{"link", "add", name + "h", "type", "veth", "peer", "name", name, "netns", fmt.Sprint(ns.tid)},
		{"addr", "add", fmt.Sprintf("10.77.%d.1/30", n), "dev", name + "h"},
		{"link", "set", name + "h", "up"},
	} {
		if err := ip(args...); err != nil {
			ns.t.Fatal(err)
		}
	}
	ns.t.Cleanup(func() { _ = ip("link", "del", name+"h") })
	ns.in(func() error { return ip("addr", "add", fmt.Sprintf("10.77.%d.2/30", n), "dev", name) })
	ns.mend(name)
}

// cut drops what is sent over the wire from now on, without a word to either side.
func (ns *netns) cut(name string) {
	ns.t.Helper()
	ns.in(func() error { return ip("link", "set", name, "down") })
}

func (ns *netns) mend(name string) {
	ns.t.Helper()
	ns.in(func() error { return ip("link", "set", name, "up") })
}

// relay passes connections to an address of the namespace on to a Unix socket.
func (ns *netns) relay(addr, socket string) {
	ns.t.Helper()
	var l net.Listener
	ns.in(func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	})
	ns.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				to, err := net.Dial("unix", socket)
				if err != nil {
					return
				}
				defer to.Close()
				ends := make(chan struct{}, 2)
				pass := func(dst io.Writer, src io.Reader) {
					_, _ = io.Copy(dst, src)
					ends <- struct{}{}
				}
				go pass(to, conn)
				go pass(conn, to)
				<-ends
			}()
		}
	}()
}
